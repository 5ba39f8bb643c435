//! What `fencelock run` says when a lock ends before its command: one line, with the time, the store and who ended it.

#[path = "command/common/mod.rs"]
mod common;

use std::process::{Output, Stdio};
use std::time::SystemTime;

use common::{Place, Running, code, stderr, stdout, until, written};
use fencelock_testbed::redis::{Role, Server, Settings};
use fencelock_testbed::{KINDS, Proxy};
use nix::sys::signal::Signal;

/// A command that goes on for ever, under the lock `job`.
fn holder(place: &Place, options: &[&str]) -> Running {
    let script = "echo $$ > pid; while :; do sleep 0.02; done";
    let running = Running::start(place.run(&[options, &["--quiet", "job"]].concat(), script).stderr(Stdio::piped()));
    written(&place.path("pid"));
    running
}

/// All that was said, with `TIME` and `STORE` instead of those that are right there.
fn said(place: &Place, output: &Output) -> String {
    assert_eq!(code(output), 76, "{output:?}");
    let shown = place.url();
    let text = stderr(output).replace(shown.split('?').next().unwrap(), "STORE");
    let words = text.split_inclusive([' ', '\n']).map(|word| {
        let bare = word.trim_end_matches([' ', '\n', ',', ':']);
        let Ok(time) = humantime::parse_rfc3339(bare) else { return word.to_owned() };
        let age = SystemTime::now().duration_since(time).unwrap();
        assert!(age.as_secs() < 60, "{text}");
        word.replace(bare, "TIME")
    });
    words.collect()
}

fn stores() -> impl Iterator<Item = Place> {
    std::iter::once(Place::new()).chain(KINDS.iter().map(|kind| Place::with_store(kind.shared().url())))
}

#[test]
fn a_broken_lock_is_told_with_who_broke_it_and_why() {
    for place in stores() {
        let holder = holder(&place, &[]);
        place.queued("job", 1);
        let host = place.contenders("job")[0]["host"].as_str().unwrap().to_owned();
        let mut order = place.fencelock(&["break", "job", "--yes", "--reason", "stuck since noon"]);
        let breaker = Running::start(order.stdout(Stdio::piped()));
        let pid = breaker.pid();
        assert_eq!(code(&breaker.end()), 0);
        let expected = format!(
            "fencelock: the lock job in STORE was lost at TIME, the command is stopped: it was broken by pid {pid} on {host}: stuck since noon\n"
        );
        assert_eq!(said(&place, &holder.end()), expected);
    }
}

/// We are given the orphans of our descendants, and reap nobody.
#[test]
fn processes_that_are_dead_and_that_nobody_reaps_are_not_said_to_be_left() {
    nix::sys::prctl::set_child_subreaper(true).unwrap();
    let place = Place::new();
    let script = "sleep 600 & echo $$ > pid; wait";
    let holder = Running::start(place.run(&["--quiet", "job"], script).stderr(Stdio::piped()));
    written(&place.path("pid"));
    place.queued("job", 1);
    let broken = place.fencelock(&["break", "job", "--yes", "--reason", "x"]).output().unwrap();
    assert_eq!(code(&broken), 0, "{broken:?}");
    let told = said(&place, &holder.end());
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn a_lock_that_somebody_removed_is_told_as_that() {
    let place = Place::new();
    let holder = holder(&place, &[]);
    let mut removal = std::process::Command::new("find");
    removal.arg(place.path("store")).args(["-name", "job.*", "-delete", "-print"]);
    assert!(!stdout(&common::output(&mut removal)).is_empty());
    assert_eq!(
        said(&place, &holder.end()),
        "fencelock: the lock job in STORE was lost at TIME, the command is stopped: somebody removed it from the store\n"
    );
}

#[test]
fn a_lock_that_the_server_forgot_is_told_as_that() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=4000", server.url()));
    let holder = holder(&place, &[]);
    server.ask(&["FLUSHALL"]).unwrap();
    assert_eq!(
        said(&place, &holder.end()),
        "fencelock: the lock job in STORE was lost at TIME, the command is stopped: the session expired in the store\n"
    );
}

#[test]
fn a_lock_whose_server_was_started_anew_is_told_once_and_as_certain_as_it_is() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=60000", server.url()));
    let holder = warned(&place);
    server.restart().unwrap();
    assert_eq!(
        said(&place, &holder.end()),
        "fencelock: the lock job in STORE was lost at TIME, the command is stopped: the server was started anew and may have forgotten it\n"
    );
}

/// A command that goes on for ever, under the lock `job`, without `--quiet`: that leaves out what the library warns of.
fn warned(place: &Place) -> Running {
    let script = "echo $$ > pid; while :; do sleep 0.02; done";
    let holder = Running::start(place.run(&["job"], script).stderr(Stdio::piped()));
    written(&place.path("pid"));
    holder
}

#[test]
fn a_lock_whose_server_was_replaced_by_its_replica_is_told_once_and_as_that() {
    let primary = Server::start(Settings::default()).unwrap();
    let replica = Server::start(Settings::role(Role::ReplicaOf(primary.address()))).unwrap();
    let way = Proxy::start(primary.address()).unwrap();
    let place = Place::with_store(format!("redis://{}?ttl_ms=4000", way.address()));
    let holder = warned(&place);
    // It runs for longer than a session of this ttl can be without a renewal.
    until("the replica ran for long enough and has the lock", || {
        let uptime: u64 = replica.info("uptime_in_seconds").unwrap().parse().unwrap();
        let sessions = replica.ask(&["KEYS", "fencelock:2:session:*"]).unwrap().items().len();
        (uptime > 8 && sessions == 1).then_some(())
    });
    replica.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
    way.lead_to(replica.address());
    way.reset();
    assert_eq!(
        said(&place, &holder.end()),
        "fencelock: the lock job in STORE was lost at TIME, the command is stopped: another server answers in the place of the one that granted it, and may not know of it\n"
    );
}

#[test]
fn a_lock_whose_server_became_a_replica_is_told_once_and_as_that() {
    let [one, other] = [(); 2].map(|()| Server::start(Settings::default()).unwrap());
    let place = Place::with_store(format!("{}?ttl_ms=4000", one.url()));
    let holder = warned(&place);
    let primary = other.address();
    one.ask(&["REPLICAOF", &primary.ip().to_string(), &primary.port().to_string()]).unwrap();
    assert_eq!(
        said(&place, &holder.end()),
        "fencelock: the lock job in STORE was lost at TIME, the command is stopped: the server is a replica now, and its primary may not know of it\n"
    );
}

#[test]
fn a_lock_whose_bucket_of_names_somebody_deleted_is_told_once_and_as_that() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=4000", server.url()));
    let holder = warned(&place);
    let bucket = server.ask(&["KEYS", "*:bucket"]).unwrap().items()[0].to_string();
    assert_eq!(server.ask(&["DEL", &bucket]).unwrap().number(), Some(1));
    assert_eq!(
        said(&place, &holder.end()),
        "fencelock: the lock job in STORE was lost at TIME, the command is stopped: somebody removed it from the store\n"
    );
}

#[test]
fn a_lock_that_was_not_renewed_in_time_is_told_as_that() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=4000", server.url()));
    let holder = holder(&place, &["--grace-after-loss", "60s"]);
    server.pause();
    assert_eq!(
        said(&place, &holder.end()),
        "fencelock: the lock job in STORE could not be renewed until TIME: the command is stopped before it lapses\n"
    );
}

#[test]
fn a_lock_that_lapsed_while_fencelock_was_stopped_is_told_as_that() {
    let place = Place::with_store(fencelock_testbed::redis::shared().url());
    let place = Place::with_store(format!("{}?ttl_ms=3000", place.url()));
    let holder = holder(&place, &[]);
    holder.signal(Signal::SIGSTOP);
    place.queued("job", 0);
    holder.signal(Signal::SIGCONT);
    assert_eq!(
        said(&place, &holder.end()),
        "fencelock: the lock job in STORE was lost at TIME, the command is stopped: no renewal was confirmed in time\n"
    );
}

#[test]
fn a_lock_that_was_held_for_long_enough_is_told_as_that() {
    let place = Place::new();
    assert_eq!(
        said(&place, &holder(&place, &["--max-hold", "1s"]).end()),
        "fencelock: the lock job in STORE was held for --max-hold until TIME: the command is stopped\n"
    );
}
