//! What the scripts answer.

use std::sync::Arc;
use std::time::SystemTime;

use crate::kit::served::Broken;
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Owner, RequestId};

/// The answer to `open`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis::fair) enum Open {
    /// The session is open, and this is its epoch.
    Opened(u64),
    /// The keys of the server are of this other version.
    Layout(String),
}

/// The answer to `renew`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis::fair) enum Renewed {
    /// The session lives.
    Alive {
        /// These grants of it were broken, and are told until they are acknowledged.
        broken: Vec<Broken>,
        /// These of the buckets that were asked for are not those in which it was granted its places.
        lost: Vec<LostBucket>,
    },
    /// It is gone, and everything that hung on it.
    Gone,
}

/// A bucket that is gone, or was made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stores::redis::fair) struct LostBucket {
    /// Which of those that were asked for, from 0.
    pub(in crate::stores::redis::fair) index: usize,
    /// The first number that was drawn in the new one.
    pub(in crate::stores::redis::fair) born: Option<u64>,
}

/// One contender of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis::fair) struct Shown {
    pub(in crate::stores::redis::fair) id: RequestId,
    pub(in crate::stores::redis::fair) granted: bool,
    /// Its number: order and token.
    pub(in crate::stores::redis::fair) seq: u64,
    pub(in crate::stores::redis::fair) claim: Claim,
    /// Since when it holds the lock, or waits, by the server's clock.
    pub(in crate::stores::redis::fair) since: SystemTime,
    pub(in crate::stores::redis::fair) session: u64,
    pub(in crate::stores::redis::fair) purpose: Option<Arc<str>>,
    pub(in crate::stores::redis::fair) owner: Option<Owner>,
}

/// Part of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis::fair) struct Page {
    /// How many are in the queue, the dead included who were not cleared away yet.
    pub(in crate::stores::redis::fair) queued: usize,
    /// How many of those looked at are dead.
    pub(in crate::stores::redis::fair) dead: usize,
    /// How many of the living were left out.
    pub(in crate::stores::redis::fair) skipped: usize,
    /// Whether nobody is behind those looked at.
    pub(in crate::stores::redis::fair) at_end: bool,
    /// The number of the last one that was looked at.
    pub(in crate::stores::redis::fair) last: Option<u64>,
    pub(in crate::stores::redis::fair) places: Vec<Shown>,
}

/// A queue in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis::fair) struct InShort {
    pub(in crate::stores::redis::fair) queued: usize,
    pub(in crate::stores::redis::fair) holders: usize,
    /// Where those stand who were asked for, 1 for the front.
    pub(in crate::stores::redis::fair) positions: Vec<Option<usize>>,
    pub(in crate::stores::redis::fair) head: Option<Shown>,
}

/// Names of some buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis::fair) struct Named {
    /// A name may come twice.
    pub(in crate::stores::redis::fair) names: Vec<Name>,
    /// Buckets that are keys of another type: nobody can have a lock there.
    pub(in crate::stores::redis::fair) foreign: Vec<String>,
    /// How far that came.
    pub(in crate::stores::redis::fair) swept: Swept,
}

/// How far clearing up after the dead, or listing names, has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis::fair) struct Swept {
    /// In an answer, how many buckets were gone through.
    pub(in crate::stores::redis::fair) bucket: u16,
    /// Where the next bucket was left off, as the server says it.
    pub(in crate::stores::redis::fair) cursor: String,
}
