//! The answers of a server that keeps queues for its clients.

use std::sync::Arc;
use std::time::Duration;

use crate::queue::Claim;
use crate::store::{Ahead, PlaceId};

/// A grant that a user broke.
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
    /// The place waits.
    Waiting {
        /// The number of the place, and of its grant later.
        seq: u64,
        ahead: Option<Ahead>,
        /// The time until the server could find a contender ahead dead.
        look_in: Option<Duration>,
    },
    /// A contender is ahead. The request left nothing in the store.
    Busy,
    /// The server looked at some contenders and removed them: all were dead. There are more, so the client sends the request again.
    Again,
    /// A contender ahead believes in another capacity. The request left nothing in the store.
    Conflict(Claim),
    /// The session has this higher epoch. The request changed nothing.
    Stale(u64),
    /// The session has ended. The request changed nothing.
    Gone,
}

/// The answer to `look`: the names of the request, in the same order; `None` if the session has ended.
pub(crate) type Look = Option<Vec<Looked>>;

/// The standing of the places under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Looked {
    /// The time after which the server could find a contender dead that blocks other contenders; `None` if no contender waits.
    pub(crate) look_in: Option<Duration>,
    /// The places of the request, in the same order.
    pub(crate) places: Vec<Seen>,
}

/// The standing of one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The place is granted, with this number.
    Granted(u64),
    /// The place waits with this number. `Ahead` is there only if the request asked for it.
    Waiting(u64, Option<Ahead>),
    /// The store has no such place.
    Missing,
}
