//! Helpers of these tests.

use std::time::{Duration, Instant};

use fencelock::{Client, Error, Guard, Name};
use fencelock_testbed::postgres::{KIND, Server, Settings};
use tokio::task::JoinHandle;
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

/// Long enough for everything that is waited for, on a busy machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// The option of a client that soon renews a lock of a long ttl: a lock of a short ttl is lost on a machine that stands still.
pub(crate) const OFTEN: &str = "renew_interval_ms=50";

/// Waits for something that has to come.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it has to come")
}

/// Repeats `is_so` until it holds.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < PATIENCE, "it never came that {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A database of this test's own on the server that all share: its URL, and what `psql` takes.
pub(crate) fn database() -> (String, String) {
    let shared = KIND.shared();
    let name = shared.namespace().trim_start_matches('/').to_owned();
    (format!("postgres://fencelock:secret@{}/{name}", shared.address()), name)
}

/// A server of this test's own.
pub(crate) fn server(settings: Settings) -> Server {
    Server::start(settings).unwrap()
}

/// A client of sessions that live for so many milliseconds.
pub(crate) async fn client(url: &str, ttl_ms: u64) -> Client {
    soon(async {
        loop {
            match Client::connect(&with(url, &format!("ttl_ms={ttl_ms}"))).await {
                Err(error) if error.is_retryable() => tokio::time::sleep(Duration::from_millis(2)).await,
                connected => return connected.unwrap(),
            }
        }
    })
    .await
}

/// Far longer than anything here is waited for, so that no lease ends.
pub(crate) const LONG: u64 = 3_600_000;
const _: () = assert!(LONG > 10 * PATIENCE.as_millis() as u64);

pub(crate) fn with(url: &str, options: &str) -> String {
    format!("{url}{}{options}", if url.contains('?') { '&' } else { '?' })
}

pub(crate) async fn acquire(client: &Client, name: &str) -> Guard {
    soon(client.mutex(name).unwrap().acquire()).await.unwrap()
}

pub(crate) fn acquiring(client: &Client, name: &str) -> JoinHandle<Result<Guard, Error>> {
    let mutex = client.mutex(name).unwrap();
    tokio::spawn(async move { mutex.acquire().await })
}

pub(crate) async fn queued(client: &Client, name: &str) -> usize {
    client.queue(&Name::new(name).unwrap()).await.unwrap().queued
}

/// A look whose connection ends under way is an error that another look helps with.
pub(crate) async fn until_queued(client: &Client, name: &str, count: usize) {
    let name = Name::new(name).unwrap();
    let is_so = async || match client.queue(&name).await {
        Err(error) if error.is_retryable() => false,
        queue => queue.unwrap().queued == count,
    };
    until(&format!("{count} queue"), is_so).await;
}

/// Why this URL can never be used.
pub(crate) async fn refused(url: &str) -> Error {
    soon(async {
        loop {
            match Client::connect(url).await {
                Err(error) if error.is_retryable() => tokio::time::sleep(Duration::from_millis(2)).await,
                connected => return connected.expect_err("the URL can be used"),
            }
        }
    })
    .await
}

/// A connection of a user whose transactions may be idle for longer than any test waits. `hold` limits others to a minute.
pub(crate) async fn patient_user(url: &str) -> tokio_postgres::Client {
    connection(&with(url, "options=-c%20idle_in_transaction_session_timeout%3D1h")).await
}

/// The settings of clients' connections, without which the functions that requests call refuse.
pub(crate) const AS_CLIENTS: &str = "SET search_path = pg_catalog, pg_temp; SET client_min_messages = warning";

/// A connection of a user's own.
pub(crate) async fn connection(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The SQLSTATE of the server's refusal.
pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, tokio_postgres::Error>) -> String {
    result.unwrap_err().code().map(SqlState::code).unwrap_or_default().to_owned()
}

/// The errors of a try, and of a short wait, for a lock that is not granted. On a busy machine, an error may come before the store said why.
pub(crate) async fn refusals(client: &Client, name: &str, part: &str) -> [String; 2] {
    let (mutex, limit) = (client.mutex(name).unwrap(), Duration::from_millis(300));
    let mut said = [String::new(), String::new()];
    until(&format!("both errors say {part:?}"), async || {
        let limited = soon(mutex.acquire_within(limit)).await;
        said = [mutex.try_acquire().await, limited].map(|refused| refused.unwrap_err().to_string());
        said.iter().all(|said| said.contains(part))
    })
    .await;
    said
}
