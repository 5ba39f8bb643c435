//! What a server answers that keeps queues for its clients.

use std::sync::Arc;
use std::time::Duration;

use crate::queue::Claim;
use crate::store::{Ahead, PlaceId};

/// A grant that somebody broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) place: PlaceId,
    pub(crate) grant: u64,
    pub(crate) reason: Arc<str>,
}

/// The answer to `enter`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Enter {
    /// The place is granted; this is its number.
    Granted(u64),
    /// It waits.
    Waiting {
        /// Its number, which its grant will have.
        seq: u64,
        ahead: Option<Ahead>,
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
pub(crate) struct Look {
    /// Whether the session lives; if not, nothing else is told.
    pub(crate) alive: bool,
    /// What was asked for, in the same order.
    pub(crate) names: Vec<Looked>,
}

/// How the places under one name stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Looked {
    /// In what time somebody could be found dead who keeps others waiting; `None` when nobody waits.
    pub(crate) look_in: Option<Duration>,
    /// The places asked for, in the same order.
    pub(crate) places: Vec<Seen>,
}

/// How one place stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It is granted, with this number.
    Granted(u64),
    /// It waits with this number; who is ahead, if that was asked for.
    Waiting(u64, Option<Ahead>),
    /// It is not there.
    Missing,
}

/// The answer to `lighten`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lightened {
    /// The grant has the claim.
    Done,
    /// There is no such grant.
    Missing,
}

/// The answer to `withdraw`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Withdrawn {
    /// The epoch that requests need from now on; `None` when the session is over, which lets none in.
    pub(crate) epoch: Option<u64>,
    pub(crate) was_there: bool,
}
