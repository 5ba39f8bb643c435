//! The primitives for code that blocks.

use std::time::Duration;

use super::{Client, Guard, PermitGuard, ReadGuard, ReentrantMutex, WriteGuard, answers, options, primitive, recipe};
use super::{wait, waits};
use crate::error::Result;
use crate::name::Name;

recipe! { "Mutex" Mutex(crate::Mutex);
    mutex(name: impl AsRef<str>);
    with sticky(keep: Duration);
    asks acquire() -> Guard, Guard;
    asks acquire_within(limit: Duration) -> Guard, Guard;
    asks try_acquire() -> Guard, Guard;
}
recipe! { "RwLock" RwLock(crate::RwLock);
    rwlock(name: impl AsRef<str>);
    asks read() -> ReadGuard, Guard;
    asks read_within(limit: Duration) -> ReadGuard, Guard;
    asks try_read() -> ReadGuard, Guard;
    asks write() -> WriteGuard, Guard;
    asks write_within(limit: Duration) -> WriteGuard, Guard;
    asks try_write() -> WriteGuard, Guard;
}
recipe! { "Semaphore" Semaphore(crate::Semaphore);
    semaphore(name: impl AsRef<str>, capacity: u32);
    with permits(count: u32);
    asks acquire() -> PermitGuard, Guard;
    asks acquire_within(limit: Duration) -> PermitGuard, Guard;
    asks try_acquire() -> PermitGuard, Guard;
}

impl Mutex {
    primitive!("Mutex");

    /// A mutex that its holding thread may acquire again.
    #[must_use]
    pub fn reentrant(self) -> ReentrantMutex {
        ReentrantMutex::new(self.0)
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

impl RwLock {
    primitive!("RwLock");
}

impl Semaphore {
    primitive!("Semaphore");
    answers! { "Semaphore" in 0; has capacity() -> u32; }

    /// Acquires the permits, runs `body` under them, and releases them, as [`Mutex::run`] does.
    ///
    /// # Errors
    /// As [`Mutex::run`].
    pub fn run<T>(&self, body: impl FnOnce(&PermitGuard) -> T) -> Result<T> {
        self.acquire()?.run(body)
    }
}
