//! The records of a history.

use std::collections::HashMap;

use fencelock::inspect::Claim;
use serde::Serialize;

/// A history: every section that the processes logged, and every write that the resource saw, in its order.
///
/// Times are nanoseconds on one clock that all processes share.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The sections, in no order.
    pub sections: Vec<Section>,
    /// The writes to the fenced resources, in the order in which these decided on them.
    pub writes: Vec<Write>,
    /// The names of the locks, by [`Section::lock`].
    pub locks: Vec<String>,
    /// The names of the clients, by [`Section::client`].
    pub clients: Vec<String>,
    /// When the store lost its memory, or its clock jumped ahead.
    pub lapses: Vec<Lapse>,
    /// When clients were certainly dead, by [`Section::client`].
    pub deaths: HashMap<u32, u64>,
    numbers: HashMap<String, u32>,
}

impl History {
    /// The number of the lock `name`.
    pub fn lock(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = numbered(&self.locks);
        self.locks.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// A new client; names need not be unique.
    pub fn client(&mut self, name: &str) -> u32 {
        let number = numbered(&self.clients);
        self.clients.push(name.to_owned());
        number
    }
}

/// The number of the next of `list`; a history that names more than four thousand million locks saturates.
fn numbered(list: &[String]) -> u32 {
    u32::try_from(list.len()).unwrap_or(u32::MAX)
}

/// A moment at which leases ended early, as [`Capability::presumes`](fencelock::capability::Capability::presumes) says that they can:
/// the store lost its memory, or the clock that it judges them by jumped ahead.
///
/// An older holder, granted before, and a newer one may both believe in their locks for a while, since no client can notice
/// the lapse. Still laws: the older holder's belief ends in time, tokens rise, and resources that saw the newer holder refuse
/// the older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Lapse {
    /// The lapse begins no earlier.
    pub from: u64,
    /// The lapse has certainly ended by then: a later request was granted after it.
    pub over: u64,
    /// By then the lapse has ended, and all clients have read the answers of earlier grants.
    pub by: u64,
    /// When holders from before the lapse must have stopped believing.
    pub believed_until: u64,
}

impl Lapse {
    /// Whether the lapse may lie between two grants. `earlier` asked for its place before the end of the lapse, and read of its grant soon
    /// enough for a grant from before; `later` read of its grant after the lapse began.
    pub(super) fn parts(&self, earlier: &Section, later: &Section) -> bool {
        let (Some((start, end)), Some((later_start, _))) = (earlier.core(), later.core()) else { return false };
        let was_before = earlier.enqueued().called <= self.over && start <= self.by && end <= self.believed_until;
        was_before && self.from <= later_start
    }
}

/// An attempt to take a lock, and its outcome, as its client saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// The lock, an index into [`History::locks`].
    pub lock: u32,
    /// The section's client, an index into [`History::clients`].
    pub client: u32,
    /// The claim of the request.
    pub claim: Claim,
    /// When the acquire was called.
    pub called: u64,
    /// When the place was taken in the queue, where the client can tell; the last time if it had to queue again.
    pub enqueue: Option<Enqueue>,
    /// How the acquire ended.
    pub answer: Answer,
    /// For a holder that crashed, the last moment at which the holder was certainly inside; otherwise 0.
    pub seen_inside: u64,
    /// When the release was called.
    pub released: Option<u64>,
    /// The moment from which the holder no longer believed in its lock: notified of a loss, or past its own deadline.
    pub belief_end: Option<u64>,
    /// When the place was certainly gone from the store; `None` when unknown.
    pub gone: Option<u64>,
}

/// When a place in the queue was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enqueue {
    /// The earliest possible time.
    pub called: u64,
    /// The latest possible time.
    pub returned: u64,
}

/// How an acquire ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Never answered: the process died, or the history ended.
    Unanswered,
    /// Granted.
    Granted {
        /// When the caller had the answer.
        at: u64,
        /// The fencing token, packed; `None` where the store has none.
        token: Option<i64>,
    },
    /// A `try_acquire` found a contender ahead.
    Busy {
        /// When the caller had the answer.
        at: u64,
    },
    /// Timed out, cancelled or failed.
    GaveUp {
        /// When the caller had the answer.
        at: u64,
    },
}

impl Section {
    /// A section whose acquire was called, without further events.
    #[must_use]
    pub const fn called(lock: u32, client: u32, claim: Claim, called: u64) -> Self {
        Self {
            lock,
            client,
            claim,
            called,
            enqueue: None,
            answer: Answer::Unanswered,
            seen_inside: 0,
            released: None,
            belief_end: None,
            gone: None,
        }
    }

    /// The time in which the holder was certainly inside and believed so; `None` if there was none.
    ///
    /// The core of a holder that crashed ends at the last moment it proved to be inside; that of a release without an
    /// answer at the call.
    #[must_use]
    pub fn core(&self) -> Option<(u64, u64)> {
        let Answer::Granted { at: start, .. } = self.answer else { return None };
        let left = self.released.unwrap_or_else(|| self.seen_inside.max(start));
        let end = self.belief_end.map_or(left, |belief_end| left.min(belief_end));
        (start <= end).then_some((start, end))
    }

    /// When the place was taken: the earliest and the latest time.
    #[must_use]
    pub fn enqueued(&self) -> Enqueue {
        let answered = match self.answer {
            Answer::Granted { at, .. } | Answer::Busy { at } | Answer::GaveUp { at } => at,
            Answer::Unanswered => u64::MAX,
        };
        self.enqueue.unwrap_or(Enqueue { called: self.called, returned: answered })
    }
}

/// A write to a fenced resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// The lock that protects the resource, an index into [`History::locks`].
    pub lock: u32,
    /// The token of the write, packed.
    pub token: i64,
    /// Whether the resource accepted the write.
    pub accepted: bool,
}
