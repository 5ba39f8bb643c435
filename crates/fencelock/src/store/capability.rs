//! The promises and limits of a store, checked before a request.

use std::time::Duration;

use super::words::{Peer, Presumption, Residue};

/// The promises of a store, as data: the documents and `fencelock stores` show it, and the conformance suite holds the store to it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capability {
    /// The store, as its URL scheme names it.
    pub store: &'static str,
    /// The name and version of the layout: the bytes that the store keeps.
    pub layout: &'static str,
    /// How a place stays alive, and which clock or kernel decides that it has ended.
    pub liveness: Liveness,
    /// Whether contenders are served in the order of their arrival.
    pub order: Order,
    /// Where fencing tokens come from.
    pub tokens: Tokens,
    /// The assumptions behind the validity of a guard; all of them must hold.
    pub presumes: &'static [Presumption],
    /// Whether the store has read-write locks besides mutexes.
    pub shared_claims: bool,
    /// Whether the store has semaphores, too.
    pub permits: bool,
    /// Whether notes can be written on locks ([`Guard::write_note`](crate::Guard::write_note)).
    pub notes: bool,
    /// How a holder is notified of waiters, which [`Mutex::sticky`](crate::Mutex::sticky) needs.
    pub waiters: Waiters,
    /// A dead session's places are removed within its ttl plus this, by the store's clock.
    pub detection_slack: Duration,
    /// `Place::next` returns within this time of the change that it waits for.
    pub wake_bound: Duration,
    /// Other clients that share the same locks; empty for none. Locks of all other clients do not exclude ours.
    pub same_as: &'static [Peer],
    /// Data of an idle name that may stay in the store; empty for none.
    pub residue: &'static [Residue],
    /// The default times of clients of this store, and their minima.
    pub pace: Pace,
    /// Whether the store's calls are short blocking system calls, which belong on a thread of their own.
    pub blocking: bool,
}

impl Capability {
    /// The weakest promises of a store: a lease by the store's clock, no order, no tokens, no claims but a mutex's, and 2 s of slack for
    /// dead places and for wakes.
    #[must_use]
    pub const fn least(store: &'static str, layout: &'static str) -> Self {
        const SLOW: Duration = Duration::from_secs(2);
        Self {
            store,
            layout,
            liveness: Liveness::Lease,
            order: Order::None,
            tokens: Tokens::None,
            presumes: &[],
            shared_claims: false,
            permits: false,
            notes: false,
            waiters: Waiters::Unseen,
            detection_slack: SLOW,
            wake_bound: SLOW,
            same_as: &[],
            residue: &[],
            pace: Pace::DEFAULT,
            blocking: false,
        }
    }
}

/// How often sessions of a store are renewed, and which times are too short for it. Part of the defaults and checks of
/// [`Timing`](crate::Timing).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pace {
    /// How many renewals fit in a ttl by default; at least 3.
    pub renewals_per_ttl: u32,
    /// The least default margin: at least one tick for a store whose clock ticks.
    pub least_margin: Duration,
    /// A shorter ttl is refused.
    pub least_ttl: Duration,
    /// With `None`, a renewal confirms the moment at which it was sent. With `Some(n)` it may confirm an earlier one, by up to one
    /// renew interval and ttl / n (ZooKeeper: the followers' report to the leader is that old).
    pub proof_lag: Option<u32>,
    /// The part of the ttl in which a client leaves a silent server for another one: `Some(n)` for ttl / n; `None` where there is none.
    pub failover: Option<u32>,
    /// The longest interval between two renewals, for any ttl and any option. `None` where the ttl alone decides.
    pub longest_interval: Option<Duration>,
}

impl Pace {
    /// Four renewals in a ttl of at least 100 ms, and a margin of at least 500 ms.
    pub const DEFAULT: Self = Self {
        renewals_per_ttl: 4,
        least_margin: Duration::from_millis(500),
        least_ttl: Duration::from_millis(100),
        proof_lag: None,
        failover: None,
        longest_interval: None,
    };

    /// The part of `ttl` that renewals every `renew_interval` need with this margin, if one is late or a silent server leaves it unanswered.
    pub(crate) fn needed(&self, ttl: Duration, renew_interval: Duration, margin: Duration) -> Duration {
        let lag = self.proof_lag.map_or(Duration::ZERO, |part| (ttl / part.max(1)).saturating_add(renew_interval));
        let late = renew_interval.max(self.failover.map_or(Duration::ZERO, |part| ttl / part.max(1)));
        renew_interval.saturating_add(late).saturating_add(margin).saturating_add(lag)
    }
}

/// How a place stays alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Liveness {
    /// The kernel: places die with the process, and time plays no part.
    Process,
    /// A session that the store's servers expire by a monotonic clock.
    Session,
    /// A lease that expires by the store's wall clock.
    Lease,
    /// The memory of this process alone.
    Memory,
}

/// The order in which contenders are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// First come, first served, by the order in which the store took the arrivals.
    Fifo,
    /// No order: the client that tries at the right moment has the lock.
    None,
}

/// How a holder is notified of waiters behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiters {
    /// The store notifies the holder of the first waiter, within one round trip.
    Notified,
    /// The holder looks at the queue at this interval.
    Looked(Duration),
    /// A holder is notified of no waiter: waiters leave no trace that every client can see.
    Unseen,
}

/// Where fencing tokens come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tokens {
    /// A counter that never falls behind the store's clock, so that it rises over idle times and lost counters.
    ClockFlooredCounter,
    /// A number that the store draws for every change it commits (zxid, revision).
    CommitNumber,
    /// A counter for each name, which other clients increment, too. The counter rises as long as the store keeps it, and restarts if it is
    /// lost.
    Counter,
    /// The store has no tokens.
    None,
}
