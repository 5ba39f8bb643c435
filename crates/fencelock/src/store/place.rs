//! A place in a queue: its standing and its end.

use futures_core::future::BoxFuture;

use super::PlaceId;
use super::words::words;
use crate::error::Result;
use crate::queue::Claim;
use crate::time::Moment;
use crate::token::FencingToken;

/// A place in a queue, with the store's private cursor. Dropping it ends the subscription, not the place.
pub trait Place: Send {
    /// The identity of the place.
    fn id(&self) -> PlaceId;

    /// The standing as last reported, without I/O.
    fn standing(&self) -> Standing;

    /// Waits until the standing may have changed, and returns the present one: at once if the store already differs or the place is
    /// granted, at `until` at the latest. An error of [`ErrorKind::Lost`](crate::ErrorKind::Lost) means that the whole session has ended.
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

/// The result of [`Place::leave`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The place was there and is gone now.
    Released,
    /// The place was gone already.
    AlreadyGone,
}

/// The state of a contender in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The contender holds the lock.
    Granted(Grant),
    /// The contender waits; how many are ahead, where the store can count them.
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

/// The number of contenders ahead. Some of them may have left already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ahead {
    /// The number of holders.
    pub holders: u32,
    /// The number of waiters.
    pub waiters: u32,
}

impl Ahead {
    /// An `Ahead` with these numbers of holders and waiters.
    #[must_use]
    pub const fn new(holders: u32, waiters: u32) -> Self {
        Self { holders, waiters }
    }

    /// `all` contenders, of which `holders` hold the lock.
    #[allow(dead_code, reason = "unused without some stores")]
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
    /// The end of the grant itself, even if its session lives on; `None` where the session alone decides. On the clock of the client that
    /// holds it, and `None` for grants of other clients. Renewals may extend or shorten it. A grant that arrives later than the margin
    /// before this end is released at once, and counts as a failure of the store.
    pub valid_until: Option<Moment>,
}

impl Grant {
    /// A grant that holds as long as its session does.
    #[must_use]
    pub const fn new(token: Option<FencingToken>) -> Self {
        Self { token, valid_until: None }
    }
}

words! {
    /// Why a place was lost without a release.
    pub enum Loss {
        /// The session expired in the store.
        Expired = "the session expired in the store",
        /// The server became a replica, and its grants may be unknown to the present primary.
        Demoted = "the server is a replica now, and its primary may not know of it",
        /// Another server answers instead of the server that granted the lock, such as a promoted replica, and may lack the grant.
        Replaced = "another server answers in the place of the one that granted it, and may not know of it",
        /// The server was started anew and may have forgotten its grants.
        Restarted = "the server was started anew and may have forgotten it",
        /// The client connected anew to a server that does not say whether it restarted meanwhile.
        PerhapsRestarted = "the connection was made anew to a server that does not tell whether it was started anew, and may have forgotten it",
        /// No renewal was confirmed until the safety margin before the ttl ran out: another client may be granted soon.
        Unconfirmed = "no renewal was confirmed in time",
        /// A user or another program removed the place from the store.
        Removed = "it was removed from the store",
        /// A client or a user broke the grant with a force-release.
        Broken = "it was broken by a force-release",
        /// The grant was held for `max_hold`.
        HeldTooLong = "it was held for max_hold",
        /// The client was closed.
        Closed = "the client was closed",
    }
}
