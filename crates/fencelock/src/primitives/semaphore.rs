//! The semaphore: up to `capacity` permits at a time.

use std::future::Future;
use std::time::Duration;

use super::Guard;
use super::kind::Permits;
use super::lock::{Lock, options};
use crate::client::Client;
use crate::engine::acquire::Wait;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::queue::Claim;

/// Held permits of a semaphore.
pub type PermitGuard = Guard<Permits>;

/// A semaphore over all processes that use the same store and name: its holders have up to `capacity` permits together.
/// Cheap to clone; holds nothing until acquired. The permits of a dead holder are released.
///
/// The capacity is agreed in the store: while any contender is queued, a request with another capacity is refused, with
/// [`ErrorKind::Conflict`] and the claim of that contender. An empty queue does *not* remember its capacity; so all contenders must leave
/// before you change it. A capacity of 1 is a [`Mutex`](crate::Mutex), and shares its queue.
///
/// Tokens do not order permits that are held together; see [`Guard::token`].
///
/// # Fairness
/// First come, first served, where [`Capability::order`](crate::capability::Capability) says so: a request for few permits does not pass a
/// waiter for many.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
/// # let client = fencelock::Client::connect("memory:").await?;
/// let seats = client.semaphore("seats", 3)?;
/// let one = seats.acquire().await?;
/// let two = seats.clone().permits(2).acquire().await?;
/// assert!(seats.try_acquire().await.is_err());
/// # drop((one, two));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Semaphore {
    lock: Lock,
}

impl Semaphore {
    pub(crate) fn new(client: Client, name: Name, capacity: u32) -> Result<Self> {
        // The largest number is the capacity of read-write locks.
        if capacity == 0 || capacity == Claim::UNBOUNDED {
            let message = "a semaphore has 1 to 4294967294 permits";
            return Err(Error::new(ErrorKind::Config, "claim", message).with("name", name).with("capacity", capacity));
        }
        Ok(Self { lock: Lock::new(client, name, Claim::new(1, capacity)?)? })
    }

    /// The number of permits of one acquire: 1, the default, up to the capacity.
    #[must_use]
    #[doc(alias("acquire_many"))]
    pub fn permits(self, count: u32) -> Self {
        Self { lock: self.lock.permits(count) }
    }

    options!();

    /// The number of all permits, held or free.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.lock.wish.claim.capacity()
    }

    /// Acquires the permits, waiting as long as [`Semaphore::timeout`] allows.
    ///
    /// # Errors
    /// As [`Mutex::acquire`](crate::Mutex::acquire); [`ErrorKind::Conflict`] when a contender queues with another capacity.
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`](crate::Mutex::acquire).
    pub async fn acquire(&self) -> Result<PermitGuard> {
        self.lock.acquire().await
    }

    /// Acquires the permits, waiting at most `limit`.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`](crate::Mutex::acquire).
    pub async fn acquire_within(&self, limit: Duration) -> Result<PermitGuard> {
        self.lock.acquire_as(self.lock.wish.claim, Wait::For(limit)).await
    }

    /// Acquires the permits if they are free and no contender waits, and never queues.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] when they are not, naming a holder; otherwise as [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`](crate::Mutex::acquire).
    pub async fn try_acquire(&self) -> Result<PermitGuard> {
        self.lock.acquire_as(self.lock.wish.claim, Wait::No(Duration::MAX)).await
    }

    /// Acquires the permits, runs `body` under them, and releases them; see [`Mutex::run`](crate::Mutex::run).
    ///
    /// # Errors
    /// As [`Mutex::run`](crate::Mutex::run).
    ///
    /// # Cancel safety
    /// Dropping the future drops `body` and releases the permits in the background.
    pub async fn run<T, F, Fut>(&self, body: F) -> Result<T>
    where
        F: FnOnce(PermitGuard) -> Fut,
        Fut: Future<Output = T>,
    {
        self.acquire().await?.run(body).await
    }
}
