//! A server with few connections: holders reconnect before clients that only want a lock.

use std::time::Duration;

use fencelock::{Client, Guard};
use fencelock_testbed::postgres::Settings;

use super::lab::{refused_because, server, soon, with};

/// The server accepts this many connections: two for the holders, and three more.
const LIMIT: usize = 5;
/// Connections that the server reserves for its superuser.
const RESERVED: usize = 3;
const TTL: Duration = Duration::from_secs(20);

async fn held(url: &str, name: &str) -> (Client, Guard) {
    let client = Client::builder().connect_timeout(TTL).connect(url).await.unwrap();
    let guard = client.mutex(name).unwrap().acquire().await.unwrap();
    (client, guard)
}

#[tokio::test]
async fn after_a_restart_two_holders_get_the_few_connections_before_eight_new_clients() {
    let limits = format!("max_connections = {}\nsuperuser_reserved_connections = {RESERVED}", LIMIT + RESERVED);
    let own = server(Settings::default().with(&limits));
    let url = with(&own.url(), &format!("ttl_ms={}", TTL.as_millis()));
    let holders = [held(&url, "one").await, held(&url, "two").await];
    own.kill();
    let (got_in, mut newcomers) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..8 {
        let (url, got_in) = (url.clone(), got_in.clone());
        tokio::spawn(async move {
            let client = Client::builder().connect_timeout(TTL * 10).connect(&url).await;
            let _ = got_in.send(client);
        });
    }
    // The pauses of the new clients have grown meanwhile.
    tokio::time::sleep(Duration::from_secs(8)).await;
    own.restart().unwrap();
    let mut inside = Vec::new();
    while inside.len() < LIMIT - holders.len() {
        inside.push(soon(newcomers.recv()).await.unwrap().unwrap());
    }
    // A holder that has not reconnected by the end of this pause loses its lock.
    tokio::time::sleep(TTL).await;
    for (_, guard) in &holders {
        guard.check().unwrap();
    }
    assert!(refused_because(&url, "max_connections").await.is_retryable());
}
