//! What `confirm` proves, on three real servers.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{event, put, soon};
use fencelock_testbed::Way;
use fencelock_testbed::zookeeper::{Ensemble, Settings};
use fencelock_zookeeper::{Client, Clock, Config, CreateMode, Event, SystemClock, WatchEvent};
use tokio::task::JoinSet;

/// Four ticks: the shortest timeout for which the rule is said to hold.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Asks for evidence every sixth of the timeout, and reads all the time, until told to stop; notes when the newest answered read was sent.
async fn stay_alive(client: Client, stop: Arc<AtomicBool>, newest_read_ms: Arc<AtomicU64>) {
    let mut due = SystemClock.now();
    while !stop.load(Ordering::Relaxed) {
        let now = SystemClock.now();
        if now >= due {
            due = now + TIMEOUT / 6;
            // Waited for aside, so that the next one is not late.
            tokio::spawn(client.confirm());
        }
        if client.exists("/").await.is_ok() {
            newest_read_ms.fetch_max(u64::try_from(now.as_millis()).unwrap(), Ordering::Relaxed);
        }
    }
}

/// One session on a follower: when its node was gone for others, its last confirmed moment, and its last answered read.
async fn outlive(follower: Config, observer: Client, number: usize) -> (Duration, Duration, Duration) {
    let (client, _events) = Client::connect(follower).await.unwrap();
    assert_eq!(client.session().timeout, TIMEOUT);
    let path = put(&client, &format!("/e{number}"), CreateMode::Ephemeral).await;
    let (_, _, mut gone) = observer.get_data_watched(&path).await.unwrap();
    let (stop, newest_read_ms) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let alive = tokio::spawn(stay_alive(client.clone(), Arc::clone(&stop), Arc::clone(&newest_read_ms)));
    assert_eq!(soon(gone.fired()).await, WatchEvent::Deleted);
    let seen = SystemClock.now();
    // What is confirmed after the node was gone counts as well: nothing may ever be confirmed beyond that.
    let _ = soon(client.confirm()).await;
    stop.store(true, Ordering::Relaxed);
    alive.await.unwrap();
    (seen, client.confirmed(), Duration::from_millis(newest_read_ms.load(Ordering::Relaxed)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_lets_no_session_expire_before_the_timeout_after_a_confirmed_moment() {
    // The follower is to go on answering for longer than the session lives.
    let ensemble = Ensemble::start(Settings { sync_limit: 16, ..Settings::ensemble() }).unwrap();
    let leader = ensemble.leader();
    let follower = ensemble.followers()[0];
    let config = |server: usize| Config::new(&ensemble.server(server).address().to_string()).unwrap();
    let (observer, _events) = Client::connect(config(leader).session_timeout(Duration::from_secs(30))).await.unwrap();
    let mut sessions = JoinSet::new();
    for number in 0..12 {
        sessions.spawn(outlive(config(follower).session_timeout(TIMEOUT), observer.clone(), number));
    }
    let all_there = async { while observer.get_children("/").await.unwrap().0.len() < 1 + 12 {} };
    soon(all_there).await;
    // Beside the first three confirmed moments of each.
    let start = SystemClock.now();
    soon(async {
        while SystemClock.now() < start + TIMEOUT {
            observer.sync("/").await.unwrap()
        }
    })
    .await;
    ensemble.link(follower, leader).hold(Way::Both);
    let mut fooled = 0;
    while let Some(session) = soon(sessions.join_next()).await {
        let (gone, confirmed, newest_read) = session.unwrap();
        assert!(confirmed > start, "there was evidence while the link was whole");
        assert!(confirmed + TIMEOUT <= gone, "gone at {gone:?}, confirmed at {confirmed:?}");
        fooled += usize::from(newest_read + TIMEOUT > gone);
    }
    assert!(fooled > 0, "reads went on being answered, and whoever counts them believes for too long");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_outlives_its_leader_and_is_confirmed_by_the_next_one() {
    let ensemble = Ensemble::start(Settings::ensemble()).unwrap();
    let config = Config::new(&ensemble.connect_string()).unwrap().session_timeout(Duration::from_secs(20));
    let (client, mut events) = Client::connect(config).await.unwrap();
    let path = put(&client, "/e", CreateMode::Ephemeral).await;
    let session = client.session().id;
    ensemble.server(ensemble.leader()).kill();
    let killed = SystemClock.now();
    event(&mut events, |event| matches!(event, Event::Reconnected { .. })).await;
    soon(async {
        while client.confirmed() < killed {
            let _ = client.confirm().await;
        }
    })
    .await;
    assert_eq!(client.session().id, session);
    assert_eq!(soon(client.exists(&path)).await.unwrap().unwrap().ephemeral_owner, session);
}
