//! The proof of `confirm`, on three real servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{event, put, soon};
use fencelock_testbed::zookeeper::{Ensemble, Settings};
use fencelock_testbed::{Proxy, Way};
use fencelock_zookeeper::{Client, Clock, Config, CreateMode, Event, SystemClock, WatchEvent};
use tokio::task::JoinSet;

/// Four ticks: the shortest timeout for which the rule is said to hold.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Sessions that ask for evidence, and sessions that only read.
const CAREFUL: usize = 12;
const CREDULOUS: usize = 2;

/// The fate of a session.
struct Fate {
    /// When another client saw that the node was gone.
    gone: Duration,
    /// Its last confirmed moment.
    confirmed: Duration,
    /// When its last answered read was sent.
    newest_read: Duration,
    is_careful: bool,
}

/// Reads until `stop` is set, and asks for evidence every sixth of the timeout if it is careful. A `sync` that hangs holds up the reads
/// behind it.
async fn stay_alive(client: Client, is_careful: bool, stop: Arc<AtomicBool>) -> Duration {
    let (mut due, mut newest_read) = (SystemClock.now(), Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let now = SystemClock.now();
        if is_careful && now >= due {
            due = now + TIMEOUT / 6;
            // A task of its own waits for the reply, so that the next request is not late.
            tokio::spawn(client.confirm());
        }
        if client.exists("/").await.is_ok() {
            newest_read = now;
        }
    }
    newest_read
}

async fn fate(follower: Config, observer: Client, number: usize) -> Fate {
    let (client, _events) = Client::connect(follower).await.unwrap();
    assert_eq!(client.session().timeout, TIMEOUT);
    let path = put(&client, &format!("/e{number}"), CreateMode::Ephemeral).await;
    // The leader may still have to apply a write that a follower has answered.
    observer.sync(&path).await.unwrap();
    let (_, _, mut watch) = observer.get_data_watched(&path).await.unwrap();
    let is_careful = number < CAREFUL;
    let stop = Arc::new(AtomicBool::new(false));
    let alive = tokio::spawn(stay_alive(client.clone(), is_careful, Arc::clone(&stop)));
    assert_eq!(soon(watch.fired()).await, WatchEvent::Deleted);
    let gone = SystemClock.now();
    if is_careful {
        // A confirmation after the end of the node would count as well.
        let _ = soon(client.confirm()).await;
    }
    stop.store(true, Ordering::Relaxed);
    Fate { gone, confirmed: client.confirmed(), newest_read: alive.await.unwrap(), is_careful }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_lets_no_session_expire_before_the_timeout_after_a_confirmed_moment() {
    // The follower answers for longer than the sessions live.
    let ensemble = Ensemble::start(Settings { sync_limit: 16, ..Settings::ensemble() }).unwrap();
    let leader = ensemble.leader();
    let follower = ensemble.followers()[0];
    let config = |server: usize| Config::new(&ensemble.server(server).address().to_string()).unwrap();
    let (observer, _events) = Client::connect(config(leader).session_timeout(Duration::from_secs(30))).await.unwrap();
    let mut sessions = JoinSet::new();
    for number in 0..CAREFUL + CREDULOUS {
        sessions.spawn(fate(config(follower).session_timeout(TIMEOUT), observer.clone(), number));
    }
    let everybody = 1 + CAREFUL + CREDULOUS;
    soon(async { while observer.get_children("/").await.unwrap().0.len() < everybody {} }).await;
    // After the moments that the connect has confirmed.
    let start = SystemClock.now();
    soon(async {
        while SystemClock.now() < start + TIMEOUT {
            observer.sync("/").await.unwrap()
        }
    })
    .await;
    ensemble.link(follower, leader).hold(Way::Both);
    while let Some(session) = soon(sessions.join_next()).await {
        let Fate { gone, confirmed, newest_read, is_careful } = session.unwrap();
        if is_careful {
            assert!(confirmed > start, "there was evidence while the link was whole");
            assert!(confirmed + TIMEOUT <= gone, "gone at {gone:?}, confirmed at {confirmed:?}");
        } else {
            let why = "reads went on being answered: whoever counts them believes for too long";
            assert!(newest_read + TIMEOUT > gone, "{why}: gone at {gone:?}, read at {newest_read:?}");
        }
    }
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_answer_slowly_do_not_take_the_session_from_each_other_for_ever() {
    let ensemble = Ensemble::start(Settings::ensemble()).unwrap();
    let proxies: Vec<_> = ensemble.servers().iter().map(|server| Proxy::start(server.address()).unwrap()).collect();
    // A round trip takes longer than the pause before the next server is dialled.
    proxies.iter().for_each(|proxy| proxy.delay(Duration::from_millis(150)));
    let servers: Vec<_> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
    let config = Config::new(&servers.join(",")).unwrap().session_timeout(Duration::from_secs(20));
    let (client, mut events) = Client::connect(config).await.unwrap();
    for number in 0..3 {
        let current = proxies.iter().find(|proxy| proxy.address().to_string() == client.session().server).unwrap();
        current.reset();
        event(&mut events, |event| matches!(event, Event::Reconnected { .. })).await;
        // Only a write makes the leader look whose the session is.
        put(&client, &format!("/e{number}"), CreateMode::Ephemeral).await;
    }
}
