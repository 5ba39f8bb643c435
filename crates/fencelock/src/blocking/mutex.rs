//! The mutex for code that blocks.

use std::time::Duration;

use super::{Guard, ReentrantMutex, wait};
use crate::error::Result;
use crate::name::Name;

/// A [`crate::Mutex`] for code that blocks. The options mean the same.
#[derive(Debug, Clone)]
pub struct Mutex(crate::Mutex);

impl Mutex {
    pub(crate) fn new(mutex: crate::Mutex) -> Self {
        Self(mutex)
    }

    /// See [`crate::Mutex::purpose`].
    #[must_use]
    pub fn purpose(self, purpose: impl AsRef<str>) -> Self {
        Self(self.0.purpose(purpose))
    }

    /// See [`crate::Mutex::wait`].
    #[must_use]
    pub fn wait(self, limit: Duration) -> Self {
        Self(self.0.wait(limit))
    }

    /// See [`crate::Mutex::lease`].
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    /// See [`crate::Mutex::max_hold`].
    #[must_use]
    pub fn max_hold(self, most: Duration) -> Self {
        Self(self.0.max_hold(most))
    }

    /// See [`crate::Mutex::max_waiters`].
    #[must_use]
    pub fn max_waiters(self, most: u32) -> Self {
        Self(self.0.max_waiters(most))
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &Name {
        self.0.name()
    }

    /// A mutex that the thread which holds it may take again.
    #[must_use]
    pub fn reentrant(self) -> ReentrantMutex {
        ReentrantMutex::new(self.0)
    }

    /// Acquires the lock, waiting as long as [`Mutex::wait`] allows.
    ///
    /// # Errors
    /// As [`crate::Mutex::acquire`].
    pub fn acquire(&self) -> Result<Guard> {
        wait(self.0.acquire()).map(Guard::new)
    }

    /// Acquires the lock, waiting at most `limit`.
    ///
    /// # Errors
    /// As [`crate::Mutex::acquire`].
    pub fn acquire_within(&self, limit: Duration) -> Result<Guard> {
        wait(self.0.acquire_within(limit)).map(Guard::new)
    }

    /// Acquires the lock if nobody is ahead.
    ///
    /// # Errors
    /// As [`crate::Mutex::try_acquire`].
    pub fn try_acquire(&self) -> Result<Guard> {
        wait(self.0.try_acquire()).map(Guard::new)
    }

    /// Acquires the lock, runs `body` under it, and releases it. Blocking code cannot be stopped when the lock is lost:
    /// `body` asks [`Guard::check`] itself, and the result is an error when the lock was lost by its end.
    ///
    /// # Errors
    /// As [`Mutex::acquire`]; [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lock was lost before `body` ended.
    pub fn run<T>(&self, body: impl FnOnce(&Guard) -> T) -> Result<T> {
        self.acquire()?.run(body)
    }
}
