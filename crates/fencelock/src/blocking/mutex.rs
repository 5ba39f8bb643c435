//! The mutex for code that blocks.

use std::time::Duration;

use super::{Guard, ReentrantMutex, answers, options, primitive, wait, waits};
use crate::error::Result;
use crate::name::Name;

/// A [`crate::Mutex`] for code that blocks. The options mean the same.
#[derive(Debug, Clone)]
pub struct Mutex(crate::Mutex);

impl Mutex {
    pub(crate) fn new(mutex: crate::Mutex) -> Self {
        Self(mutex)
    }

    primitive!("Mutex");
    options! { "Mutex"; with sticky(keep: Duration); }

    /// A mutex that the thread which holds it may take again.
    #[must_use]
    pub fn reentrant(self) -> ReentrantMutex {
        ReentrantMutex::new(self.0)
    }

    waits! { "Mutex";
        acquire() -> Guard, Guard::new;
        acquire_within(limit: Duration) -> Guard, Guard::new;
        try_acquire() -> Guard, Guard::new;
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
