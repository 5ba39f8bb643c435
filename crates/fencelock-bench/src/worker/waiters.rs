//! The waiters in the queue of a floor, which the server notifies, and the connections of locks by hand.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

/// How long whoever finds a lock without a queue taken waits before it tries again.
const AGAIN: Duration = Duration::from_millis(50);

/// The connections of a service.
const POOL: usize = 64;

/// Connections, of which each statement takes one for itself: the last that is idle, else a new one, up to a limit.
pub(super) struct Pool<C> {
    room: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<C>>>,
}

/// A connection that returns to its pool.
pub(super) struct Lent<C> {
    connection: Option<C>,
    idle: Arc<Mutex<Vec<C>>>,
    _room: OwnedSemaphorePermit,
}

impl<C> Pool<C> {
    /// With a first connection: the only one, or one of a service's.
    pub(super) fn new(first: C, is_service: bool) -> Self {
        let room = Arc::new(Semaphore::new(if is_service { POOL } else { 1 }));
        Self { room, idle: Arc::new(Mutex::new(vec![first])) }
    }

    pub(super) async fn lend(&self, open: impl Future<Output = Result<C>>) -> Result<Lent<C>> {
        let room = Arc::clone(&self.room).acquire_owned().await?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => open.await?,
        };
        Ok(Lent { connection: Some(connection), idle: Arc::clone(&self.idle), _room: room })
    }

    /// Opens a connection more, unless the pool is full: of a service that has run for a while.
    pub(super) async fn warm(&self, open: impl Future<Output = Result<C>>) -> Result<()> {
        if self.idle.lock().unwrap_or_else(PoisonError::into_inner).len() < self.room.available_permits() {
            let connection = open.await?;
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
        Ok(())
    }
}

impl<C> Deref for Lent<C> {
    type Target = C;

    fn deref(&self) -> &C {
        self.connection.as_ref().expect("a connection is there until it is dropped")
    }
}

impl<C> DerefMut for Lent<C> {
    fn deref_mut(&mut self) -> &mut C {
        self.connection.as_mut().expect("a connection is there until it is dropped")
    }
}

impl<C> Drop for Lent<C> {
    fn drop(&mut self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).extend(self.connection.take());
    }
}

/// A lock that is held.
pub(super) struct Held {
    pub(super) place: String,
    /// Nobody can be waiting for it.
    pub(super) alone: bool,
}

#[derive(Clone)]
pub(super) struct Waiters {
    /// Where this process hears whose turn it is.
    pub(super) channel: Arc<str>,
    waiting: Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>,
    queued: Arc<watch::Sender<u64>>,
    last: Arc<AtomicU64>,
}

impl Waiters {
    pub(super) fn new(channel: String) -> Self {
        Self { channel: channel.into(), waiting: Arc::default(), queued: Arc::default(), last: Arc::default() }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<()>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another place, as it stands in the server: the channel and a number.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.channel, self.last.fetch_add(1, Ordering::Relaxed))
    }

    /// Tells the one whose place this is.
    pub(super) fn hear(&self, place: &str) {
        if let Some(next) = self.table().remove(place) {
            let _ = next.send(());
        }
    }

    /// Waits for its turn, unless `had` says that the lock was free.
    pub(super) async fn turn(&self, place: String, had: impl Future<Output = Result<bool>>) -> Result<Held> {
        let (sender, told) = oneshot::channel();
        self.table().insert(place.clone(), sender);
        if had.await? {
            self.table().remove(&place);
        } else {
            self.queued.send_modify(|queued| *queued += 1);
            told.await.context("the connection is gone")?;
        }
        Ok(Held { place, alone: false })
    }

    /// Tries until one had it.
    pub(super) async fn again<F: Future<Output = Result<bool>>>(&self, had: impl Fn() -> F) -> Result<()> {
        let mut is_first = true;
        while !had().await? {
            if std::mem::take(&mut is_first) {
                self.queued.send_modify(|queued| *queued += 1);
            }
            tokio::time::sleep(AGAIN).await;
        }
        Ok(())
    }

    pub(super) fn queued(&self) -> u64 {
        *self.queued.borrow()
    }

    pub(super) async fn until_queued(&self, count: u64) -> Result<()> {
        let mut queued = self.queued.subscribe();
        queued.wait_for(|now| *now >= count).await.context("nobody queues any more")?;
        Ok(())
    }
}
