//! The answers of the scripts.

use std::sync::Arc;
use std::time::SystemTime;

use crate::kit::served::Broken;
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Owner, RequestId};

/// The answer to `open`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Open {
    /// The session is open, and this is its epoch.
    Opened(u64),
    /// The keys of the server are of this other version.
    Layout(String),
}

/// The answer to `renew`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Renewed {
    /// The session lives.
    Alive {
        /// Broken grants of the session, which each answer repeats until the session acknowledges them.
        broken: Vec<Broken>,
        /// Buckets of the request that are not the ones in which the session was granted its places.
        lost: Vec<LostBucket>,
    },
    /// The session is gone, with all its places.
    Gone,
}

/// A bucket that is gone, or was made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LostBucket {
    /// The index of the bucket in the request, from 0.
    pub(in crate::stores::redis::fair) index: usize,
    /// The first number of the new bucket.
    pub(in crate::stores::redis::fair) born: Option<u64>,
}

/// A contender of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(in crate::stores::redis::fair) id: RequestId,
    pub(in crate::stores::redis::fair) granted: bool,
    /// The place's number: its order and its token.
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
pub(crate) struct ShownPage {
    /// The length of the queue, with dead contenders that were not cleared away yet.
    pub(in crate::stores::redis::fair) queued: usize,
    /// How many of the contenders that the script looked at are dead.
    pub(in crate::stores::redis::fair) dead: usize,
    /// How many living contenders were skipped.
    pub(in crate::stores::redis::fair) skipped: usize,
    /// Whether the script reached the end of the queue.
    pub(in crate::stores::redis::fair) at_end: bool,
    /// The number of the last contender that the script looked at.
    pub(in crate::stores::redis::fair) last: Option<u64>,
    pub(in crate::stores::redis::fair) places: Vec<Shown>,
}

/// The outline of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InShort {
    pub(in crate::stores::redis::fair) queued: usize,
    pub(in crate::stores::redis::fair) holders: usize,
    /// The positions of the requested places, 1 for the front.
    pub(in crate::stores::redis::fair) positions: Vec<Option<usize>>,
    pub(in crate::stores::redis::fair) head: Option<Shown>,
}

/// Names of some buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamesFound {
    /// A name may come twice.
    pub(in crate::stores::redis::fair) names: Vec<Name>,
    /// Buckets that are keys of another type: no client can have a lock there.
    pub(in crate::stores::redis::fair) foreign: Vec<String>,
    /// The position of the next call.
    pub(in crate::stores::redis::fair) swept: Swept,
}

/// The position of a clear-up or of a listing of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Swept {
    /// In an answer, the number of finished buckets.
    pub(in crate::stores::redis::fair) bucket: u16,
    /// The server's cursor in the next bucket.
    pub(in crate::stores::redis::fair) cursor: String,
}
