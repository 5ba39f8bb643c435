//! The mutex: one holder at a time.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::Guard;
use super::lock::{Lock, options};
use crate::client::Client;
use crate::engine::acquire::Wait;
use crate::engine::hold::Hold;
use crate::error::Result;
use crate::name::Name;
use crate::queue::Claim;

/// A mutex over all processes that use the same store and name. Cheap to clone; holds nothing until acquired.
///
/// What it does *not* promise: a process that is paused past its session's ttl cannot know that it lost the lock until
/// it looks. Pass [`Guard::token`] to whatever the lock protects.
///
/// # Fairness
/// First come, first served by the order in which the store took the arrivals, where
/// [`Capability::order`](crate::capability::Capability) says so.
///
/// # Examples
/// ```
/// use fencelock::{Client, ErrorKind};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = Client::connect("memory:").await?;
/// let nightly = client.mutex("nightly")?.purpose("report of Sunday");
/// let guard = nightly.acquire().await?;
/// assert_eq!(nightly.try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
/// guard.release().await?;
/// nightly.run(|guard| async move { assert!(guard.token().is_some()) }).await?;
/// # Ok::<(), fencelock::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Mutex {
    lock: Lock,
}

impl Mutex {
    pub(crate) fn new(client: Client, name: Name) -> Result<Self> {
        Ok(Self { lock: Lock::new(client, name, Claim::MUTEX)? })
    }

    options!();

    /// Acquires the lock, waiting as long as [`Mutex::timeout`] allows.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) after the wait limit, naming the holder; [`ErrorKind::QueueFull`](crate::ErrorKind::QueueFull),
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict), [`ErrorKind::Config`](crate::ErrorKind::Config) for an option that is not valid, and whatever the store says once
    /// retrying is over.
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves nothing in the store once clean-up has run in the background.
    pub async fn acquire(&self) -> Result<Guard> {
        self.lock.acquire().await
    }

    /// Acquires the lock, waiting at most `limit`. With zero it asks the store once, as [`Mutex::try_acquire`] does, and
    /// never queues; that it was taken is [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) then.
    ///
    /// # Errors
    /// As [`Mutex::acquire`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    pub async fn acquire_within(&self, limit: Duration) -> Result<Guard> {
        self.lock.acquire_as(Claim::MUTEX, Wait::For(limit)).await
    }

    /// Acquires the lock if nobody is ahead, and never queues.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`](crate::ErrorKind::Busy) when somebody is ahead, naming the holder; otherwise as [`Mutex::acquire`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    pub async fn try_acquire(&self) -> Result<Guard> {
        self.lock.acquire_as(Claim::MUTEX, Wait::No).await
    }

    pub(crate) fn client(&self) -> &Client {
        &self.lock.client
    }

    /// One more guard of a hold of this mutex.
    pub(crate) fn guard_of(&self, hold: &Arc<Hold>) -> Result<Guard> {
        Guard::share(hold, self.lock.client.lifeline())
    }

    /// Acquires the lock, runs `body` under it, and releases it, however `body` ends. When this returns after `body` came to
    /// its end, the lock has been given back, unless the store did not confirm that within the request deadline.
    ///
    /// The result is what `body` came to. A body that can fail gives a `Result` inside of it, as `tokio::time::timeout` does: `??`.
    ///
    /// ```
    /// # async fn charge() -> Result<u32, std::io::Error> { Ok(7) }
    /// # async fn f(client: &fencelock::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let paid = client.mutex("order/7")?.run(async |_guard| charge().await).await??;
    /// # assert_eq!(paid, 7); Ok(()) }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # f(&fencelock::Client::connect("memory:").await?).await })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// When the lock is lost, or not valid any more (the safety margin is reached), `body` is dropped at its next await and
    /// the result is [`ErrorKind::Lost`](crate::ErrorKind::Lost). That cannot stop blocking code or requests already sent: pass the guard's
    /// token to the resource.
    ///
    /// # Errors
    /// As [`Mutex::acquire`]; [`ErrorKind::Lost`](crate::ErrorKind::Lost). A failed release is not
    /// reported here: it goes on in the background.
    ///
    /// # Cancel safety
    /// Dropping the future drops `body` and releases the lock in the background.
    pub async fn run<T, F, Fut>(&self, body: F) -> Result<T>
    where
        F: FnOnce(Guard) -> Fut,
        Fut: Future<Output = T>,
    {
        self.acquire().await?.run(body).await
    }
}
