//! What a store can and cannot do, asked before it is called.

use std::time::Duration;

/// What a store promises, as data: the capability table in the docs and `fencelock stores` are made from it, and the
/// conformance suite holds the store to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capability {
    /// The store, as its URL scheme names it.
    pub store: &'static str,
    /// The bytes it keeps: name and version of the layout.
    pub layout: &'static str,
    /// What keeps a place alive, and who judges that it is not.
    pub liveness: Liveness,
    /// Whether contenders are served in the order of their arrival.
    pub order: Order,
    /// Where fencing tokens come from.
    pub tokens: Tokens,
    /// What the time that a guard calls "certainly safe" presumes.
    pub certainty: &'static str,
    /// Whether claims other than a mutex's are understood (readers, writers, permits).
    pub shared_claims: bool,
    /// A dead session's places go within its ttl plus this, by the store's clock.
    pub detection_slack: Duration,
    /// `Place::next` returns within this time of the change that it waits for.
    pub wake_bound: Duration,
    /// What an idle name may leave in the store, in words; empty for nothing.
    pub residue: &'static str,
    /// Whether its calls are short system calls that block the thread, so that they belong on a thread of their own.
    pub blocking: bool,
}

/// What keeps a place alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Liveness {
    /// The kernel: places die with the process, and time plays no part.
    Process,
    /// A session that the store's servers expire by a monotonic clock.
    Session,
    /// A lease that expires by the store's wall clock.
    Lease,
    /// Nothing but memory of this process.
    Memory,
}

/// The order in which contenders are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// First come, first served, by the order in which the store took the arrivals.
    Fifo,
    /// None: whoever tries at the right moment.
    None,
}

/// Where fencing tokens come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tokens {
    /// A counter that is floored by the store's clock, so that it rises over idle times and lost counters.
    ClockFlooredCounter,
    /// A number that the store draws for every change it commits (zxid, revision).
    CommitNumber,
    /// There are none.
    None,
}
