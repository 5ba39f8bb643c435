//! The semaphore for code that blocks.

use std::time::Duration;

use super::{Guard, PermitGuard, options, wait};
use crate::error::Result;
use crate::name::Name;

/// A [`crate::Semaphore`] for code that blocks. The options mean the same.
#[derive(Debug, Clone)]
pub struct Semaphore(crate::Semaphore);

impl Semaphore {
    pub(crate) fn new(semaphore: crate::Semaphore) -> Self {
        Self(semaphore)
    }

    /// See [`crate::Semaphore::permits`].
    #[must_use]
    pub fn permits(self, count: u32) -> Self {
        Self(self.0.permits(count))
    }

    options!("Semaphore");

    /// How many permits there are.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.0.capacity()
    }

    /// Acquires the permits, waiting as long as [`Semaphore::timeout`] allows.
    ///
    /// # Errors
    /// As [`crate::Semaphore::acquire`].
    pub fn acquire(&self) -> Result<PermitGuard> {
        wait(self.0.acquire()).map(Guard::new)
    }

    /// Acquires the permits, waiting at most `limit`.
    ///
    /// # Errors
    /// As [`crate::Semaphore::acquire`].
    pub fn acquire_within(&self, limit: Duration) -> Result<PermitGuard> {
        wait(self.0.acquire_within(limit)).map(Guard::new)
    }

    /// Acquires the permits if they are free and nobody waits.
    ///
    /// # Errors
    /// As [`crate::Semaphore::try_acquire`].
    pub fn try_acquire(&self) -> Result<PermitGuard> {
        wait(self.0.try_acquire()).map(Guard::new)
    }

    /// Acquires the permits, runs `body` under them, and releases them, as [`Mutex::run`](super::Mutex::run) does.
    ///
    /// # Errors
    /// As [`Mutex::run`](super::Mutex::run).
    pub fn run<T>(&self, body: impl FnOnce(&PermitGuard) -> T) -> Result<T> {
        self.acquire()?.run(body)
    }
}
