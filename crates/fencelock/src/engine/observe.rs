//! Everything that happens to a client's locks, told to its observer.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::breaker::BreakerState;
use crate::error::Error;
use crate::name::Name;
use crate::store::{Ahead, Loss};
use crate::token::FencingToken;

/// Hears of every event in the life of a client's locks, failures included.
pub trait Observer: Send + Sync + 'static {
    /// Called on the engine's thread or, of what the caller did at once (most uncontended grants and releases, those of dropped guards among them),
    /// on the caller's; never under a lock of ours. Must return quickly and not block. A panic in it is caught and logged.
    fn observe(&self, event: &Event<'_>);
}

/// One event in the life of a client or one of its locks.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A session was opened.
    SessionOpened,
    /// A session is over; every lock on it is lost.
    SessionLost {
        /// Why.
        cause: Loss,
    },
    /// A renewal failed; the session goes on until its validity ends.
    RenewalFailed {
        /// Why.
        error: &'a Error,
    },
    /// A renewal was confirmed.
    Renewed {
        /// What was left of the validity when the answer came, before it was prolonged: near zero, the next slow answer costs every
        /// lock of the session. [`Duration::MAX`] where the session does not expire by itself.
        left: Duration,
    },
    /// No renewal was confirmed for longer than usual: the locks on this session are still held, but doubtful.
    Suspect,
    /// The session is confirmed again.
    Confirmed,
    /// An acquire queues behind others.
    Waiting {
        /// The lock.
        name: &'a Name,
        /// Who is ahead, where the store can tell.
        ahead: Option<Ahead>,
    },
    /// A waiter was woken by the store, and is granted or waits on.
    Woken {
        /// The lock.
        name: &'a Name,
        /// Whether it has the lock now.
        granted: bool,
    },
    /// An acquire waits no longer: it was granted, refused or dropped, or its place went away. Each [`Event::Waiting`] is followed by one.
    WaitEnded {
        /// The lock.
        name: &'a Name,
    },
    /// A waiter's place went away with its session; it enters again at the tail.
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
        /// Its token.
        token: Option<FencingToken>,
        /// The time from the call to the grant.
        waited: Duration,
    },
    /// A writer goes on as a reader, in its place.
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
    /// The caller dropped an acquire before its end, as a timeout of its own does.
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
    /// A holder gives its lock up, before the store is asked. [`Event::Released`], [`Event::Lost`] or [`Event::ReleaseFailed`] follows.
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
        /// How long it was held.
        held: Duration,
    },
    /// An acquire was granted outside of its store, which was out of reach, by [`OnOutage`](crate::OnOutage): two may hold the lock now.
    Degraded {
        /// The lock.
        name: &'a Name,
        /// The store that granted it instead, whose client's observers hear of the rest. `None`: no store did, and the end of this grant is
        /// told here as of any other.
        store: Option<&'static str>,
    },
    /// The circuit breaker opened, lets an acquire probe the store, or closed.
    Breaker {
        /// Where it stands now.
        state: BreakerState,
    },
    /// A lock was released.
    Released {
        /// The lock.
        name: &'a Name,
        /// How long it was held.
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
            // A broken observer must not take a renewal or a release down with it.
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
