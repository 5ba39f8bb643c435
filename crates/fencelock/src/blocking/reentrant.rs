//! A mutex that the thread which holds it may take again.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::guard::guard_answers;
use super::{Guard, answers, wait};
use crate::engine::hold::{GuardState, Hold};
use crate::error::Result;
use crate::name::Name;
use crate::sync::Mutex;
use crate::token::FencingToken;

/// A mutex that its holding thread may acquire again; each guard is released on its own, and the last one releases the lock. Other threads,
/// also of this process, queue in the store like any client.
///
/// Re-entry is counted per value of this type and its clones: two values for the same name are independent, and acquiring one under the
/// other waits for ever.
#[derive(Debug, Clone)]
pub struct ReentrantMutex {
    mutex: crate::Mutex,
    holds: Arc<Mutex<HashMap<ThreadId, Weak<Hold>>>>,
}

impl ReentrantMutex {
    pub(crate) fn new(mutex: crate::Mutex) -> Self {
        Self { mutex, holds: Arc::default() }
    }

    answers! { "Mutex" in mutex; has name() -> &Name; }

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

    /// As [`ReentrantMutex::acquire`], if no other contender is ahead.
    ///
    /// # Errors
    /// As [`ReentrantMutex::acquire`].
    pub fn try_acquire(&self) -> Result<ReentrantGuard> {
        self.again_or(|mutex| wait(mutex.try_acquire()))
    }

    fn again_or(&self, acquire: impl FnOnce(&crate::Mutex) -> Result<crate::Guard>) -> Result<ReentrantGuard> {
        let thread = std::thread::current().id();
        let held = self.holds.lock().get(&thread).and_then(Weak::upgrade).filter(|hold| !hold.is_unshared());
        let guard = match held {
            Some(hold) => self.mutex.guard_of(&hold)?,
            None => {
                let guard = acquire(&self.mutex)?;
                let mut holds = self.holds.lock();
                holds.retain(|_, hold| hold.strong_count() > 0);
                holds.insert(thread, guard.hold());
                guard
            }
        };
        Ok(ReentrantGuard { guard: Guard(guard), stays_on_its_thread: PhantomData })
    }
}

/// A guard that stays on its thread. Only [`ReentrantMutex::acquire`] makes further guards of its hold.
///
/// ```compile_fail
/// let locks = fencelock::blocking::Client::connect("memory:").unwrap();
/// let guard = locks.mutex("a").unwrap().reentrant().acquire().unwrap();
/// std::thread::spawn(move || guard); // a thread that did not acquire it
/// ```
///
/// ```compile_fail
/// let locks = fencelock::blocking::Client::connect("memory:").unwrap();
/// let guard = locks.mutex("a").unwrap().reentrant().acquire().unwrap();
/// let leaves_its_thread = guard.reenter();
/// ```
#[must_use = "a guard that is dropped releases its lock"]
#[derive(Debug)]
pub struct ReentrantGuard {
    /// Never handed out: a [`Guard`] may be taken to another thread, and this hold is counted by thread.
    guard: Guard,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl ReentrantGuard {
    guard_answers!(guard);

    /// Ends this guard; the thread's last guard releases the lock.
    ///
    /// # Errors
    /// As [`crate::Guard::release`].
    pub fn release(self) -> Result<()> {
        self.guard.release()
    }
}
