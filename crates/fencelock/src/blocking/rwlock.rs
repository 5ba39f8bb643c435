//! The read-write lock for code that blocks.

use std::time::Duration;

use super::{Guard, ReadGuard, WriteGuard, options, wait};
use crate::error::Result;
use crate::name::Name;

/// A [`crate::RwLock`] for code that blocks. The options mean the same.
#[derive(Debug, Clone)]
pub struct RwLock(crate::RwLock);

impl RwLock {
    pub(crate) fn new(lock: crate::RwLock) -> Self {
        Self(lock)
    }

    options!("RwLock");

    /// Takes the lock for reading, waiting as long as [`RwLock::timeout`] allows.
    ///
    /// # Errors
    /// As [`crate::RwLock::read`].
    pub fn read(&self) -> Result<ReadGuard> {
        wait(self.0.read()).map(Guard::new)
    }

    /// Takes the lock for reading, waiting at most `limit`.
    ///
    /// # Errors
    /// As [`crate::RwLock::read_within`].
    pub fn read_within(&self, limit: Duration) -> Result<ReadGuard> {
        wait(self.0.read_within(limit)).map(Guard::new)
    }

    /// Takes the lock for reading if nobody is in the way.
    ///
    /// # Errors
    /// As [`crate::RwLock::try_read`].
    pub fn try_read(&self) -> Result<ReadGuard> {
        wait(self.0.try_read()).map(Guard::new)
    }

    /// Takes the lock for writing, waiting as long as [`RwLock::timeout`] allows.
    ///
    /// # Errors
    /// As [`crate::RwLock::write`].
    pub fn write(&self) -> Result<WriteGuard> {
        wait(self.0.write()).map(Guard::new)
    }

    /// Takes the lock for writing, waiting at most `limit`.
    ///
    /// # Errors
    /// As [`crate::RwLock::write_within`].
    pub fn write_within(&self, limit: Duration) -> Result<WriteGuard> {
        wait(self.0.write_within(limit)).map(Guard::new)
    }

    /// Takes the lock for writing if nobody is in the way.
    ///
    /// # Errors
    /// As [`crate::RwLock::try_write`].
    pub fn try_write(&self) -> Result<WriteGuard> {
        wait(self.0.try_write()).map(Guard::new)
    }
}
