//! Helpers of these tests: clients of ours, ways to break the server under them, and patience.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fencelock::observe::{Event, Observer};
use fencelock::{Client, Error, Guard, Loss};
use fencelock_testbed::redis::{Server, Settings};

pub(crate) use crate::patience::*;

/// A server of this test's own.
pub(crate) fn server(settings: Settings) -> Server {
    Server::start(settings).unwrap()
}

/// Connects, or says why not, on a busy machine too.
pub(crate) async fn patient(url: &str) -> Result<Client, Error> {
    Client::builder().connect_timeout(PATIENCE).connect(url).await
}

/// Acquires and holds with a new client, or returns an error that no retry can help.
pub(crate) async fn taken(url: &str) -> Result<(Client, Guard), Error> {
    let mut last = None;
    until("another try helps no more", async || {
        let taken = taken_within(url, PATIENCE).await;
        let passes = taken.as_ref().is_err_and(Error::is_retryable);
        last = Some(taken);
        !passes
    })
    .await;
    last.unwrap()
}

async fn taken_within(url: &str, limit: Duration) -> Result<(Client, Guard), Error> {
    let client = Client::connect(url).await?;
    let guard = client.mutex("job")?.acquire_within(limit).await?;
    Ok((client, guard))
}

/// The error of an acquire that must fail.
pub(crate) async fn refused(url: &str) -> Error {
    refused_within(url, Duration::from_secs(10)).await
}

/// The error of an acquire that must fail within `limit`, for which the client waits.
pub(crate) async fn refused_within(url: &str, limit: Duration) -> Error {
    match soon(taken_within(url, limit)).await {
        Ok(_) => panic!("a lock was granted by {url}"),
        Err(error) => error,
    }
}

/// Keeps the server busy with a script of another client until [`Server::heal`].
pub(crate) fn busy(server: &Server) {
    server.hands().unwrap().send(&["EVAL", "while true do end", "0"]).unwrap();
}

/// Remembers what happened to places.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) requeued: Mutex<Vec<Loss>>,
    pub(crate) retried: Mutex<Vec<String>>,
    pub(crate) lost: Mutex<Vec<Loss>>,
}

impl Observer for Seen {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Requeued { cause, .. } => self.requeued.lock().unwrap().push(*cause),
            Event::Retried { error, .. } => self.retried.lock().unwrap().push(error.to_string()),
            Event::SessionLost { cause, .. } => self.lost.lock().unwrap().push(*cause),
            _ => {}
        }
    }
}

/// A client of ours that remembers.
pub(crate) async fn observed(url: &str, ttl_ms: u64) -> (Client, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let (url, start) = (with_ttl(url, ttl_ms), Instant::now());
    loop {
        match Client::builder().observer(Arc::clone(&seen) as Arc<dyn Observer>).connect(&url).await {
            Err(error) if error.is_retryable() && start.elapsed() < PATIENCE => {}
            connected => return (connected.unwrap(), seen),
        }
    }
}

/// Waits for a lock that another program holds, until the wait is long enough to read who has it.
pub(crate) async fn until_waits_in_vain(client: &Client, name: &str) {
    let (mutex, mut limit) = (client.mutex(name).unwrap(), Duration::from_millis(500));
    until("a wait ends because the lock is held", async || {
        let error = soon(mutex.acquire_within(limit)).await.expect_err("another program holds the lock");
        limit *= 2;
        assert!(error.is_contention() || error.is_retryable(), "{error}");
        error.is_contention()
    })
    .await;
}
