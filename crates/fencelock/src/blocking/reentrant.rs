//! A mutex that the thread which holds it may take again.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;
use std::time::Duration;

use super::{Guard, wait};
use crate::engine::hold::Hold;
use crate::error::Result;
use crate::name::Name;

/// A mutex that the thread which holds it may take again; each guard is given back on its own, and the last one
/// releases the lock. Other threads, of this process too, queue in the store like everybody else.
///
/// Re-entry is counted per value of this type and its clones: two values made for the same name know nothing of each
/// other, and taking one under the other waits for ever.
#[derive(Debug, Clone)]
pub struct ReentrantMutex {
    mutex: crate::Mutex,
    holds: Arc<Mutex<HashMap<ThreadId, Weak<Hold>>>>,
}

impl ReentrantMutex {
    pub(crate) fn new(mutex: crate::Mutex) -> Self {
        Self { mutex, holds: Arc::default() }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &Name {
        self.mutex.name()
    }

    /// Acquires the lock, or takes it once more if this thread holds it.
    ///
    /// # Errors
    /// As [`crate::Mutex::acquire`]; [`ErrorKind::Lost`](crate::ErrorKind::Lost) when this thread still has a guard of
    /// a hold that was lost.
    pub fn acquire(&self) -> Result<ReentrantGuard> {
        self.again_or(|mutex| wait(mutex.acquire()))
    }

    /// As [`ReentrantMutex::acquire`], waiting at most `limit`.
    ///
    /// # Errors
    /// As [`ReentrantMutex::acquire`].
    pub fn acquire_within(&self, limit: Duration) -> Result<ReentrantGuard> {
        self.again_or(|mutex| wait(mutex.acquire_within(limit)))
    }

    /// As [`ReentrantMutex::acquire`], if nobody else is ahead.
    ///
    /// # Errors
    /// As [`ReentrantMutex::acquire`].
    pub fn try_acquire(&self) -> Result<ReentrantGuard> {
        self.again_or(|mutex| wait(mutex.try_acquire()))
    }

    fn again_or(&self, acquire: impl FnOnce(&crate::Mutex) -> Result<crate::Guard>) -> Result<ReentrantGuard> {
        let thread = std::thread::current().id();
        let held = self.holds().get(&thread).and_then(Weak::upgrade).filter(|hold| !hold.is_unshared());
        let guard = match held {
            Some(hold) => self.mutex.guard_of(&hold)?,
            None => {
                let guard = acquire(&self.mutex)?;
                let mut holds = self.holds();
                holds.retain(|_, hold| hold.strong_count() > 0);
                holds.insert(thread, guard.hold());
                guard
            }
        };
        Ok(ReentrantGuard { guard: Guard::new(guard), stays_on_its_thread: PhantomData })
    }

    fn holds(&self) -> MutexGuard<'_, HashMap<ThreadId, Weak<Hold>>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A [`Guard`] that stays on its thread.
#[must_use = "a guard that is dropped releases its lock"]
#[derive(Debug)]
pub struct ReentrantGuard {
    guard: Guard,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl Deref for ReentrantGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}
