//! The message of `fencelock run` when a lock ends because of time.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::loss::{holder, said, warned};
use crate::common::{Place, output, stdout, until};
use fencelock_testbed::Proxy;
use fencelock_testbed::redis::{Role, Server, Settings};
use nix::sys::signal::Signal;

#[test]
fn a_lock_whose_server_was_replaced_by_its_replica_is_reported_once_with_that_cause() {
    let primary = Server::start(Settings::default()).unwrap();
    let replica = Server::start(Settings::role(Role::ReplicaOf(primary.address()))).unwrap();
    let way = Proxy::start(primary.address()).unwrap();
    let place = Place::with_store(format!("redis://{}?ttl_ms=4000", way.address()));
    let holder = warned(&place);
    // The replica must run for longer than a session of this ttl lasts without a renewal.
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
fn a_lock_that_was_not_renewed_in_time_is_reported_with_that_cause() {
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
fn a_lock_that_lapsed_while_fencelock_was_stopped_is_reported_with_that_cause() {
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
fn a_removed_ticket_ends_its_holder_within_seconds_for_any_ttl() {
    let around = Place::new();
    let place = Place::with_store(format!("{}?ttl_ms=60000", around.url()));
    let holder = holder(&place, &[]);
    let mut removal = Command::new("find");
    removal.arg(around.path("store")).args(["-name", "job.*", "-delete", "-print"]);
    assert!(!stdout(&output(&mut removal)).is_empty());
    let removed = Instant::now();
    let told = said(&place, &holder.end());
    assert!(told.ends_with("the command is stopped: it was removed from the store\n"), "{told}");
    assert!(removed.elapsed() < Duration::from_secs(5), "it took {:?}", removed.elapsed());
}
