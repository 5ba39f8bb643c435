//! What the scripts answer.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Ahead, Owner, PlaceId, RequestId};

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

/// A grant that somebody broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis::fair) struct Broken {
    pub(in crate::stores::redis::fair) place: PlaceId,
    pub(in crate::stores::redis::fair) grant: u64,
    pub(in crate::stores::redis::fair) reason: Arc<str>,
}

/// The answer to `enter`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis::fair) enum Enter {
    /// The place is granted; this is its number.
    Granted(u64),
    /// It waits.
    Waiting {
        /// Its number, which its grant will have.
        seq: u64,
        /// Who is ahead.
        ahead: Ahead,
        /// In what time somebody ahead could be found dead.
        look_in: Option<Duration>,
    },
    /// Somebody is ahead, and nothing was left behind.
    Busy,
    /// All who were looked at are dead, and gone now; there are more. To be sent again.
    Again,
    /// Somebody ahead believes in another capacity; nothing was left behind.
    Conflict(Claim),
    /// The session has this higher epoch; nothing was done.
    Stale(u64),
    /// The session is over; nothing was done.
    Gone,
}

/// The answer to `look`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis::fair) struct Look {
    /// Whether the session lives; if not, nothing else is told.
    pub(in crate::stores::redis::fair) alive: bool,
    /// What was asked for, in the same order.
    pub(in crate::stores::redis::fair) names: Vec<Looked>,
}

/// How the places under one name stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis::fair) struct Looked {
    /// In what time somebody could be found dead who keeps others waiting; `None` when nobody waits.
    pub(in crate::stores::redis::fair) look_in: Option<Duration>,
    /// The places asked for, in the same order.
    pub(in crate::stores::redis::fair) places: Vec<Seen>,
}

/// How one place stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stores::redis::fair) enum Seen {
    /// It is granted, with this number.
    Granted(u64),
    /// It waits with this number; who is ahead, if that was asked for.
    Waiting(u64, Option<Ahead>),
    /// It is not there.
    Missing,
}

/// The answer to `lighten`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stores::redis::fair) enum Lightened {
    /// The grant has the claim.
    Done,
    /// There is no such grant.
    Missing,
}

/// The answer to `withdraw`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::stores::redis::fair) struct Withdrawn {
    /// The epoch that requests need from now on; `None` when the session is over, which lets none in.
    pub(in crate::stores::redis::fair) epoch: Option<u64>,
    /// Whether the place was there.
    pub(in crate::stores::redis::fair) was_there: bool,
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
    pub(in crate::stores::redis::fair) lease: Option<Duration>,
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

/// What a user may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stores::redis::fair) struct Probed {
    /// The version of the layout that is there, or that we begin with.
    pub(in crate::stores::redis::fair) version: String,
    /// Commands, and why the server refuses them.
    pub(in crate::stores::redis::fair) refused: Vec<(String, String)>,
}
