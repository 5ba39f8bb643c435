//! The read-write lock: many readers, or one writer.

use std::time::Duration;

use super::kind::{Reading, Writing};
use super::lock::{Lock, options};
use super::{Guard, GuardError};
use crate::client::Client;
use crate::engine::acquire::Wait;
use crate::error::Result;
use crate::name::Name;
use crate::queue::Claim;

/// A lock held for reading.
pub type ReadGuard = Guard<Reading>;

/// A lock held for writing.
pub type WriteGuard = Guard<Writing>;

/// A read-write lock over all processes that use the same store and name. Cheap to clone; holds nothing until acquired.
///
/// A write guard may become a read guard in its place ([`WriteGuard::downgrade`]). The other way is *not* offered: two readers that both
/// waited for the other to leave would wait for ever, and waiters behind a reader have counted on its weight. Release, acquire it for
/// writing, and read again. Many readers that do so at once become writers one after the other: a writer that finds the work done should
/// release its guard, because a downgraded guard blocks the next writer.
///
/// Only a writer's token rises; see [`Guard::token`]. Work that ends by itself when the lock is lost goes into [`Guard::run`]:
/// `page.read().await?.run(async |_| …).await?`.
///
/// # Fairness
/// First come, first served between readers and writers, where [`Capability::order`](crate::capability::Capability) says so: a reader that
/// comes behind a waiting writer waits for it, so neither side can starve the other. A reader that never leaves blocks every writer, and
/// all contenders behind them; [`RwLock::max_hold`] bounds that.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
/// # let client = fencelock::Client::connect("memory:").await?;
/// let page = client.rwlock("page")?;
/// let (one, two) = (page.read().await?, page.read().await?);
/// assert!(page.try_write().await.is_err());
/// drop((one, two)); // stale: they look again as a writer
/// let writing = page.write().await?;
/// // Still stale? Then it is made anew here.
/// let reading = writing.downgrade().await?; // no other client wrote in between
/// assert!(page.try_read().await.is_ok());
/// # drop(reading);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct RwLock {
    lock: Lock,
}

impl RwLock {
    pub(crate) fn new(client: Client, name: Name) -> Result<Self> {
        Ok(Self { lock: Lock::new(client, name, Claim::WRITER)? })
    }

    options!();

    /// Takes the lock for reading, waiting as long as [`RwLock::timeout`] allows.
    ///
    /// # Errors and cancel safety
    /// As [`Mutex::acquire`](crate::Mutex::acquire).
    pub async fn read(&self) -> Result<ReadGuard> {
        self.lock.acquire_as(Claim::READER, self.lock.wish.wait).await
    }

    /// Takes the lock for writing, waiting as long as [`RwLock::timeout`] allows.
    ///
    /// # Errors and cancel safety
    /// As [`Mutex::acquire`](crate::Mutex::acquire).
    pub async fn write(&self) -> Result<WriteGuard> {
        self.lock.acquire().await
    }

    /// Takes the lock for reading, waiting at most `limit`.
    ///
    /// # Errors and cancel safety
    /// As [`Mutex::acquire`](crate::Mutex::acquire).
    pub async fn read_within(&self, limit: Duration) -> Result<ReadGuard> {
        self.lock.acquire_as(Claim::READER, Wait::For(limit)).await
    }

    /// Takes the lock for writing, waiting at most `limit`.
    ///
    /// # Errors and cancel safety
    /// As [`Mutex::acquire`](crate::Mutex::acquire).
    pub async fn write_within(&self, limit: Duration) -> Result<WriteGuard> {
        self.lock.acquire_as(Claim::WRITER, Wait::For(limit)).await
    }

    /// Takes the lock for reading if no writer holds it or waits for it, and never queues.
    ///
    /// # Errors and cancel safety
    /// As [`Mutex::try_acquire`](crate::Mutex::try_acquire).
    pub async fn try_read(&self) -> Result<ReadGuard> {
        self.lock.acquire_as(Claim::READER, Wait::No(Duration::MAX)).await
    }

    /// Takes the lock for writing if no contender is ahead, and never queues.
    ///
    /// # Errors and cancel safety
    /// As [`Mutex::try_acquire`](crate::Mutex::try_acquire).
    pub async fn try_write(&self) -> Result<WriteGuard> {
        self.lock.acquire_as(Claim::WRITER, Wait::No(Duration::MAX)).await
    }
}

impl WriteGuard {
    /// Turns this writer into a reader in the same place: waiting readers directly behind are granted, a writer behind them is not, and no
    /// client gets in between. Keeps the token, and every limit of time.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lock was lost, or [`ErrorKind::Config`](crate::ErrorKind::Config) while another
    /// guard of the hold ([`Guard::reenter`]) relies on writing; otherwise the store's error after the last retry. This guard is released
    /// then, as by a drop.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lock in the background.
    pub async fn downgrade(self) -> Result<ReadGuard> {
        Ok(self.downgrade_or_keep().await?)
    }

    /// As [`WriteGuard::downgrade`], for callers that continue after a failure: the error has the guard.
    ///
    /// # Errors
    /// [`GuardError`], of the same kinds, always has the guard that is left, as a reader's: other readers may have been granted then, but
    /// no writer.
    ///
    /// # Cancel safety
    /// As [`WriteGuard::downgrade`].
    pub async fn downgrade_or_keep(self) -> Result<ReadGuard, GuardError<ReadGuard>> {
        let lightened = self.lighten(Claim::READER).await;
        let guard = self.become_kind();
        match lightened {
            Ok(()) => Ok(guard),
            Err(error) => Err(GuardError::new(error, guard)),
        }
    }
}
