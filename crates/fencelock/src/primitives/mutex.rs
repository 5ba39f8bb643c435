//! The mutex: at most a single holder at a time.

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
/// A grant lasts until its release, for any time: the client renews it. How soon the lock of a process that died is free is the client's
/// [`ttl`](crate::ClientBuilder::ttl), and not an option of a lock. A holder that acquires the same lock again waits for itself:
/// [`Guard::reenter`] makes another guard.
///
/// Not promised: a process that is paused past its session's ttl cannot know that it lost the lock until it looks. Pass [`Guard::token`] to
/// the resource that the lock protects.
///
/// # Fairness
/// First come, first served by the order in which the store took the arrivals, where
/// [`Capability::order`](crate::capability::Capability) says so.
///
/// # Examples
/// ```
/// use fencelock::{Client, ErrorKind};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
/// # let client = Client::connect("memory:").await?;
/// let nightly = client.mutex("nightly")?.purpose("report of Sunday");
/// let guard = nightly.acquire().await?;
/// assert_eq!(nightly.try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
/// guard.release().await?;
/// nightly.run(async |guard| assert!(guard.token().is_some())).await?;
/// # Ok(()) }
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

    /// Keeps the lock in this client for `keep` (1 ms or more) after each release, unless another client waits: the same client then
    /// acquires it again without a request. For locks that one process acquires over and over. By default nothing is kept.
    ///
    /// - A waiter in another client, or at a lock of this client that is not sticky, ends the keeping. This client releases a kept lock at
    ///   once, and a held one after the present section: within one round trip where [`Capability::waiters`](crate::capability::Capability)
    ///   is [`Waiters::Notified`](crate::capability::Waiters), else when this client looks at the queue next. The client's own tasks count as
    ///   well: [`Mutex::try_acquire`] is refused during another task's section. A try from elsewhere is refused while the lock is kept, and
    ///   notifies no client: a client that only tries never gets a lock in constant use. A client that had to wait for the lock releases it
    ///   after 256 sections, so that several busy clients get equal shares.
    /// - All sticky locks of one name and client are the same lock: their tasks take turns, first come, first served, and one of them waits
    ///   in the store's queue. A task joins that queue by itself 1 s before its limit, or after another task met an outage. The last given
    ///   `keep` counts. [`Mutex::max_waiters`] counts the waiters in the store's queue.
    /// - **All sections under one grant of the store have one fencing token**: no other client held the lock in between. A resource that
    ///   refuses older tokens is safe; a resource that refuses the same token twice is unusable. [`Client::break_grant`] ends that grant,
    ///   in whichever section it is.
    /// - A kept lock is renewed as a held one, and reused only while it is certainly held: after a loss, the client acquires it anew.
    /// - Other clients see this client as the holder while it keeps the lock; the purpose ends in `(sticky, kept for 5s)`, where that fits
    ///   into its 512 bytes. Observers receive each section as a grant, and of the keeping only a failed release. The purpose is the first
    ///   section's.
    /// - The lock of a client that is closed, or dropped, is given up. [`flush`](crate::flush) does not wait for a kept lock.
    ///
    /// An acquire is [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where [`Capability::waiters`](crate::capability::Capability)
    /// is [`Waiters::Unseen`](crate::capability::Waiters): the client could not notice waiters.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
    /// # let client = fencelock::Client::connect("memory:").await?;
    /// let counter = client.mutex("counter")?.sticky(Duration::from_secs(5));
    /// let token = counter.run(async |guard| guard.token()).await?;
    /// // No other client waits: the second section sends no request.
    /// assert_eq!(counter.run(async |guard| guard.token()).await?, token);
    /// # Ok(()) }
    /// ```
    ///
    /// [`Client::break_grant`]: crate::Client::break_grant
    #[must_use]
    pub fn sticky(self, keep: Duration) -> Self {
        Self { lock: self.lock.sticky(keep) }
    }

    /// Acquires the lock, waiting as long as [`Mutex::timeout`] allows.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) after the wait limit, naming the holder;
    /// [`ErrorKind::QueueFull`](crate::ErrorKind::QueueFull), [`ErrorKind::Conflict`](crate::ErrorKind::Conflict),
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for an option that is not valid, and the store's error after the last retry:
    /// [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) after [`Retry::give_up_after`](crate::Retry), 30 s by default, or the wait limit.
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves nothing in the store once clean-up has run in the background.
    #[doc(alias("lock"))]
    pub async fn acquire(&self) -> Result<Guard> {
        self.lock.acquire().await
    }

    /// Acquires the lock, waiting at most `limit`. With zero it sends a single request, as [`Mutex::try_acquire`] does, and never queues; a
    /// taken lock is [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) then.
    ///
    /// # Errors and cancel safety
    /// As [`Mutex::acquire`].
    #[doc(alias("acquire_timeout", "lock_timeout", "try_lock_for"))]
    pub async fn acquire_within(&self, limit: Duration) -> Result<Guard> {
        self.lock.acquire_as(Claim::MUTEX, Wait::For(limit)).await
    }

    /// Acquires the lock if no contender is ahead, and never queues.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`](crate::ErrorKind::Busy) when a contender is ahead, naming the holder; otherwise as [`Mutex::acquire`].
    ///
    /// # Cancel safety
    /// As [`Mutex::acquire`].
    #[doc(alias("try_lock"))]
    pub async fn try_acquire(&self) -> Result<Guard> {
        self.try_within(Duration::MAX).await
    }

    /// As [`Mutex::try_acquire`]; the answer is awaited for `limit` at most.
    pub(crate) async fn try_within(&self, limit: Duration) -> Result<Guard> {
        self.lock.acquire_as(Claim::MUTEX, Wait::No(limit)).await
    }

    pub(crate) fn client(&self) -> &Client {
        &self.lock.client
    }

    /// The mutex with `mark` at the end of its purpose, where the length allows that.
    #[allow(dead_code, reason = "unused without the feature jobs")]
    pub(crate) fn marked(&self, mark: &str) -> Self {
        Self { lock: self.lock.marked(mark) }
    }

    /// Another guard of a hold of this mutex.
    pub(crate) fn guard_of(&self, hold: &Arc<Hold>) -> Result<Guard> {
        Guard::share(hold, self.lock.client.lifeline())
    }

    /// Acquires the lock, runs `body` under it, and releases it, however `body` ends. After `body` has completed, the lock is released
    /// before this returns, unless the store did not confirm that within the request deadline.
    ///
    /// Returns the output of `body`. A body that can fail returns a `Result` inside of it, as with `tokio::time::timeout`: `??`.
    ///
    /// ```
    /// # async fn charge() -> Result<u32, std::io::Error> { Ok(7) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = fencelock::Client::connect("memory:").await?;
    /// let paid = client.mutex("order/7")?.run(async |_guard| charge().await).await??;
    /// # assert_eq!(paid, 7);
    /// # Ok(()) }
    /// ```
    ///
    /// When the lock is lost, or no longer valid (the safety margin is reached), `body` is dropped at its next await and the result is
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost). That stops no blocking code, no task that `body` spawned (give it
    /// [`Guard::lost_token`]) and no request already sent (pass [`Guard::token`] to the resource).
    ///
    /// # Errors
    /// As [`Mutex::acquire`]; [`ErrorKind::Lost`](crate::ErrorKind::Lost). A failed release is not reported here, but retried.
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
