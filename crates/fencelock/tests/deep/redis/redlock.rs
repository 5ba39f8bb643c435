//! Masters that are gone, slow, silent or forgetful, and clocks that are off.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fencelock::inspect::Claim;
use fencelock::memory::VirtualClock;
use fencelock::store::{Entered, Entry, Opening, Owner, RequestId, Session, StoreUrl, open_url};
use fencelock::time::Clock as _;
use fencelock::{ErrorKind, GuardState, Loss, Name};
use fencelock_testbed::redis::Settings;
use fencelock_testbed::{Proxy, Way, within};
use tokio::task::JoinHandle;

use super::lab::{PATIENCE, soon, until};
use super::masters::{Masters, busy, refused, takes_ours};

/// Long before a silent connection is given up.
const A_MINUTE_MS: u64 = 60_000;

#[tokio::test]
async fn silent_and_slow_masters_in_the_minority_delay_no_grant() {
    let masters = Masters::new(5);
    let client = masters.client(A_MINUTE_MS).await;
    masters.proxies[1].delay(Duration::from_secs(5));
    masters.proxies[3].hold(Way::Both);
    let start = Instant::now();
    for _ in 0..5 {
        takes_ours(&client, "job").await.release().await.unwrap();
    }
    let took = start.elapsed();
    within(Duration::from_secs(5), took, "five cycles with a master that takes ten seconds");
    // A refusal needs no reply of silent masters either, once a quorum has refused.
    masters.taken_by_another("job", [0, 2, 4]);
    busy(&client, "job").await;
    masters.proxies.iter().for_each(|proxy| proxy.heal());
    until("what was late is gone", async || masters.having("job") == 3).await;
}

/// A wait that is short against the patience with silent masters.
#[tokio::test]
async fn a_waiter_with_a_silent_master_learns_that_others_have_the_lock() {
    let masters = Masters::new(3);
    let client = masters.client(A_MINUTE_MS).await;
    masters.taken_by_another("job", [0, 1, 2]);
    masters.proxies[0].hold(Way::Both);
    let mutex = client.mutex("job").unwrap();
    let error = soon(mutex.acquire_within(Duration::from_millis(900))).await.expect_err("another has it");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
}

/// The ttl of sessions whose clock stands still: they renew nothing, and sleep for masters that are silent for a twentieth of it at most.
const STILL: Duration = Duration::from_secs(60);

fn opening_on(clock: &VirtualClock, masters: &Masters) -> JoinHandle<Arc<dyn Session>> {
    let (url, opening) =
        (masters.url("rejoin_ms=0"), Opening::here(Owner::new(7, "host", 1), STILL, Arc::new(clock.clone())));
    tokio::spawn(async move {
        let store = open_url(StoreUrl::parse(&url).unwrap()).await.unwrap();
        store.open(opening.unwrap()).await.unwrap().session
    })
}

/// Once `others_are_asked` holds, lets the time pass that the client waits for silent masters.
async fn waits_for_silent_ones(clock: &VirtualClock, others_are_asked: impl Fn() -> bool) {
    let (asked, grace) = (clock.now(), STILL / 20);
    let sleeps = || clock.next_sleeper().is_some_and(|at| at.since(asked) <= grace);
    until("only the silent ones are missing", async || sleeps() && others_are_asked()).await;
    clock.advance(grace);
}

fn a_try(number: u64, name: &str) -> Arc<Entry> {
    let (name, id) = (Name::new(name).unwrap(), RequestId { client: 7, number });
    Arc::new(Entry { name, claim: Claim::MUTEX, id, wait: false, purpose: None })
}

#[tokio::test]
async fn a_split_vote_waits_for_those_that_are_silent_once() {
    let masters = Masters::new(5);
    let clock = VirtualClock::new();
    let session = soon(opening_on(&clock, &masters)).await.unwrap();
    // Two masters have another holder, two grant the lock, and one is silent.
    masters.taken_by_another("job", [0, 1]);
    masters.proxies[4].hold(Way::Both);
    let entering = tokio::spawn(async move { session.enter(a_try(1, "job")).await });
    waits_for_silent_ones(&clock, || masters.having("job") == 4).await;
    assert!(matches!(soon(entering).await.unwrap().unwrap(), Entered::Busy));
    until("what was granted is given up", async || masters.having("job") == 2).await;
}

/// Until the late master has the lock, the loss of one other master would end the quorum.
#[tokio::test]
async fn a_master_that_comes_later_than_the_grant_is_given_the_lock_before_any_renewal() {
    let masters = Masters::new(3);
    let clock = VirtualClock::new();
    masters.proxies[2].hold(Way::Both);
    let opening = opening_on(&clock, &masters);
    waits_for_silent_ones(&clock, || true).await;
    let session = soon(opening).await.unwrap();
    let Entered::In(_place) = soon(session.enter(a_try(1, "job"))).await.unwrap() else { panic!("it is free") };
    assert_eq!(masters.having("job"), 2);
    masters.proxies[2].release();
    until("all have it", async || masters.having("job") == 3).await;
}

#[tokio::test]
async fn a_master_that_comes_later_than_the_release_is_asked_for_nothing() {
    let masters = Masters::new(3);
    let clock = VirtualClock::new();
    masters.proxies[2].hold(Way::Both);
    let opening = opening_on(&clock, &masters);
    waits_for_silent_ones(&clock, || true).await;
    let session = soon(opening).await.unwrap();
    for number in 1..=5 {
        let Entered::In(mut place) = soon(session.enter(a_try(number, "job"))).await.unwrap() else {
            panic!("it is free")
        };
        soon(place.leave()).await.unwrap();
    }
    masters.proxies[2].release();
    let Entered::In(_place) = soon(session.enter(a_try(6, "another"))).await.unwrap() else { panic!("it is free") };
    // The other lock's request follows on the same connection, behind the earlier ones.
    until("all have the other lock", async || masters.having("another") == 3).await;
    let stats = masters.servers[2].ask(&["INFO", "commandstats"]).unwrap().to_string();
    assert!(stats.contains("cmdstat_set:calls=1,"), "{stats}");
}

#[tokio::test]
async fn many_locks_are_listed_once_each_while_a_master_is_silent() {
    let masters = Masters::new(5);
    let client = super::lab::client(&masters.url("rejoin_ms=0&prefix=shop:"), 20_000).await;
    // More names than the client could look at in turn, if each look waited for the silent master.
    let names: Vec<String> = (10..70).map(|number| format!("job-{number}")).collect();
    for name in &names {
        masters.taken_by_another(&format!("shop:{name}"), 0..5);
    }
    // Two holders that may have a quorum, if the silent master has their key.
    masters.taken_by_another("shop:torn", [0, 1]);
    for server in &masters.servers[2..4] {
        server.ask(&["SET", "shop:torn", "others", "PX", "600000"]).unwrap();
    }
    masters.proxies[4].hold(Way::Both);
    let mut listed: Vec<String> =
        client.names("", None, 100).await.unwrap().iter().map(|name| name.as_str().to_owned()).collect();
    listed.sort();
    assert_eq!(listed, [names, vec!["torn".to_owned()]].concat());
}

#[tokio::test]
async fn a_holder_keeps_its_lock_while_a_minority_is_gone_and_loses_it_with_the_majority_that_granted_it() {
    let masters = Masters::new(5);
    let client = masters.client(8_000).await;
    masters.servers[4].kill();
    let guard = takes_ours(&client, "job").await;
    masters.servers[0].kill();
    assert!(tokio::time::timeout(Duration::from_secs(9), guard.lost()).await.is_err(), "the lock was lost");
    guard.check().unwrap();
    for gone in [0, 4] {
        masters.servers[gone].restart_empty().unwrap();
        masters.servers[gone].wait_until_serving().unwrap();
    }
    assert!(tokio::time::timeout(Duration::from_secs(9), guard.lost()).await.is_err(), "the lock was lost");
    // The restarted masters do not have the key, and renewals do not set it: the next restart loses the lock.
    assert_eq!(masters.having("job"), 3);
    masters.servers[1].restart_empty().unwrap();
    assert_eq!(soon(guard.lost()).await, Loss::Removed);
    drop(guard);
    masters.until_free("job").await;
}

#[tokio::test]
async fn without_a_quorum_locks_are_lost_in_time_and_with_one_they_are_granted_again() {
    let masters = Masters::new(5);
    let client = masters.client(4_000).await;
    let guard = takes_ours(&client, "job").await;
    let granted = Instant::now();
    masters.servers[..3].iter().for_each(fencelock_testbed::redis::Server::kill);
    let loss = soon(guard.lost()).await;
    assert!(matches!(loss, Loss::Unconfirmed | Loss::Expired), "{loss}");
    assert!(granted.elapsed() < PATIENCE);
    drop(guard);
    // At first the place of the lost lock, which cannot be released, blocks the name.
    until("it is an outage", async || refused(&client, "job").await.is_outage()).await;
    for server in &masters.servers[..3] {
        server.restart_empty().unwrap();
        server.wait_until_serving().unwrap();
    }
    takes_ours(&client, "job").await.release().await.unwrap();
    masters.until_free("job").await;
}

#[tokio::test]
async fn a_lock_whose_value_is_gone_from_a_minority_is_held_and_from_a_majority_is_lost() {
    let masters = Masters::new(5);
    let client = masters.client(8_000).await;
    let guard = takes_ours(&client, "job").await;
    until("all have it", async || masters.having("job") == 5).await;
    for server in &masters.servers[..2] {
        server.ask(&["DEL", "job"]).unwrap();
    }
    let left_ms = || masters.servers[4].ask(&["PTTL", "job"]).unwrap().number().unwrap();
    until("it is to be renewed", async || left_ms() < 6_500).await;
    until("it is renewed", async || left_ms() > 7_000).await;
    assert_eq!(guard.state(), GuardState::Held);
    for server in &masters.servers[1..4] {
        server.ask(&["SET", "job", "theirs", "PX", "600000"]).unwrap();
    }
    assert_eq!(soon(guard.lost()).await, Loss::Removed);
    drop(guard);
    // The client deletes its own remaining keys, and keeps the other client's.
    until("theirs is left", async || masters.having("job") == 3).await;
}

#[tokio::test]
async fn a_try_at_masters_that_were_started_a_moment_ago_names_each_and_says_when_it_counts() {
    let masters = Masters::new(3);
    let client = super::lab::client(&masters.url("rejoin_ms=600000"), 4_000).await;
    until("the error names those that do not count", async || {
        // The masters replied, so the try timed out rather than met an outage; the cause names the masters.
        let error = refused(&client, "job").await;
        if error.kind() != ErrorKind::TimedOut {
            return false;
        }
        let error = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        let is_named =
            |address: &SocketAddr| error.contains(&format!("started anew redis://{address}/0: has a vote in "));
        error.contains("rejoin_ms") && masters.proxies.iter().map(Proxy::address).filter(is_named).count() >= 2
    })
    .await;
    masters.until_free("job").await;
}

#[tokio::test]
async fn a_master_that_was_started_anew_is_not_counted_until_a_ttl_has_passed() {
    const TTL: Duration = Duration::from_secs(4);
    let masters = Masters::new(3);
    let start = Instant::now();
    let client = super::lab::client(&masters.url(""), 4_000).await;
    takes_ours(&client, "job").await.release().await.unwrap();
    assert!(start.elapsed() >= TTL, "granted by masters that run for {:?}", start.elapsed());
    masters.until_free("job").await;
    // The textbook's case: another client has a quorum, one master of which forgets it.
    masters.taken_by_another("job", [0, 1]);
    let forgets = Instant::now();
    masters.servers[1].restart_empty().unwrap();
    masters.servers[1].wait_until_serving().unwrap();
    let guard = takes_ours(&client, "job").await;
    assert!(forgets.elapsed() >= TTL, "granted {:?} after the master forgot the other's lock", forgets.elapsed());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn clocks_that_jump_at_a_minority_cost_no_lock_and_at_a_quorum_the_holder_is_notified() {
    let masters = Masters::of(&Settings { own_clock: true, ..Settings::default() }, 5);
    let client = masters.client(8_000).await;
    let rival = masters.client(8_000).await;
    let guard = takes_ours(&client, "job").await;
    for (index, jump) in [(0, 60), (1, 60), (2, -60), (3, -60)] {
        masters.servers[index].set_clock(jump).unwrap();
    }
    until("it is gone where time flew", async || masters.having("job") == 3).await;
    busy(&rival, "job").await;
    guard.check().unwrap();
    for index in [2, 3, 4] {
        masters.servers[index].set_clock(120).unwrap();
    }
    assert_eq!(soon(guard.lost()).await, Loss::Removed);
    drop(guard);
    for server in &masters.servers {
        server.set_clock(0).unwrap();
    }
    takes_ours(&rival, "job").await.release().await.unwrap();
}

#[tokio::test]
async fn two_clients_never_both_hold_while_masters_of_a_minority_come_and_go() {
    let masters = Masters::new(5);
    let inside = Arc::new(AtomicUsize::new(0));
    let mut workers = Vec::new();
    for _ in 0..4 {
        let (client, inside) = (masters.client(20_000).await, Arc::clone(&inside));
        workers.push(tokio::spawn(async move {
            for _ in 0..8 {
                let guard = soon(client.mutex("job").unwrap().acquire()).await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold the lock");
                tokio::task::yield_now().await;
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "two hold the lock");
                guard.release().await.unwrap();
            }
        }));
    }
    for round in 0.. {
        if workers.iter().all(tokio::task::JoinHandle::is_finished) {
            break;
        }
        // Two of five at a time: the first loses its connections, the second is silent for a while.
        masters.proxies[round % 5].reset();
        masters.proxies[(round + 2) % 5].hold(Way::Both);
        let last = inside.load(Ordering::SeqCst);
        let start = Instant::now();
        let moved = async || inside.load(Ordering::SeqCst) != last || start.elapsed() > Duration::from_millis(300);
        until("a contender comes or goes, or time passes", moved).await;
        masters.proxies[(round + 2) % 5].release();
    }
    for worker in workers {
        worker.await.unwrap();
    }
    masters.until_free("job").await;
}
