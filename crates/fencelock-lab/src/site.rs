//! Where a drill takes place, and what can be broken there besides its workers.

use std::fmt;
use std::io;
use std::time::Duration;

use fencelock::ErrorKind;

use crate::history::Lapse;

/// Something that befalls the servers of a store, or the network between them and the workers, until it is mended.
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
    /// A worker's connections carry nothing, and neither do new ones; nothing that was sent is lost.
    WorkerCut,
    /// The bytes of a worker on its open connections arrive only later; new connections are fine.
    WorkerHeldBack,
    /// A worker's connections swallow all bytes in either direction, and so do new ones.
    WorkerHoled,
    /// All clients' connections to one server swallow every byte.
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
    /// The server is busy with something that does not end, and says so to all clients.
    ServerBusy,
    /// The server lets all clients wait.
    ServerWaits,
    /// The server forgets the programs that were loaded into it, once.
    ScriptsForgotten,
    /// The numbers that order the queues come to their end: either all are used up, or a few are left, as the random
    /// number says.
    NumbersEnd,
    /// Every queue has so many nodes of other programs that no answer can list it.
    QueuesOverflow,
}

impl Outage {
    /// Further than any answer to one acquire reaches.
    pub const ANSWER_BYTES: u64 = 400;

    /// The kind of error with which the store refuses during this outage, if it does: a worker that receives any other error
    /// that no retry can help has found a fault.
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

    /// Whether only a server can suffer it that keeps all in memory, runs what clients load into it, and judges leases by
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

/// A store as a drill finds it: where it is, and what can be broken there. Every kind of server has one of its own, and
/// every strategy runs at all of them that can do what it asks for.
pub trait Site: fmt::Debug + Send + Sync {
    /// The store, as the worker with this number opens it: each worker has a way of its own, so that it can be cut. The
    /// harness itself comes by the way of the number after the last.
    fn url(&self, worker: usize) -> String;

    /// How long places live unrenewed there, as those URLs say.
    fn ttl(&self) -> Duration;

    /// Whether the site can have this outage.
    fn can(&self, outage: Outage) -> bool {
        let _ = outage;
        false
    }

    /// Breaks something, and returns once it is broken. An outage of one worker breaks the way of `worker`; `random` decides the rest.
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

    /// After how many bytes of what is answered to an acquire of the free lock `name` a field of it ends, or is in its
    /// middle: where to cut.
    fn answer_fields(&self, name: &str) -> Vec<u64> {
        let _ = name;
        Vec::new()
    }

    /// When leases ended early so far, as the store's certainty says that they can.
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
    /// When it does not come back.
    fn heal(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A store of which nothing can be broken but the processes that use it.
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
