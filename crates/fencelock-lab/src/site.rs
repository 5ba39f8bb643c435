//! The store of a drill, and the outages that the drill can cause there.

use std::fmt;
use std::io;
use std::time::Duration;

use fencelock::ErrorKind;

use crate::history::Lapse;

/// A fault of a store's servers, or of the network between servers and workers, that lasts until the drill mends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Outage {
    /// The server that decides is killed.
    LeaderKilled,
    /// The server that decides is stopped, and its connections stay.
    LeaderPaused,
    /// The server that decides is cut off from all others.
    LeaderCutOff,
    /// A server that follows is cut off from the one that decides, and from no other.
    FollowerCut,
    /// A worker's connections, old and new, carry nothing until the outage is mended. No byte is lost.
    WorkerCut,
    /// The bytes of a worker on its open connections arrive only later; new connections are fine.
    WorkerHeldBack,
    /// A worker's connections, old and new, drop all bytes in both directions.
    WorkerHoled,
    /// All clients' connections to one server drop every byte.
    ServerHoled,
    /// A server is killed and started again at once.
    ServerRestarted,
    /// Every connection is reset once.
    ConnectionsReset,
    /// A worker's connection ends in the middle of an answer: after a random number of bytes below
    /// [`Outage::ANSWER_BYTES`].
    AnswerCut,
    /// The server that decides forgets everything.
    MemoryLost,
    /// The clock that leases are judged by is a minute ahead.
    ClockAhead,
    /// The clock that leases are judged by is a minute late.
    ClockBehind,
    /// The server is busy without end, and answers so to all clients.
    ServerBusy,
    /// The server lets all clients wait.
    ServerWaits,
    /// The server forgets the programs that were loaded into it, once.
    ScriptsForgotten,
    /// The numbers that order the queues come to their end: either all are used up, or a few are left, as the random
    /// number says.
    NumbersEnd,
    /// Every queue has too many nodes of other programs for an answer that lists it.
    QueuesOverflow,
}

impl Outage {
    /// More bytes than any answer to an acquire has.
    pub const ANSWER_BYTES: u64 = 400;

    /// The kind of permanent error that the store returns during this outage, if any. Any other permanent error at a worker
    /// is a fault of the store.
    #[must_use]
    pub fn refusal(self) -> Option<ErrorKind> {
        matches!(self, Self::NumbersEnd | Self::QueuesOverflow).then_some(ErrorKind::Exhausted)
    }

    /// The outages of a storm: all that cause no refusal.
    pub const ALL: [Self; 17] = [
        Self::LeaderKilled,
        Self::LeaderPaused,
        Self::LeaderCutOff,
        Self::FollowerCut,
        Self::WorkerCut,
        Self::WorkerHeldBack,
        Self::WorkerHoled,
        Self::ServerHoled,
        Self::ServerRestarted,
        Self::ConnectionsReset,
        Self::AnswerCut,
        Self::MemoryLost,
        Self::ClockAhead,
        Self::ClockBehind,
        Self::ServerBusy,
        Self::ServerWaits,
        Self::ScriptsForgotten,
    ];

    /// Whether the outage presumes a server that keeps its data in memory, runs clients' scripts, and judges leases by
    /// its wall clock.
    #[must_use]
    pub fn is_of_memory_and_clock(self) -> bool {
        matches!(
            self,
            Self::MemoryLost
                | Self::ClockAhead
                | Self::ClockBehind
                | Self::ServerBusy
                | Self::ServerWaits
                | Self::ScriptsForgotten
        )
    }
}

/// The store of a drill: its URLs, and the outages that can be caused there. Each kind of server has a site of its own.
/// A strategy runs at every site that can cause the outages of the strategy.
pub trait Site: fmt::Debug + Send + Sync {
    /// The URL by which the worker with this number opens the store. Each worker has a route of its own, which an
    /// outage can cut. The harness uses the route after the last worker's.
    fn url(&self, worker: usize) -> String;

    /// The ttl of places there, from the URLs.
    fn ttl(&self) -> Duration;

    /// Whether the site can have this outage.
    fn can(&self, outage: Outage) -> bool {
        let _ = outage;
        false
    }

    /// Breaks something, and returns once it is broken. An outage of one worker breaks the route of `worker`; `random` decides the rest.
    ///
    /// # Errors
    /// An error of the system.
    fn strike(&self, outage: Outage, worker: usize, random: u64) -> io::Result<()> {
        let _ = (worker, random);
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("{outage:?} cannot befall this store")))
    }

    /// How many connections were ended by [`Outage::AnswerCut`] so far.
    fn cuts(&self) -> u64 {
        0
    }

    /// The offsets, in bytes, at which to cut the answer to an acquire of the free lock `name`: the ends and the middles
    /// of its fields.
    fn answer_fields(&self, name: &str) -> Vec<u64> {
        let _ = name;
        Vec::new()
    }

    /// The times so far at which leases may have ended early, for a reason that the store's presumptions name.
    fn lapses(&self) -> Vec<Lapse> {
        Vec::new()
    }

    /// Repairs that no outage here explains, in words.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Mends everything, and returns once the store serves again. Repeatable.
    ///
    /// # Errors
    /// An error if the store does not serve again.
    fn heal(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A store without outages: only the workers' processes can be broken.
#[derive(Debug, Clone)]
pub struct Unbreakable {
    /// The store.
    pub url: String,
    /// How long places live unrenewed there; zero where they end with their process.
    pub ttl: Duration,
}

impl Site for Unbreakable {
    fn url(&self, _worker: usize) -> String {
        self.url.clone()
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }
}
