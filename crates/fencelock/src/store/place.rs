//! A place in a queue: where it stands, and how it ends.

use std::fmt;

use futures_core::future::BoxFuture;

use super::PlaceId;
use crate::error::Result;
use crate::queue::Claim;
use crate::time::Moment;
use crate::token::FencingToken;

/// One place in one queue, with the store's private cursor. Dropping it ends the subscription, not the place.
pub trait Place: Send {
    /// Which place this is.
    fn id(&self) -> PlaceId;

    /// The standing as last told, without I/O.
    fn standing(&self) -> Standing;

    /// Returns when the standing may have changed, with the new one; at once if the store already differs; at `until`
    /// at the latest, with the standing as it is then. Once granted, it returns at once. An error of
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) means that the whole session is over.
    ///
    /// # Cancel safety
    /// May be dropped at any point and called again.
    fn next(&mut self, until: Moment) -> BoxFuture<'_, Result<Standing>>;

    /// Replaces the claim of a granted place by a lighter one of the same capacity, or by itself, keeping the place. Counts as a departure. Repeatable; an
    /// error of [`ErrorKind::Lost`](crate::ErrorKind::Lost) means that the place is gone.
    ///
    /// # Cancel safety
    /// May be dropped at any point. The place has one of the two claims then, and [`Place::leave`] gives it up.
    fn lighten(&mut self, claim: Claim) -> BoxFuture<'_, Result<()>>;

    /// Gives up this place, and no later one of the same name. Repeatable.
    fn leave(&mut self) -> BoxFuture<'_, Result<Left>>;
}

/// What `leave` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The place was there and is gone now.
    Released,
    /// It was gone already.
    AlreadyGone,
}

/// Where a contender stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It holds the lock.
    Granted(Grant),
    /// It waits; who is ahead, where the store can tell.
    Waiting(Option<Ahead>),
    /// The place is gone.
    Lost(Loss),
}

impl Standing {
    pub(crate) fn grant(self) -> Option<Grant> {
        match self {
            Self::Granted(grant) => Some(grant),
            Self::Waiting(_) | Self::Lost(_) => None,
        }
    }
}

/// How many contenders are ahead. Some of them may have left already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ahead {
    /// Those that hold the lock.
    pub holders: u32,
    /// Those that wait.
    pub waiters: u32,
}

impl Ahead {
    /// That many.
    #[must_use]
    pub const fn new(holders: u32, waiters: u32) -> Self {
        Self { holders, waiters }
    }

    /// So many in all, of whom this many hold the lock.
    #[allow(dead_code, reason = "in a build with some stores only, nobody may ask")]
    pub(crate) fn of(all: usize, holders: usize) -> Self {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Self { holders: number(holders), waiters: number(all.saturating_sub(holders)) }
    }
}

/// A grant, as the store numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The fencing token; `None` where the store has none.
    pub token: Option<FencingToken>,
    /// Until when it holds by itself, whatever becomes of its session; `None` where the session says all. On the clock of the
    /// client that holds it, and `None` for what others hold. Renewals may prolong or shorten it. A grant that is told later than
    /// the margin before this is left at once, and counts as a failure of the store.
    pub valid_until: Option<Moment>,
}

impl Grant {
    /// A grant that holds as long as its session does.
    #[must_use]
    pub const fn new(token: Option<FencingToken>) -> Self {
        Self { token, valid_until: None }
    }
}

/// Why a place is gone although nobody gave it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The session expired in the store.
    Expired,
    /// The server became a replica, and what it granted may be unknown to the server that is the primary now.
    Demoted,
    /// Another server answers in the place of the one that granted it, such as a replica that was promoted, and may not know of it.
    Replaced,
    /// The server was started anew and may have forgotten what it granted.
    Restarted,
    /// A connection was made anew to a server that does not tell whether it was started anew meanwhile, so it may have been.
    PerhapsRestarted,
    /// No renewal was confirmed until the safety margin before the ttl ran out: another client may be granted soon.
    Unconfirmed,
    /// Somebody removed the place from the store.
    Removed,
    /// Somebody broke the grant with a force-release.
    Broken,
    /// The grant was held for `max_hold`.
    HeldTooLong,
    /// The client was closed.
    Closed,
}

impl Loss {
    /// Each of them, in their order.
    pub(crate) const ALL: [Self; 10] = [
        Self::Expired,
        Self::Demoted,
        Self::Replaced,
        Self::Restarted,
        Self::PerhapsRestarted,
        Self::Unconfirmed,
        Self::Removed,
        Self::Broken,
        Self::HeldTooLong,
        Self::Closed,
    ];
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the session expired in the store",
            Self::Demoted => "the server is a replica now, and its primary may not know of it",
            Self::Replaced => "another server answers in the place of the one that granted it, and may not know of it",
            Self::Restarted => "the server was started anew and may have forgotten it",
            Self::PerhapsRestarted => {
                "the connection was made anew to a server that does not tell whether it was started anew, and may have forgotten it"
            }
            Self::Unconfirmed => "no renewal was confirmed in time",
            Self::Removed => "somebody removed it from the store",
            Self::Broken => "it was broken by a force-release",
            Self::HeldTooLong => "it was held for max_hold",
            Self::Closed => "the client was closed",
        })
    }
}
