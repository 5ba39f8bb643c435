//! What these tests share.

use std::time::{Duration, Instant};

use fencelock::{Client, Error, Guard, Name};
use fencelock_testbed::mysql::KIND;
use mysql_async::{Conn, Opts};
use tokio::task::JoinHandle;

/// Long enough for everything that is waited for, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(180);

/// Waits for something that has to come.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it has to come")
}

/// Looks until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < PATIENCE, "it never came that {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A database of this test's own on the server that all share.
pub(crate) fn database() -> String {
    let shared = KIND.shared();
    format!("mysql://fencelock:secret@{}{}", shared.address(), shared.namespace())
}

/// A client of sessions that live for so many milliseconds.
pub(crate) async fn client(url: &str, ttl_ms: u64) -> Client {
    soon(async {
        loop {
            match Client::connect(&format!("{url}?ttl_ms={ttl_ms}")).await {
                Err(error) if error.is_retryable() => tokio::time::sleep(Duration::from_millis(2)).await,
                connected => return connected.unwrap(),
            }
        }
    })
    .await
}

/// A connection of a user's own.
pub(crate) async fn connection(url: &str) -> Conn {
    Conn::new(Opts::from_url(&format!("{url}?prefer_socket=false")).unwrap()).await.unwrap()
}

/// The SQLSTATE of what the server refused.
pub(crate) fn state<T: std::fmt::Debug>(answer: mysql_async::Result<T>) -> String {
    match answer.unwrap_err() {
        mysql_async::Error::Server(error) => error.state,
        error => panic!("{error}"),
    }
}

pub(crate) async fn acquire(client: &Client, name: &str) -> Guard {
    soon(client.mutex(name).unwrap().acquire()).await.unwrap()
}

pub(crate) fn acquiring(client: &Client, name: &str) -> JoinHandle<Result<Guard, Error>> {
    let mutex = client.mutex(name).unwrap();
    tokio::spawn(async move { mutex.acquire().await })
}

pub(crate) async fn until_queued(client: &Client, name: &str, count: usize) {
    let name = Name::new(name).unwrap();
    until(&format!("{count} queue"), async || client.queue(&name).await.unwrap().queued == count).await;
}
