//! A server in trouble, while a short ttl runs or the server is ended.

use std::time::Duration;

use fencelock::ErrorKind;
use fencelock_testbed::redis::{Reply, Settings};
use fencelock_testbed::{Proxy, Way};

use super::lab::{
    acquired, acquiring, busy, client, queued, refused_within, server, soon, until, until_queued, with_ttl,
};

#[tokio::test]
async fn a_server_busy_beyond_a_session_costs_its_locks_and_notifies_their_holders_before_another_client_has_them() {
    let server = server(Settings::default().with("lua-time-limit 20"));
    let (holder, rival) = (client(&server.url(), 2000).await, client(&server.url(), 30_000).await);
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let waiting = acquiring(&rival, "job");
    until_queued(&rival, "job", 2).await;
    busy(&server);
    soon(guard.lost()).await;
    assert!(!waiting.is_finished(), "a rival was granted before the holder was notified");
    server.heal().unwrap();
    let granted = acquired(waiting).await;
    assert!(granted.token() > guard.token());
}

#[tokio::test]
async fn a_server_that_reads_its_data_is_said_to_and_waited_for() {
    let settings = Settings::default().with("key-load-delay 200").with("loading-process-events-interval-bytes 1024");
    let server = server(settings);
    let waiter = client(&server.url(), 30_000).await;
    server.ask(&["DEBUG", "POPULATE", "20000"]).unwrap();
    server.backup().unwrap();
    server.restart().unwrap();
    let loads = || server.ask(&["DBSIZE"]).is_err_and(|error| error.to_string().starts_with("LOADING"));
    until("the server loads", async || loads()).await;
    let waiting = acquiring(&waiter, "job");
    let error = refused_within(&with_ttl(&server.url(), 60_000), Duration::from_secs(2)).await;
    assert!(error.is_retryable() && error.to_string().contains("loading"), "{error:?}");
    acquired(waiting).await.release().await.unwrap();
}

#[tokio::test]
async fn a_session_is_renewed_by_a_server_without_memory() {
    let server = server(Settings::default());
    let client = client(&server.url(), 2000).await;
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(4), guard.lost()).await.is_err(), "the lock was lost");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn clients_that_have_to_wait_beyond_their_session_are_notified_before_another_client_is_granted() {
    let server = server(Settings::default());
    let (holder, rival) = (client(&server.url(), 2000).await, client(&server.url(), 30_000).await);
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let waiting = acquiring(&rival, "job");
    until_queued(&rival, "job", 2).await;
    server.ask(&["CLIENT", "PAUSE", "600000", "WRITE"]).unwrap();
    soon(guard.lost()).await;
    assert!(!waiting.is_finished(), "a rival was granted before the holder was notified");
    server.heal().unwrap();
    assert!(acquired(waiting).await.token() > guard.token());
}

#[tokio::test]
async fn a_damaged_queue_delays_no_waiter_of_another_queue() {
    let server = server(Settings::default());
    let way = Proxy::start(server.address()).unwrap();
    let dying = client(&format!("redis://{}", way.address()), 2000).await;
    let (holder, waiter) = (client(&server.url(), 2000).await, client(&server.url(), 30_000).await);
    let _broken = holder.mutex("broken").unwrap().acquire().await.unwrap();
    let lost = dying.mutex("whole").unwrap().acquire().await.unwrap();
    let (stuck, waiting) = (acquiring(&waiter, "broken"), acquiring(&waiter, "whole"));
    until_queued(&waiter, "broken", 2).await;
    until_queued(&waiter, "whole", 2).await;
    let orders = server.ask(&["KEYS", "fencelock:2:{*}:queue:broken"]).unwrap();
    let [Reply::Bytes(order)] = orders.items() else { panic!("{orders:?}") };
    server.ask(&["DEL".as_bytes(), order]).unwrap();
    server.ask(&["SET".as_bytes(), order, b"somebody else's"]).unwrap();
    until("a look fails", async || server.info("errorstat_WRONGTYPE").is_ok()).await;
    // From now on only a look can notice the holder's death.
    way.hole(Way::Both);
    assert!(acquired(waiting).await.token() > lost.token());
    assert!(!stuck.is_finished());
    stuck.abort();
}

#[tokio::test]
async fn a_server_that_dies_in_the_middle_leaves_one_place_or_none() {
    for durable in [true, false] {
        let server = server(Settings { durable, ..Settings::default() }.with("lua-time-limit 60000"));
        let way = Proxy::start(server.address()).unwrap();
        let (client, other) =
            (client(&format!("redis://{}", way.address()), 4000).await, client(&server.url(), 4000).await);
        for round in 0..4 {
            // The request waits behind a script that does not end, or reaches a stopped server.
            if round % 2 == 0 {
                busy(&server);
            } else {
                server.pause();
            }
            let (asked, _) = way.bytes();
            let waiting = acquiring(&client, "job");
            until("it has asked", async || way.bytes().0 > asked).await;
            server.restart().unwrap();
            let guard = acquired(waiting).await;
            let count = queued(&other, "job").await;
            assert!(count <= 1, "{count} in round {round}, durable: {durable}");
            if count == 0 {
                // On a busy machine the session may end; then the guard has reported that. Or the server died right after its answer,
                // before the write was on its disk; then the guard is lost once the client has reconnected.
                assert!(!durable || guard.check().is_err(), "nobody in round {round}, durable: {durable}");
                soon(guard.lost()).await;
            }
            if let Err(error) = guard.release().await {
                assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
            }
            until_queued(&other, "job", 0).await;
        }
    }
}
