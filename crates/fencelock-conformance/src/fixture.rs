//! The interface between the laws and a store under test.

use std::sync::Arc;
use std::time::Duration;

use fencelock::Result;
pub use fencelock::memory::Operation as Request;
use fencelock::store::Store;
use fencelock::time::{Clock, SystemClock};
use futures_core::future::BoxFuture;

use crate::laws::Tier;
use crate::world::PATIENCE;

/// An empty store under test, and its faults. Every law gets a fresh one.
pub trait Fixture: Send + Sync + 'static {
    /// Another process's route to the store.
    fn process(&self) -> BoxFuture<'_, Result<Process>>;

    /// Lets `duration` pass on the store's clock. By default it really passes; with a virtual clock, let the tasks that can
    /// run do so before and after it is moved (see [`let_others_run`]).
    fn pass(&self, duration: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { SystemClock.sleep_until(SystemClock.now().after(duration)).await })
    }

    /// The tier of the store, by default the highest; the rest is [`ErrorKind::Unsupported`](fencelock::ErrorKind::Unsupported).
    /// Laws of a higher tier are not tried. A law that reads a queue for its evidence is tried up to that step.
    fn tier(&self) -> Tier {
        Tier::Break
    }

    /// How long an unrenewed session lives in the laws about expiry. By default 2 s.
    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// The least time that an unrenewed session lives in laws that are not about expiry. By default 10 minutes. A store
    /// that gives up a silent connection after a part of this time states less.
    fn long_ttl(&self) -> Duration {
        Duration::from_secs(600)
    }

    /// How long, in real time, a call that waits for nothing may hold up its caller. By default, as long as laws are patient.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// The time that a wake may take beyond the bound of the store's capability. By default none. Tests that must not judge
    /// real time return their patience.
    fn slack(&self) -> Duration {
        Duration::ZERO
    }

    /// The remains in the store beyond live sessions and beyond its capability's residue, one line each.
    /// `None`, the default, when unknown; [`Store::names`] is looked at in any case.
    fn leftovers(&self) -> BoxFuture<'_, Option<Vec<String>>> {
        Box::pin(async { None })
    }
}

/// A process's route to the store under test.
pub struct Process {
    /// The store as this process opened it.
    pub store: Arc<dyn Store>,
    /// The faults of the process's route.
    pub faults: Arc<dyn Faults>,
}

/// The faults between a process and the store that a test can cause. A method that cannot cause its fault says so by
/// its result; the laws that need that fault must be excused.
pub trait Faults: Send + Sync {
    /// Kills the process's connections. By default nothing: dropping the sessions is crash enough.
    fn crash(&self) {}

    /// Loses the answer to the next request of this kind, which takes effect; `false` when that cannot be done.
    fn lose_next_reply(&self, of: Request) -> bool {
        let _ = of;
        false
    }

    /// Delays every byte by `each_way` in both directions; `false`, the default, if the test cannot do that.
    fn slow(&self, each_way: Duration) -> bool {
        let _ = each_way;
        false
    }

    /// How many bytes went to the store and came from it so far; `None`, the default, where they are not counted.
    fn traffic(&self) -> Option<(u64, u64)> {
        None
    }

    /// Holds back the next request of this kind; `None` when that cannot be done.
    fn delay_next(&self, of: Request) -> Option<Box<dyn Delayed>> {
        let _ = of;
        None
    }
}

/// A request that is held back.
pub trait Delayed: Send {
    /// Lets the request arrive, and returns once the store has accepted or refused it.
    fn release(self: Box<Self>) -> BoxFuture<'static, ()>;
}

/// Without faults, except dropped values.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFaults;

impl Faults for NoFaults {}

/// Gives way often enough that every task of a current-thread runtime that can run has run.
pub async fn let_others_run() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}
