//! The semaphore for code that blocks.

use std::time::Duration;

use super::{Guard, PermitGuard, answers, options, primitive, wait, waits};
use crate::error::Result;
use crate::name::Name;

/// A [`crate::Semaphore`] for code that blocks. The options mean the same.
#[derive(Debug, Clone)]
pub struct Semaphore(crate::Semaphore);

impl Semaphore {
    pub(crate) fn new(semaphore: crate::Semaphore) -> Self {
        Self(semaphore)
    }

    primitive!("Semaphore");
    options! { "Semaphore"; with permits(count: u32); }
    answers! { "Semaphore" in 0; has capacity() -> u32; }

    waits! { "Semaphore";
        acquire() -> PermitGuard, Guard::new;
        acquire_within(limit: Duration) -> PermitGuard, Guard::new;
        try_acquire() -> PermitGuard, Guard::new;
    }

    /// Acquires the permits, runs `body` under them, and releases them, as [`Mutex::run`](super::Mutex::run) does.
    ///
    /// # Errors
    /// As [`Mutex::run`](super::Mutex::run).
    pub fn run<T>(&self, body: impl FnOnce(&PermitGuard) -> T) -> Result<T> {
        self.acquire()?.run(body)
    }
}
