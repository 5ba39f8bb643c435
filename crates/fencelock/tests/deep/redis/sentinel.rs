//! Failovers: the end of held locks, acquires in progress, and clients that do not notice a failover.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fencelock::observe::Observer;
use fencelock::{Client, ErrorKind, Guard, Loss};
use fencelock_testbed::redis::{Server, Settings, Watched};
use fencelock_testbed::within;

use super::lab::{PATIENCE, Seen, acquired, acquiring, client, refused_within, soon, until};
use super::soak::{Soak, until_nothing_is_left};

/// A waiter has the lock this long after the promotion of the server that grants it.
const TAKEOVER: Duration = Duration::from_secs(1);

fn watched(replicas: usize) -> Watched {
    Watched::start(replicas, &Settings::default(), &[]).unwrap()
}

/// Waits for the promotion outside the runtime of the clients. Returns when it was seen.
async fn promoted(watched: &Arc<Watched>, old: &Server) -> Instant {
    let (watched, old) = (Arc::clone(watched), old.address());
    let seen = tokio::task::spawn_blocking(move || {
        watched.wait_until_replaced(old).unwrap();
        Instant::now()
    });
    seen.await.unwrap()
}

#[tokio::test]
async fn a_primary_that_is_killed_costs_its_holders_their_locks_and_a_waiter_has_one_within_a_second_of_the_promotion()
{
    let watched = Arc::new(watched(2));
    let url = watched.url("", "");
    let (holder, seen) = (client(&url, 6000).await, Arc::new(Seen::default()));
    let waiter = Client::builder().observer(Arc::clone(&seen) as Arc<dyn Observer>);
    let waiter = waiter.session_when_needed(true).connect(&format!("{url}?ttl_ms=6000")).await.unwrap();
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let old = &watched.servers[0];
    old.kill();
    let waiting = acquiring(&waiter, "other");
    let since = promoted(&watched, old).await;
    acquired(waiting).await.check().unwrap();
    within(TAKEOVER, since.elapsed(), "an acquire after the promotion of a replica");
    // The new primary does not prove that it has the grant: the holder loses it.
    assert!(matches!(soon(guard.lost()).await, Loss::Replaced | Loss::Restarted));
    // The holder's place on the new primary keeps no client waiting for the ttl.
    soon(waiter.mutex("job").unwrap().acquire()).await.unwrap().check().unwrap();
}

#[tokio::test]
async fn a_holder_whose_primary_stands_still_stops_before_a_rival_is_granted_by_the_new_one() {
    let watched = Arc::new(watched(2));
    let url = watched.url("", "");
    let (holder, rival) = (client(&url, 6000).await, client(&url, 6000).await);
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let old = &watched.servers[0];
    old.pause();
    let waiting = acquiring(&rival, "job");
    promoted(&watched, old).await;
    let theirs = acquired(waiting).await;
    assert!(guard.check().is_err(), "two hold the lock");
    assert!(theirs.token() > guard.token(), "{:?} {:?}", theirs.token(), guard.token());
    old.resume();
    theirs.check().unwrap();
    soon(guard.lost()).await;
}

/// The client does not notice the failover: the one Sentinel that it knows is dead. The old primary wakes up and takes its renewals, which
/// no replica acknowledges.
#[tokio::test]
async fn renewals_that_a_deposed_primary_takes_do_not_prolong_a_lock() {
    let watched = Arc::new(watched(2));
    let only = watched.url("", "").replace(&format!(",{}", watched.sentinels[1].address()), "");
    let only = only.replace(&format!(",{}", watched.sentinels[2].address()), "");
    // A replica that is not promoted is notified late of the promotion: otherwise its acknowledgement would count.
    let holder = client(&format!("{only}?min_replicas=2"), 6000).await;
    let rival = client(&watched.url("", ""), 6000).await;
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let old = &watched.servers[0];
    watched.sentinels[0].kill();
    old.pause();
    let waiting = acquiring(&rival, "job");
    promoted(&watched, old).await;
    old.resume();
    let theirs = acquired(waiting).await;
    assert!(guard.check().is_err(), "two hold the lock");
    theirs.check().unwrap();
}

#[tokio::test]
async fn a_failover_that_is_asked_for_is_followed_although_the_old_primary_answers() {
    let watched = Arc::new(watched(2));
    let url = watched.url("", "");
    let (holder, other) = (client(&url, 60_000).await, client(&url, 60_000).await);
    for _ in 0..2 {
        let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
        let old = watched.primary();
        watched.wait_until_watched(2).unwrap();
        until("a Sentinel begins a failover", async || {
            watched.sentinels[0].ask(&["SENTINEL", "FAILOVER", "locks"]).is_ok()
        })
        .await;
        let since = promoted(&watched, old).await;
        assert!(matches!(soon(guard.lost()).await, Loss::Replaced | Loss::Restarted | Loss::Demoted));
        println!("a holder is notified {:?} after the promotion", since.elapsed());
        soon(other.mutex("job").unwrap().acquire()).await.unwrap().release().await.unwrap();
    }
}

/// A stopped Sentinel accepts connections and answers nothing. The client asks the next Sentinel instead.
#[tokio::test]
async fn a_stopped_sentinel_keeps_no_client_from_the_news_of_a_failover() {
    let watched = Arc::new(watched(2));
    let url = watched.url("", "");
    watched.sentinels[0].pause();
    // Of three clients, one at least asks the stopped Sentinel first.
    let clients = [client(&url, 60_000).await, client(&url, 60_000).await, client(&url, 60_000).await];
    let mut guards = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        guards.push(client.mutex(format!("job{number}")).unwrap().acquire().await.unwrap());
    }
    until("a Sentinel begins a failover", async || {
        watched.sentinels[1].ask(&["SENTINEL", "FAILOVER", "locks"]).is_ok()
    })
    .await;
    for guard in guards {
        assert!(matches!(soon(guard.lost()).await, Loss::Replaced | Loss::Restarted | Loss::Demoted));
    }
}

#[tokio::test]
async fn without_sentinels_locks_are_kept_and_a_connection_that_ends_waits_for_one() {
    let watched = Arc::new(watched(1));
    let url = watched.url("", "");
    let client = client(&url, 6000).await;
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    watched.sentinels.iter().for_each(Server::kill);
    // Renewals need no Sentinel.
    let start = Instant::now();
    until("more than the ttl has passed", async || start.elapsed() > Duration::from_secs(8)).await;
    guard.check().unwrap();
    let error = refused_within(&url, Duration::from_secs(2)).await;
    assert!(error.kind() == ErrorKind::Unreachable && format!("{error:?}").contains("no Sentinel"), "{error:?}");
    watched.servers[0].ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
    watched.sentinels.iter().for_each(|sentinel| sentinel.restart().unwrap());
    until("the session is confirmed", async || guard.check().is_ok()).await;
    soon(client.mutex("next").unwrap().acquire()).await.unwrap().check().unwrap();
    guard.check().unwrap();
}

/// Each failover begins while all replicas are in sync.
#[tokio::test]
async fn under_load_each_failover_is_ridden_out_tokens_rise_over_all_of_them_and_nothing_is_left() {
    const WORKERS: usize = 8;
    let watched = Arc::new(watched(2));
    let url = watched.url("", "min_replicas=1");
    let (newest, sections, is_done) = <(Arc<AtomicU64>, Arc<AtomicU64>, Arc<AtomicBool>)>::default();
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        let (client, is_done) = (client(&url, 6000).await, Arc::clone(&is_done));
        let (newest, sections) = (Arc::clone(&newest), Arc::clone(&sections));
        workers.push(tokio::spawn(async move {
            let mutex = client.mutex("job").unwrap();
            while !is_done.load(Ordering::Relaxed) {
                let guard = soon(mutex.acquire_within(PATIENCE)).await.unwrap();
                write(&guard, &newest, &sections);
                let _ = guard.release().await;
            }
            client.close().await.unwrap();
        }));
    }
    let mut soak = Soak::of(2);
    while !soak.is_done() {
        let (before, old) = (sections.load(Ordering::Relaxed), watched.primary());
        until("the workers work", async || sections.load(Ordering::Relaxed) > before + 50).await;
        old.kill();
        promoted(&watched, old).await;
        let before = sections.load(Ordering::Relaxed);
        until("the workers work on", async || sections.load(Ordering::Relaxed) > before + 50).await;
        old.restart().unwrap();
        let ready = Arc::clone(&watched);
        tokio::task::spawn_blocking(move || ready.wait_until_watched(2).unwrap()).await.unwrap();
        assert!(workers.iter().all(|worker| !worker.is_finished()), "a worker gave up");
        soak.count(watched.primary());
    }
    is_done.store(true, Ordering::Relaxed);
    for worker in workers {
        soon(worker).await.unwrap();
    }
    until_nothing_is_left(&url, &["job"], &watched.servers).await;
    soak.judge(watched.primary());
}

/// Writes to a resource that refuses older tokens; no other client may have written since the grant.
fn write(guard: &Guard, newest: &AtomicU64, sections: &AtomicU64) {
    let token = guard.token().unwrap().get();
    if guard.check().is_ok() {
        let before = newest.fetch_max(token, Ordering::Relaxed);
        assert!(before < token, "the token {token} was granted after {before}");
    }
    sections.fetch_add(1, Ordering::Relaxed);
}
