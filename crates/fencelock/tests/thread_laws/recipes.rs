//! The recipes for code that blocks, which has no runtime and no timers: in this process, and in a directory.

use std::sync::mpsc;

use fencelock::blocking::Client;
use fencelock::jobs::{RunState, Slot};
use fencelock::recipes::Passage;
use fencelock::{Error, ErrorKind};

use crate::support::{ms, secs};

/// Two clients of each store.
fn everywhere(play: impl Fn(&Client, &Client)) {
    let directory = tempfile::tempdir().unwrap();
    for url in ["memory:recipes-for-threads".to_owned(), format!("file://{}", directory.path().display())] {
        let (one, other) = (Client::connect(&url).unwrap(), Client::connect(&url).unwrap());
        play(&one, &other);
        one.close().unwrap();
        other.close().unwrap();
    }
}

type Made<T> = Result<T, Box<dyn std::error::Error>>;

#[test]
fn a_job_runs_once_in_its_slot_and_again_where_it_failed() {
    everywhere(|one, other| {
        let job = |client: &Client| client.job("report", Slot::named("today").unwrap()).unwrap().retries(1);
        assert_eq!(one.job_status("report").unwrap(), None);
        assert!(job(one).run(|_| -> Made<()> { Err("no paper".into()) }).is_err());
        assert_eq!(one.job_status("report").unwrap().unwrap().last.state, RunState::Failed);
        let made = job(other).timeout(secs(180)).run(|this| {
            assert_eq!(job(one).timeout(ms(20)).run(|_| Ok::<_, Error>(0)).unwrap_err().kind(), ErrorKind::TimedOut);
            Ok::<_, Error>(this.attempt)
        });
        assert_eq!(made.unwrap(), Some(2));
        assert_eq!(job(one).run(|_| Ok::<_, Error>(0)).unwrap(), None, "it was made");
        assert_eq!(other.job_status("report").unwrap().unwrap().last.state, RunState::Succeeded);
    });
}

#[test]
fn a_window_lets_a_single_caller_in_and_a_single_value_is_made() {
    everywhere(|one, other| {
        let passages = [one, other].map(|client| client.window("order", secs(3600)).unwrap().pass().unwrap());
        assert!(matches!(passages, [Passage::First { .. }, Passage::Refused { .. }]), "{passages:?}");
        let held = one.mutex("order").unwrap().acquire().unwrap();
        let refused = other.window("order", secs(3600)).unwrap().timeout(ms(20)).pass().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TimedOut);
        held.release().unwrap();
        let [made, same] = [one, other].map(|client| client.once("cache", "v1").unwrap());
        let held = one.mutex("cache").unwrap().acquire().unwrap();
        let refused = same.clone().timeout(ms(20)).get_or_make(|| Ok::<_, Error>(Vec::new())).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TimedOut);
        held.release().unwrap();
        assert_eq!(same.get().unwrap(), None);
        assert!(made.get_or_make(|| -> Made<_> { Err("not yet".into()) }).is_err());
        // The closure that makes the value may acquire a lock itself.
        let rows = made.get_or_make(|| one.mutex("rows")?.run(|_| b"rows".to_vec())).unwrap();
        assert_eq!(&*rows, b"rows");
        assert_eq!(same.get_or_make(|| -> Made<_> { Err("it is there".into()) }).unwrap(), rows);
    });
}

#[test]
fn several_locks_are_taken_together_with_a_limit_or_none_of_them() {
    everywhere(|one, other| {
        let both = other.multi_lock(["b", "a"]).unwrap().timeout(ms(50)).purpose("a transfer");
        let held = one.mutex("b").unwrap().acquire().unwrap();
        assert_eq!(both.acquire().unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(both.try_acquire().unwrap_err().kind(), ErrorKind::Busy);
        drop(one.mutex("a").unwrap().try_acquire().unwrap());
        held.release().unwrap();
        let guard = both.timeout(secs(180)).acquire().unwrap();
        guard.check().unwrap();
        assert!(guard.token("a").is_some() && guard.token("c").is_none());
        guard.release().unwrap();
    });
}

#[test]
fn a_candidate_leads_once_the_leader_resigns() {
    everywhere(|one, other| {
        let [first, second] = [one, other].map(|client| client.election("chief").unwrap());
        let leader = first.address("here").campaign().unwrap();
        assert!(!leader.must_step_down());
        assert_eq!(second.campaign_within(ms(20)).unwrap_err().kind(), ErrorKind::TimedOut);
        let seen = second.leader().unwrap().unwrap();
        assert_eq!((seen.term, seen.address.as_deref()), (leader.term(), Some(&b"here"[..])));
        std::thread::scope(|scope| {
            let (is_next, next) = mpsc::channel();
            let second = &second;
            scope.spawn(move || is_next.send(second.campaign().unwrap()).unwrap());
            leader.resign().unwrap();
            let next = next.recv_timeout(secs(180)).unwrap();
            assert!(next.term() > seen.term);
        });
    });
}
