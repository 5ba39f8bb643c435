//! The read-write lock for code that blocks.

use std::time::Duration;

use super::{Guard, ReadGuard, WriteGuard, answers, options, primitive, wait, waits};
use crate::error::Result;
use crate::name::Name;

/// A [`crate::RwLock`] for code that blocks. The options mean the same.
#[derive(Debug, Clone)]
pub struct RwLock(crate::RwLock);

impl RwLock {
    pub(crate) fn new(lock: crate::RwLock) -> Self {
        Self(lock)
    }

    primitive!("RwLock");

    waits! { "RwLock";
        read() -> ReadGuard, Guard::new;
        read_within(limit: Duration) -> ReadGuard, Guard::new;
        try_read() -> ReadGuard, Guard::new;
        write() -> WriteGuard, Guard::new;
        write_within(limit: Duration) -> WriteGuard, Guard::new;
        try_write() -> WriteGuard, Guard::new;
    }
}
