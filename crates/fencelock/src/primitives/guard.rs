//! What holding a lock means.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::client::Lifeline;
use crate::engine::hold::{GuardState, Hold};
use crate::error::Result;
use crate::name::Name;
use crate::store::Loss;
use crate::token::FencingToken;

/// A held lock.
///
/// Holding a guard means: nobody else was granted before [`Guard::remaining`] runs out. It belongs to whoever has the
/// value, never to a thread or task. After a pause (blocking work, a swapped-out or stopped process), ask
/// [`Guard::check`] before going on, and pass [`Guard::token`] to whatever the lock protects: only that can refuse a
/// write that comes too late.
///
/// Dropping the guard releases the lock in the background; [`Guard::release`] does it in the open.
#[must_use = "a guard that is dropped releases its lock"]
pub struct Guard {
    hold: Arc<Hold>,
    /// Given back, or lent to a body and never counted.
    given_up: AtomicBool,
    lent: bool,
    lifeline: Arc<Lifeline>,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>, lifeline: Arc<Lifeline>) -> Self {
        Self { hold, given_up: AtomicBool::new(false), lent: false, lifeline }
    }

    /// The first guard of `hold`, unless everybody who could want it is gone.
    pub(crate) fn of_acquired(hold: Arc<Hold>, lifeline: &Weak<Lifeline>) -> Result<Self> {
        match lifeline.upgrade() {
            Some(lifeline) => Ok(Self::new(hold, lifeline)),
            None => {
                hold.leave_in_background();
                Err(hold.released_before())
            }
        }
    }

    /// Another guard of `hold`, unless it is over.
    pub(crate) fn share(hold: &Arc<Hold>, lifeline: &Arc<Lifeline>) -> Result<Self> {
        let guard_of = |hold: &Arc<Hold>| Self::new(Arc::clone(hold), Arc::clone(lifeline));
        match hold.state() {
            GuardState::Held | GuardState::Suspect if hold.share() => Ok(guard_of(hold)),
            GuardState::Lost(loss) => Err(hold.lost_before(loss)),
            _ => Err(hold.released_before()),
        }
    }

    /// The hold, without holding it.
    pub(crate) fn downgrade(&self) -> Weak<Hold> {
        Arc::downgrade(&self.hold)
    }

    /// The lock.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.hold.id().name
    }

    /// The fencing token of this grant; `None` only where [`Capability::tokens`](crate::Capability) says there are none.
    #[must_use]
    pub fn token(&self) -> Option<FencingToken> {
        self.hold.token()
    }

    /// Where the lock stands now. Never blocks, and is right even just after a pause: it looks at the clock, not at what
    /// a background task had time to do.
    #[must_use]
    pub fn state(&self) -> GuardState {
        self.hold.state()
    }

    /// How long it is still certain that nobody else was granted: zero once lost or released, [`Duration::MAX`] where
    /// nothing expires.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// `Ok` while the lock is certainly held.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) with the cause, or [`ErrorKind::Closed`](crate::ErrorKind::Closed) after a release.
    pub fn check(&self) -> Result<()> {
        match self.state() {
            GuardState::Held | GuardState::Suspect => Ok(()),
            GuardState::Lost(loss) => Err(self.hold.lost_before(loss)),
            GuardState::Released => Err(self.hold.released_before()),
        }
    }

    /// Completes with the cause when the lock is lost; never once it was released.
    ///
    /// # Cancel safety
    /// May be dropped and asked again.
    pub async fn lost(&self) -> Loss {
        self.hold.lost().cancelled().await;
        match self.hold.cause() {
            Some(loss) => loss,
            None => std::future::pending().await,
        }
    }

    /// Cancelled when the lock is lost, and when it is released. A child of our own token: cancelling it does nothing to
    /// the lock.
    #[must_use]
    pub fn lost_token(&self) -> CancellationToken {
        self.hold.lost().child_token()
    }

    /// Another guard of the same hold, with the same token; the lock is released when all of them are.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) or [`ErrorKind::Closed`](crate::ErrorKind::Closed) when there is nothing left to share.
    pub fn reenter(&self) -> Result<Self> {
        if self.given_up.load(Ordering::Acquire) && !self.lent {
            return Err(self.hold.released_before());
        }
        Self::share(&self.hold, &self.lifeline)
    }

    /// Gives this guard back; the last one of a hold releases the lock. May be called again after an error: a failed
    /// release forgets nothing, and nothing renews the lock meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lock was lost before: what was done under it may have overlapped with others.
    /// Otherwise whatever the store says.
    ///
    /// # Cancel safety
    /// Once polled, the release goes on although the future is dropped.
    pub async fn release(&self) -> Result<()> {
        let was_given_up = self.given_up.swap(true, Ordering::AcqRel);
        let last = if was_given_up { self.hold.is_unshared() } else { self.hold.unshare() };
        if last { self.release_hold().await } else { Ok(()) }
    }

    async fn release_hold(&self) -> Result<()> {
        let hold = Arc::clone(&self.hold);
        let engine = self.hold.engine();
        if engine.spawner.has_own_thread() {
            return engine.run_to_end(async move { hold.release().await }).await;
        }
        let mut in_flight = ReleaseInFlight { hold: &self.hold, done: false };
        let released = self.hold.release().await;
        in_flight.done = true;
        released
    }

    /// Runs `body` under this guard and gives it back, as [`Mutex::run`](crate::Mutex::run) does. The guard that `body`
    /// gets is lent: keeping it keeps nothing locked, releasing it does nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost).
    pub async fn run<T, F, Fut>(self, body: F) -> Result<T>
    where
        F: FnOnce(Self) -> Fut,
        Fut: Future<Output = T>,
    {
        self.check()?;
        let lent = Self {
            hold: Arc::clone(&self.hold),
            given_up: AtomicBool::new(true),
            lent: true,
            lifeline: Arc::clone(&self.lifeline),
        };
        let body = body(lent);
        let result = tokio::select! {
            biased;
            loss = self.lost() => Err(self.hold.lost_before(loss)),
            output = body => Ok(output),
        };
        // The state looks at the clock: a body that blocked past the margin was not told by the select.
        let result = match self.state() {
            GuardState::Lost(loss) if result.is_ok() => Err(self.hold.lost_before(loss)),
            _ => result,
        };
        drop(self);
        result
    }
}

/// Moves a release that is dropped half-way to the background.
struct ReleaseInFlight<'a> {
    hold: &'a Arc<Hold>,
    done: bool,
}

impl Drop for ReleaseInFlight<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.hold.leave_in_background();
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let last = if *self.given_up.get_mut() { self.hold.is_unshared() } else { self.hold.unshare() };
        if last {
            self.hold.leave_in_background();
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", self.name())
            .field("token", &self.token())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
