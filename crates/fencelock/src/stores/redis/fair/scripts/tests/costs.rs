//! How many commands a script runs, on a server of its own that counts them.

use fencelock_testbed::redis::{Server, Settings};

use super::super::*;
use super::bed::{Bed, LONG};

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

/// How many commands scripts ran while `work` was done, which is one call.
pub(super) fn commands<T>(bed: &mut Bed, work: impl FnOnce(&mut Bed) -> T) -> u64 {
    bed.words(&["CONFIG", "RESETSTAT"]);
    let _ = work(bed);
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut bed.connection).unwrap();
    let counted = |line: &str| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let outside = ["evalsha", "config|resetstat", "script|load", "info"].contains(&command);
        (!outside).then(|| rest.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    stats.lines().filter_map(counted).sum()
}

#[test]
fn a_free_lock_costs_four_commands_to_take_and_two_to_give_back() {
    let server = Server::start(Settings::default()).unwrap();
    let (mut bed, name) = (Bed::at(&server.url()), name("free"));
    let (layout, session) = (bed.layout.clone(), bed.session(LONG));
    let mut held = None;
    assert_eq!(commands(&mut bed, |bed| held = Some(bed.hold(session, &name, Claim::MUTEX))), 4);
    let (id, seq) = held.unwrap();
    let left = commands(&mut bed, |bed| assert!(bed.run(leave(&layout, (&name, id), Some(seq)))));
    assert_eq!(left, 2);
}

#[test]
fn behind_a_thousand_waiters_everything_costs_as_much_as_behind_ten() {
    let server = Server::start(Settings::default()).unwrap();
    let mut bed = Bed::at(&server.url());
    let (layout, session) = (bed.layout.clone(), bed.session(LONG));
    let semaphore = Claim::new(1, 5).unwrap();
    for (kind, claim, holders) in
        [("mutex", Claim::MUTEX, 1), ("semaphore", semaphore, 5), ("writer", Claim::WRITER, 1)]
    {
        let mut costs = Vec::new();
        for waiters in [10, 1000] {
            let name = name(&format!("{kind}/{waiters}"));
            let held: Vec<_> = (0..holders).map(|_| bed.hold(session, &name, claim)).collect();
            let waiting: Vec<_> = (0..waiters).map(|_| bed.wait(session, &name, claim)).collect();
            let (id, seq) = held[0];
            let (middle, middle_seq, _) = waiting[waiters / 2];
            let entered = commands(&mut bed, |bed| bed.wait(session, &name, claim));
            let left =
                |bed: &mut Bed, id, seq| commands(bed, |bed| assert!(bed.run(leave(&layout, (&name, id), Some(seq)))));
            let released = left(&mut bed, id, seq);
            let given_up = left(&mut bed, middle, middle_seq);
            costs.push((entered, released, given_up));
        }
        println!("{kind}: {costs:?}");
        assert_eq!(costs[0], costs[1], "{kind}");
        let (entered, released, given_up) = costs[1];
        assert!(entered <= 6 && released <= 10 && given_up <= 10, "{kind}: {costs:?}");
    }
}

#[test]
fn a_reader_behind_a_thousand_readers_looks_at_none_of_them() {
    let server = Server::start(Settings::default()).unwrap();
    let (mut bed, name) = (Bed::at(&server.url()), name("readers"));
    let session = bed.session(LONG);
    for _ in 0..1000 {
        bed.hold(session, &name, Claim::READER);
    }
    assert!(commands(&mut bed, |bed| bed.hold(session, &name, Claim::READER)) <= 6);
    assert!(commands(&mut bed, |bed| bed.wait(session, &name, Claim::WRITER)) <= 10);
    assert!(commands(&mut bed, |bed| bed.wait(session, &name, Claim::READER)) <= 6);
}

#[test]
fn many_readers_are_let_in_at_once_by_one_message_for_each_session() {
    let server = Server::start(Settings::default()).unwrap();
    let (mut bed, name) = (Bed::at(&server.url()), name("let in"));
    let (layout, writer) = (bed.layout.clone(), bed.session(LONG));
    let sessions = [bed.session(LONG), bed.session(LONG)];
    let (held, seq) = bed.hold(writer, &name, Claim::WRITER);
    for number in 0..3000 {
        bed.wait(sessions[number % 2], &name, Claim::READER);
    }
    bed.received();
    let released = commands(&mut bed, |bed| assert!(bed.run(leave(&layout, (&name, held), Some(seq)))));
    let received = bed.received();
    let expected: Vec<_> = received.iter().map(|(session, news)| (*session, news.len())).collect();
    assert_eq!(expected, [(sessions[0], 1500), (sessions[1], 1500)]);
    assert!(released < 200, "{released} commands");
}
