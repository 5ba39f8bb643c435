//! Sticky locks on real servers.

use fencelock::ErrorKind;
use fencelock_testbed::redis::Settings;

use crate::lab::{PATIENCE, client, server, soon, until};

#[path = "../sticky/mod.rs"]
mod any;

#[tokio::test]
async fn a_sticky_lock_is_released_to_a_waiter_of_another_client() {
    let server = server(Settings::default());
    let (one, other) = (client(&server.url(), 60_000).await, client(&server.url(), 60_000).await);
    any::is_released_to_a_waiter_of_another_client(&one, &other).await;
}

#[tokio::test]
async fn a_contender_that_arrives_after_the_holders_connection_was_cut_is_seen() {
    let server = server(Settings::default());
    let (one, other) = (client(&server.url(), 60_000).await, client(&server.url(), 60_000).await);
    let sticky = one.mutex("job").unwrap().sticky(PATIENCE * 20);
    let guard = soon(sticky.acquire()).await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    for round in 0..3 {
        server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
        let waits = other.mutex("job").unwrap();
        let guard = soon(waits.acquire()).await.unwrap();
        assert!(guard.token() > token, "round {round}");
        guard.release().await.unwrap();
        drop(soon(sticky.acquire()).await.unwrap());
    }
    soon(one.close()).await.unwrap();
    until("nothing is left", async || other.queue("job").await.unwrap().queued == 0).await;
}

/// As if the message had been lost: the server has forgotten that the holder wants a message. Returns how many holders wanted that.
const FORGET_TO_TELL: &str = "
    for _, key in ipairs(redis.call('KEYS', '*:bucket')) do
      local place, forgotten = string.gsub(redis.call('HGET', key, 'job'), '^(%S+ %S+ %S+ %S+ %S+ %S+) 1 ', '%1 0 ')
      redis.call('HSET', key, 'job', place)
      return forgotten
    end";

#[tokio::test]
async fn a_lost_message_keeps_a_sticky_lock_from_no_client_for_long() {
    let server = server(Settings::default());
    let (one, other) = (client(&server.url(), 60_000).await, client(&server.url(), 60_000).await);
    let sticky = one.mutex("job").unwrap().sticky(PATIENCE * 20);
    let guard = soon(sticky.acquire()).await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    until("the holder asks for notifications", async || {
        server.ask(&["EVAL", FORGET_TO_TELL, "0"]).unwrap().number() == Some(1)
    })
    .await;
    let guard = soon(other.mutex("job").unwrap().acquire()).await.unwrap();
    assert!(guard.token() > token);
}

#[tokio::test]
async fn a_layout_that_shows_no_waiters_refuses_sticky_locks() {
    let server = server(Settings::default());
    let client = client(&format!("{}?layout=plain", server.url()), 60_000).await;
    let refused = client.mutex("job").unwrap().sticky(PATIENCE).acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
}
