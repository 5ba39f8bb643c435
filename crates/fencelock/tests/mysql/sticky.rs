//! Sticky locks on real servers.

use std::time::Duration;

use fencelock_testbed::mysql::{Server, Settings};
use mysql_async::prelude::Queryable;

use crate::lab::{acquire, client, connection, database, soon, until};

#[path = "../sticky/mod.rs"]
mod any;

#[tokio::test]
async fn a_sticky_lock_is_released_to_a_waiter_of_another_client() {
    let url = database();
    any::is_released_to_a_waiter_of_another_client(&client(&url, 60_000).await, &client(&url, 60_000).await).await;
}

#[tokio::test]
async fn a_kept_lock_stays_with_its_client_however_often_the_client_looks_for_waiters() {
    let server = Server::start(Settings::default()).unwrap();
    let (one, other) = (client(&server.url(), 60_000).await, client(&server.url(), 60_000).await);
    let kept = one.mutex("kept").unwrap().sticky(Duration::from_secs(3600));
    soon(kept.acquire()).await.unwrap().release().await.unwrap();
    drop(acquire(&other, "another").await);
    let mut user = connection(&server.url()).await;
    let mut calls = async || {
        let status: Option<(String, u64)> =
            user.query_first("SHOW GLOBAL STATUS LIKE 'Com_call_procedure'").await.unwrap();
        status.unwrap().1
    };
    let before = calls().await;
    while calls().await < before + 30 {
        tokio::task::yield_now().await;
    }
    assert_eq!(soon(other.queue("kept")).await.unwrap().contenders.len(), 1);
    until("the other name is free", async || other.mutex("another").unwrap().try_acquire().await.is_ok()).await;
}
