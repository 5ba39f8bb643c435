//! Helpers of these tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fencelock::{Client, Error, Guard, Name};
use fencelock_testbed::mysql::{KIND, Server, Settings};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use tokio::task::{JoinHandle, JoinSet};

/// Long enough for everything that is waited for, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(180);

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

/// A database of this test's own on the server that all share.
pub(crate) fn database() -> String {
    let shared = KIND.shared();
    format!("mysql://fencelock:secret@{}{}", shared.address(), shared.namespace())
}

/// A URL with these options, too.
pub(crate) fn with(url: &str, options: &str) -> String {
    format!("{url}{}{options}", if url.contains('?') { '&' } else { '?' })
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

/// Why this URL can never be used.
pub(crate) async fn refused(url: &str) -> Error {
    soon(async {
        loop {
            match Client::connect(url).await {
                Err(error) if error.is_retryable() => tokio::time::sleep(Duration::from_millis(2)).await,
                connected => return connected.expect_err("it can be used"),
            }
        }
    })
    .await
}

/// A connection of a user's own.
pub(crate) async fn connection(url: &str) -> Conn {
    Conn::new(Opts::from_url(&format!("{url}?prefer_socket=false")).unwrap()).await.unwrap()
}

/// The SQLSTATE of the server's refusal.
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

/// A look whose connection ends under way is an error that another look helps with.
pub(crate) async fn until_queued(client: &Client, name: &str, count: usize) {
    let name = Name::new(name).unwrap();
    let is_so = async || match client.queue(&name).await {
        Err(error) if error.is_retryable() => false,
        queue => queue.unwrap().queued == count,
    };
    until(&format!("{count} queue"), is_so).await;
}

/// The number of transactions with this condition. The server refreshes its list only after a tenth of a second without a query: a
/// client that asks all the time gets the same list for ever.
pub(crate) async fn transactions(admin: &mut Conn, condition: &str) -> u64 {
    tokio::time::sleep(Duration::from_millis(200)).await;
    let count = format!("SELECT COUNT(*) FROM information_schema.innodb_trx WHERE {condition}");
    admin.query_first(count).await.unwrap().unwrap()
}

/// Ends so many requests of clients in the midst of their cycles (KILL QUERY, and KILL CONNECTION for each twentieth), which may end a
/// procedure between two of its statements, where it runs no handler. No lock is lost, no two clients hold it at once, all errors are
/// retryable, and no transaction stays open.
pub(crate) async fn end_requests(clients: usize, names: usize, kills: usize) {
    let server = Server::start(Settings::default()).unwrap();
    let (one, other) = (client(&server.url(), 60_000).await, client(&server.url(), 60_000).await);
    let kept = acquire(&one, "kept").await;
    let inside: Arc<Vec<AtomicUsize>> = Arc::new((0..names).map(|_| AtomicUsize::new(0)).collect());
    let mut cycles = JoinSet::new();
    for number in 0..clients {
        let mutex = client(&server.url(), 60_000).await.mutex(format!("job/{}", number % names)).unwrap();
        let inside = Arc::clone(&inside);
        cycles.spawn(async move {
            loop {
                let guard = match mutex.acquire().await {
                    Ok(guard) => guard,
                    Err(error) if error.is_retryable() => continue,
                    Err(error) => return error.to_string(),
                };
                if inside[number % names].fetch_add(1, Ordering::SeqCst) > 0 {
                    return "two holders".to_owned();
                }
                tokio::task::yield_now().await;
                inside[number % names].fetch_sub(1, Ordering::SeqCst);
                // The client repeats a failed release in the background.
                if let Err(error) = guard.release().await
                    && !error.is_retryable()
                {
                    return error.to_string();
                }
            }
        });
    }
    let mut admin = connection(&format!("mysql://root@{}/fencelock", server.address())).await;
    let busy = "SELECT id FROM information_schema.processlist WHERE user = 'fencelock' AND command <> 'Sleep' AND state <> 'User lock'";
    let mut ended = 0;
    while ended < kills {
        for id in admin.query::<u64, _>(busy).await.unwrap() {
            let what = if ended % 20 == 19 { "CONNECTION" } else { "QUERY" };
            ended += usize::from(admin.query_drop(format!("KILL {what} {id}")).await.is_ok());
        }
        let wrong = cycles.try_join_next();
        assert!(wrong.is_none(), "after {ended}: {wrong:?}");
        tokio::task::yield_now().await;
    }
    cycles.shutdown().await;
    until("no transaction is open", async || transactions(&mut admin, "TRUE").await == 0).await;
    kept.check().unwrap();
    for name in 0..names {
        acquire(&other, &format!("job/{name}")).await.release().await.unwrap();
    }
    soon(kept.release()).await.unwrap();
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
