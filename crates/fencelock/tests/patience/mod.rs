//! Patience with servers on a busy machine, and clients of ours, for tests on any server.
#![allow(dead_code, reason = "each store takes the helpers that its tests need")]

use std::time::{Duration, Instant};

use fencelock::{Client, Error, Guard, Name, Outcome};
use tokio::task::JoinHandle;

/// Longer than any wait of a test, on a busy machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// The option of a client that soon renews a lock of a long ttl: a lock of a short ttl is lost on a machine that stands still.
pub(crate) const OFTEN: &str = "renew_interval_ms=50";

/// The option of a client whose release waits for a transaction of the user, and does not fail on a machine that stands still.
pub(crate) const PATIENT: &str = "request_deadline_ms=170000";

/// Waits for a future that must complete.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it has to come")
}

/// Between two looks of a loop that waits for a state.
pub(crate) async fn pause() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

/// Repeats `is_so` until it holds.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < PATIENCE, "it never came that {what}");
        pause().await;
    }
}

/// A URL with these options, too.
pub(crate) fn with(url: &str, options: &str) -> String {
    format!("{url}{}{options}", if url.contains('?') { '&' } else { '?' })
}

pub(crate) fn with_ttl(url: &str, ttl_ms: u64) -> String {
    with(url, &format!("ttl_ms={ttl_ms}"))
}

/// Connects until that succeeds, or fails with an error that no retry can help: a busy machine can take longer than a short ttl allows.
async fn connected(url: &str) -> Result<Client, Error> {
    soon(async {
        loop {
            match Client::connect(url).await {
                Err(error) if error.is_retryable() => pause().await,
                connected => return connected,
            }
        }
    })
    .await
}

/// Makes or looks at a schema, once more while a busy server does not take the connection in time.
pub(crate) async fn migrated<T>(migrate: impl AsyncFn() -> Result<T, Error>) -> T {
    soon(async {
        loop {
            match migrate().await {
                Err(error) if error.is_retryable() && error.outcome() == Outcome::NotApplied => pause().await,
                migrated => return migrated.unwrap(),
            }
        }
    })
    .await
}

/// A client with a session of this ttl.
pub(crate) async fn client(url: &str, ttl_ms: u64) -> Client {
    connected(&with_ttl(url, ttl_ms)).await.unwrap()
}

/// Why this URL can never be used.
pub(crate) async fn refused(url: &str) -> Error {
    connected(url).await.expect_err("the URL can be used")
}

/// The error of a connect that says `part`, whether another try may help or not. A busy server can answer too late to give its reason.
pub(crate) async fn refused_because(url: &str, part: &str) -> Error {
    soon(async {
        loop {
            match Client::connect(url).await {
                Err(error) if error.to_string().contains(part) => return error,
                Err(error) if error.is_retryable() => pause().await,
                connected => panic!("a connect to be refused with {part:?}: {connected:?}"),
            }
        }
    })
    .await
}

pub(crate) async fn acquire(client: &Client, name: &str) -> Guard {
    soon(client.mutex(name).unwrap().acquire()).await.unwrap()
}

/// Acquires in the background.
pub(crate) fn acquiring(client: &Client, name: &str) -> JoinHandle<Result<Guard, Error>> {
    let mutex = client.mutex(name).unwrap();
    tokio::spawn(async move { mutex.acquire().await })
}

/// The guard of an acquire in the background.
pub(crate) async fn acquired(task: JoinHandle<Result<Guard, Error>>) -> Guard {
    soon(task).await.unwrap().unwrap()
}

/// The length of the queue of `name`. The look is repeated while the server cannot answer.
pub(crate) async fn queued(client: &Client, name: &str) -> usize {
    let (name, start) = (Name::new(name).unwrap(), Instant::now());
    loop {
        match client.queue(&name).await {
            Ok(queue) => return queue.queued,
            Err(error) if error.is_retryable() && start.elapsed() < PATIENCE => {}
            Err(error) => panic!("looking at the queue: {error}"),
        }
    }
}

/// Waits until the queue of `name` has `count` contenders.
pub(crate) async fn until_queued(client: &Client, name: &str, count: usize) {
    until(&format!("{count} queue for {name}"), async || queued(client, name).await == count).await;
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
