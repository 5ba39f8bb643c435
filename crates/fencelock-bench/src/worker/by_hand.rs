//! Locks by hand: a floor whose server notifies its waiters, and locks that are tried again and again.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::workload::{Lock, Take};
use crate::contestant::Contestant;

/// The time between two tries for a lock without a queue.
const AGAIN: Duration = Duration::from_millis(50);

/// The connections of a service.
const POOL: usize = 64;

/// A pool of connections. Each statement takes one: the last idle one, else a new one, up to a limit.
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

    /// Opens one more connection, unless the pool is full, as in a service that has run for a while.
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
    place: String,
    /// The lock has no waiter behind it.
    alone: bool,
}

/// The requests of a lock by hand: whether each had or gave back the lock.
pub(super) trait Requests: Send + Sync + 'static {
    /// A try.
    fn take(&self, name: &str, place: &str) -> impl Future<Output = Result<bool>> + Send;

    fn free(&self, name: &str, place: &str) -> impl Future<Output = Result<bool>> + Send;

    /// Takes the lock or a place in its queue.
    fn queue(&self, name: &str, place: &str) -> impl Future<Output = Result<bool>> + Send;

    /// Grants the lock to the next waiter.
    fn pass(&self, name: &str, place: &str) -> impl Future<Output = Result<bool>> + Send;

    /// Makes the rows or keys that a lock of that name needs before its first use.
    fn prepare(&self, _name: &str) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }
}

/// A lock of some requests.
pub(super) struct ByHand<R> {
    contestant: Contestant,
    requests: Arc<R>,
    waiters: Waiters,
    prefix: Arc<str>,
    name: Arc<str>,
}

impl<R> Clone for ByHand<R> {
    fn clone(&self) -> Self {
        let (prefix, name) = (Arc::clone(&self.prefix), Arc::clone(&self.name));
        let (requests, waiters) = (Arc::clone(&self.requests), self.waiters.clone());
        Self { contestant: self.contestant, requests, waiters, prefix, name }
    }
}

impl<R: Requests> ByHand<R> {
    pub(super) fn new(contestant: Contestant, requests: R, waiters: Waiters, prefix: &str) -> Self {
        let name = format!("{prefix} bench").into();
        Self { contestant, requests: Arc::new(requests), waiters, prefix: prefix.into(), name }
    }

    /// Tries until one try has the lock.
    async fn again(&self, place: &str) -> Result<()> {
        let mut is_first = true;
        while !self.requests.take(&self.name, place).await? {
            if std::mem::take(&mut is_first) {
                self.waiters.queued.fetch_add(1, Ordering::Relaxed);
            }
            tokio::time::sleep(AGAIN).await;
        }
        Ok(())
    }
}

impl<R: Requests> Take for ByHand<R> {
    type Held = Held;

    async fn acquire(&self) -> Result<Held> {
        let place = self.waiters.place();
        if !matches!(self.contestant, Contestant::SqlFloor | Contestant::RedisFloor) {
            self.again(&place).await?;
            return Ok(Held { place, alone: true });
        }
        let (sender, granted) = oneshot::channel();
        self.waiters.table().insert(place.clone(), sender);
        if self.requests.queue(&self.name, &place).await? {
            self.waiters.table().remove(&place);
        } else {
            self.waiters.queued.fetch_add(1, Ordering::Relaxed);
            granted.await.context("the connection is gone")?;
        }
        Ok(Held { place, alone: false })
    }

    async fn release(&self, Held { place, alone }: Held) -> Result<()> {
        let is_ours = match alone {
            true => self.requests.free(&self.name, &place).await?,
            false => self.requests.pass(&self.name, &place).await?,
        };
        ensure!(is_ours, "the lock was lost");
        Ok(())
    }
}

impl<R: Requests> Lock for ByHand<R> {
    fn named(&self, name: &str) -> Result<Self> {
        Ok(Self { name: format!("{} {name}", self.prefix).into(), ..self.clone() })
    }

    async fn acquire_free(&self) -> Result<Held> {
        let place = self.waiters.place();
        ensure!(self.requests.take(&self.name, &place).await?, "another client has the lock");
        Ok(Held { place, alone: true })
    }

    async fn queued(&self) -> Result<u64> {
        Ok(self.waiters.queued.load(Ordering::Relaxed))
    }

    async fn prepare(&self) -> Result<()> {
        self.requests.prepare(&self.name).await
    }
}

/// The waiters of a process.
#[derive(Clone)]
pub(super) struct Waiters {
    /// The channel on which the server notifies this process.
    pub(super) channel: Arc<str>,
    waiting: Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>,
    queued: Arc<AtomicU64>,
    last: Arc<AtomicU64>,
}

impl Waiters {
    pub(super) fn new(channel: String) -> Self {
        Self { channel: channel.into(), waiting: Arc::default(), queued: Arc::default(), last: Arc::default() }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<()>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another place, as the server writes it: the channel and a number.
    fn place(&self) -> String {
        format!("{}:{}", self.channel, self.last.fetch_add(1, Ordering::Relaxed))
    }

    /// Wakes the waiter of a place.
    pub(super) fn grant(&self, place: &str) {
        if let Some(next) = self.table().remove(place) {
            let _ = next.send(());
        }
    }
}
