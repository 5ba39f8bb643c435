//! The events of a client's locks, for its observers.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::breaker::BreakerState;
use crate::error::Error;
use crate::name::Name;
use crate::store::{Ahead, Loss};
use crate::token::FencingToken;

/// Receives every event in the life of a client's locks, failures included.
pub trait Observer: Send + Sync + 'static {
    /// Called on the engine's thread or, for calls that completed at once (most uncontended grants and releases, also of dropped guards),
    /// on the caller's; never under an internal lock. Must return quickly and not block. A panic in it is caught and logged.
    fn observe(&self, event: &Event<'_>);
}

/// An event in the life of a client or one of its locks.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A session was opened.
    SessionOpened,
    /// A session has ended; every lock on it is lost.
    SessionLost {
        /// Why.
        cause: Loss,
    },
    /// A renewal failed; the session lives until its validity ends.
    RenewalFailed {
        /// Why.
        error: &'a Error,
    },
    /// A renewal was confirmed.
    Renewed {
        /// The rest of the validity when the answer arrived, before its extension: near zero, the next slow answer costs every lock of the
        /// session. [`Duration::MAX`] where the session does not expire by itself.
        left: Duration,
    },
    /// No renewal was confirmed for longer than usual: the locks on this session are still held, but doubtful.
    Suspect,
    /// The session is confirmed again.
    Confirmed,
    /// An acquire queues behind other contenders.
    Waiting {
        /// The lock.
        name: &'a Name,
        /// The contenders ahead, where the store can count them.
        ahead: Option<Ahead>,
    },
    /// The store woke a waiter, which is granted or continues to wait.
    Woken {
        /// The lock.
        name: &'a Name,
        /// Whether the waiter holds the lock now.
        granted: bool,
    },
    /// An acquire waits no longer, after a grant, a refusal, a drop, or the loss of its place. Each [`Event::Waiting`] is followed by one.
    WaitEnded {
        /// The lock.
        name: &'a Name,
    },
    /// A waiter's place was lost with its session; the waiter enters again at the tail.
    Requeued {
        /// The lock.
        name: &'a Name,
        /// Why.
        cause: Loss,
    },
    /// A request of an acquire, a downgrade or a release failed and is tried again.
    Retried {
        /// The lock.
        name: &'a Name,
        /// Why.
        error: &'a Error,
    },
    /// A lock was granted.
    Granted {
        /// The lock.
        name: &'a Name,
        /// The grant's token.
        token: Option<FencingToken>,
        /// The time from the call to the grant.
        waited: Duration,
    },
    /// A writer became a reader, in its place.
    Downgraded {
        /// The lock.
        name: &'a Name,
    },
    /// An acquire ended without the lock.
    Refused {
        /// The lock.
        name: &'a Name,
        /// Why.
        error: &'a Error,
        /// The time from the call to its end.
        waited: Duration,
    },
    /// The caller dropped an acquire before its end, for example by its own timeout.
    Abandoned {
        /// The lock.
        name: &'a Name,
        /// The time from the call to the drop.
        waited: Duration,
    },
    /// A holder took its own lock again.
    Reentered {
        /// The lock.
        name: &'a Name,
    },
    /// A holder gives its lock up, before the request. [`Event::Released`], [`Event::Lost`] or [`Event::ReleaseFailed`] follows.
    Releasing {
        /// The lock.
        name: &'a Name,
    },
    /// A held lock was lost.
    Lost {
        /// The lock.
        name: &'a Name,
        /// Why.
        cause: Loss,
        /// How long the lock was held.
        held: Duration,
    },
    /// An acquire was granted outside of its store, which was unreachable, by [`OnOutage`](crate::OnOutage): two may hold the lock now.
    Degraded {
        /// The lock.
        name: &'a Name,
        /// The store that granted it instead, whose client's observers receive the rest. `None` if no store granted it; then the end of
        /// this grant is reported here.
        store: Option<&'static str>,
    },
    /// The circuit breaker opened, lets an acquire probe the store, or closed.
    Breaker {
        /// The new state.
        state: BreakerState,
    },
    /// A lock was released.
    Released {
        /// The lock.
        name: &'a Name,
        /// How long the lock was held.
        held: Duration,
    },
    /// A release, or a clean-up behind an abandoned acquire, failed; clean-ups are tried again.
    ReleaseFailed {
        /// The lock.
        name: &'a Name,
        /// Why.
        error: &'a Error,
    },
}

/// The observers of one client.
#[derive(Clone, Default)]
pub(crate) struct Observers(Vec<Arc<dyn Observer>>);

impl Observers {
    pub(crate) fn add(&mut self, observer: Arc<dyn Observer>) {
        self.0.push(observer);
    }

    pub(crate) fn tell(&self, event: Event<'_>) {
        for observer in &self.0 {
            // A panic of an observer must not end a renewal or a release.
            if catch_unwind(AssertUnwindSafe(|| observer.observe(&event))).is_err() {
                tracing::error!(?event, "an observer panicked");
            }
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} observers", self.0.len())
    }
}
