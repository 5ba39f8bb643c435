//! The server's wall clock, which leases and tokens go by, jumps.

use std::time::Duration;

use fencelock_testbed::redis::{Reply, Server, Settings};
use fencelock_testbed::{Proxy, Way};

use super::lab::{acquired, acquiring, client, server, soon, until, until_queued};

fn with_a_clock() -> Server {
    server(Settings { own_clock: true, ..Settings::default() })
}

#[tokio::test]
async fn tokens_rise_over_jumps_of_the_clock() {
    let server = with_a_clock();
    let mut last = None;
    for jump in [0, 60, -60, 0, 3600, -3600, 0] {
        server.set_clock(jump).unwrap();
        // A new client: the sessions of earlier clients may have ended.
        let client = client(&server.url(), 30_000).await;
        for _grant in 0..3 {
            let guard = client.mutex("job").unwrap().acquire().await.unwrap();
            assert!(guard.token() > last, "{:?} after {last:?}, the clock at {jump} s", guard.token());
            last = guard.token();
            guard.release().await.unwrap();
        }
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_clock_that_jumps_ahead_ends_leases_and_their_holders_are_notified() {
    let server = with_a_clock();
    let (holder, rival) = (client(&server.url(), 8000).await, client(&server.url(), 8000).await);
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let waiting = acquiring(&rival, "job");
    until_queued(&rival, "job", 2).await;
    server.set_clock(60).unwrap();
    // Both sessions have ended for the server: the next renewal reports that, long before the ttl ends.
    soon(guard.lost()).await;
    let granted = acquired(waiting).await;
    assert!(granted.token() > guard.token());
    granted.check().unwrap();
    granted.release().await.unwrap();
}

#[tokio::test]
async fn a_clock_that_jumps_back_costs_no_client_a_lock() {
    let server = with_a_clock();
    let (holder, rival) = (client(&server.url(), 2000).await, client(&server.url(), 2000).await);
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let waiting = acquiring(&rival, "job");
    until_queued(&rival, "job", 2).await;
    server.set_clock(-60).unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(4), guard.lost()).await.is_err(), "the lock was lost");
    assert!(!waiting.is_finished(), "a rival was granted while the holder held");
    let token = guard.token();
    guard.release().await.unwrap();
    let granted = acquired(waiting).await;
    assert!(granted.token() > token);
    granted.release().await.unwrap();
}

#[tokio::test]
async fn a_holder_that_was_renewed_after_the_clock_went_back_and_died_keeps_no_client_waiting() {
    let server = with_a_clock();
    let way = Proxy::start(server.address()).unwrap();
    let (holder, rival) =
        (client(&format!("redis://{}", way.address()), 4000).await, client(&server.url(), 60_000).await);
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let waiting = acquiring(&rival, "job");
    until_queued(&rival, "job", 2).await;
    server.set_clock(-3600).unwrap();
    let sessions = server.ask(&["KEYS", "fencelock:2:session:*"]).unwrap();
    let left = |session: &Reply| match session {
        Reply::Bytes(key) => server.ask(&["PTTL".as_bytes(), key]).unwrap().number().unwrap(),
        other => panic!("{other:?}"),
    };
    until("both are renewed", async || sessions.items().iter().all(|session| left(session) <= 60_000)).await;
    way.hole(Way::Both);
    assert!(acquired(waiting).await.token() > guard.token());
}
