//! The message of `fencelock run` when a lock ends before its command for a reason other than time.

#[path = "command/common/mod.rs"]
mod common;

use std::process::Stdio;

use common::loss::{holder, said, warned};
use common::{Place, Running, code, stdout, written};
use fencelock_testbed::KINDS;
use fencelock_testbed::redis::{Server, Settings};

/// A directory, and a session of a minute on each kind of server.
fn stores() -> impl Iterator<Item = Place> {
    std::iter::once(Place::new()).chain(
        KINDS.iter().map(|kind| Place::with_store(kind.shared().url_with("ttl_ms=60000&renew_interval_ms=500")).made()),
    )
}

#[test]
fn a_broken_lock_is_reported_with_the_breaker_and_the_reason() {
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

/// The test adopts the orphans of its descendants, and reaps none.
#[test]
fn dead_processes_that_no_parent_reaps_are_not_said_to_be_left() {
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
fn a_lock_that_was_removed_is_reported_with_that_cause() {
    let place = Place::new();
    let holder = holder(&place, &[]);
    let mut removal = std::process::Command::new("find");
    removal.arg(place.path("store")).args(["-name", "job.*", "-delete", "-print"]);
    assert!(!stdout(&common::output(&mut removal)).is_empty());
    assert_eq!(
        said(&place, &holder.end()),
        "fencelock: the lock job in STORE was lost at TIME, the command is stopped: it was removed from the store\n"
    );
}

#[test]
fn a_lock_that_the_server_forgot_is_reported_with_that_cause() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=60000&renew_interval_ms=500", server.url()));
    let holder = holder(&place, &[]);
    server.ask(&["FLUSHALL"]).unwrap();
    assert_eq!(
        said(&place, &holder.end()),
        "fencelock: the lock job in STORE was lost at TIME, the command is stopped: the session expired in the store\n"
    );
}

#[test]
fn a_lock_whose_server_was_started_anew_is_reported_once_and_as_certain_as_the_loss_is() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=60000", server.url()));
    let holder = warned(&place);
    server.restart().unwrap();
    assert_eq!(
        said(&place, &holder.end()),
        "fencelock: the lock job in STORE was lost at TIME, the command is stopped: the server was started anew and may have forgotten it\n"
    );
}

#[test]
fn a_lock_whose_server_became_a_replica_is_reported_once_with_that_cause() {
    let [one, other] = [(); 2].map(|()| Server::start(Settings::default()).unwrap());
    let place = Place::with_store(format!("{}?ttl_ms=60000&renew_interval_ms=500", one.url()));
    let holder = warned(&place);
    let primary = other.address();
    one.ask(&["REPLICAOF", &primary.ip().to_string(), &primary.port().to_string()]).unwrap();
    assert_eq!(
        said(&place, &holder.end()),
        "fencelock: the lock job in STORE was lost at TIME, the command is stopped: the server is a replica now, and its primary may not know of it\n"
    );
}

#[test]
fn a_lock_that_cannot_be_renewed_for_a_password_that_was_changed_says_so() {
    let server = Server::start(Settings::default().with_user("me", "on >one ~* &* +@all")).unwrap();
    let url = server.url().replace("redis://", "redis://me:one@");
    let place = Place::with_store(format!("{url}?ttl_ms=15000&renew_interval_ms=200"));
    let holder = holder(&place, &[]);
    server.ask(&["ACL", "SETUSER", "me", "resetpass", ">two"]).unwrap();
    server.ask(&["CLIENT", "KILL", "USER", "me"]).unwrap();
    let told = said(&place, &holder.end());
    let first = told.lines().next().unwrap();
    assert!(first.contains("could not be renewed until TIME (the server refused the user or the password: "), "{told}");
    assert!(first.ends_with(": the command is stopped before it lapses"), "{told}");
}

#[test]
fn a_lock_whose_bucket_of_names_was_deleted_is_reported_once_with_that_cause() {
    let server = Server::start(Settings::default()).unwrap();
    let place = Place::with_store(format!("{}?ttl_ms=60000&renew_interval_ms=500", server.url()));
    let holder = warned(&place);
    let bucket = server.ask(&["KEYS", "*:bucket"]).unwrap().items()[0].to_string();
    assert_eq!(server.ask(&["DEL", &bucket]).unwrap().number(), Some(1));
    assert_eq!(
        said(&place, &holder.end()),
        "fencelock: the lock job in STORE was lost at TIME, the command is stopped: it was removed from the store\n"
    );
}

#[test]
fn a_lock_that_reached_its_longest_hold_is_reported_with_that_cause() {
    let place = Place::new();
    let mut command = place.run(&["--max-hold", "1s", "--quiet", "job"], "while :; do sleep 0.02; done");
    assert_eq!(
        said(&place, &common::output(&mut command)),
        "fencelock: the lock job in STORE was held for --max-hold until TIME: the command is stopped\n"
    );
}
