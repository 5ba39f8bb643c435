//! Locks without a queue: the client that finds a lock free has it. Contenders of one session line up among themselves, and the first of
//! them tries again until it has it. Lines, tries, renewals, losses and releases are the same whatever the server is.
//!
//! A layout says how it asks its server: about locks of a session in [`UnqueuedBackend`], about everybody's in [`Server`](super::server::Server). The way there is a
//! [`Reconnect`](super::reconnect::Reconnect). Everything else of the contract is here, once.

mod channels;
mod handle;
mod places;
mod session;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::places::{Next, Places, Try, Work};
pub(crate) use self::session::{TryAgainSession, Wire};
use super::reconnect::Dial;
use crate::error::{Error, ErrorKind, Result};
use crate::queue::Claim;
use crate::store::{Entry, PlaceId};
use crate::token::FencingToken;

/// How long the first of a line sleeps at most beside a lock that is free: a pause and a request.
pub(crate) const WAKE_BOUND: Duration = Duration::from_secs(2);

/// How long after the end of a lock it is tried: also of one that is prolonged by a few milliseconds for ever.
const AFTER_THE_END: Duration = Duration::from_millis(20);

/// What became of a try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tried {
    /// With a token, where the layout has one.
    Granted(Option<FencingToken>),
    /// Somebody's, for so long at least unless it is given up; `None` for a lock without an end, or where nobody knows.
    Busy(Option<Duration>),
    /// What this type of thing holds is no lock of this layout.
    Other(String),
}

/// Which locks were not prolonged, by their indices, in their order.
#[derive(Debug, Default)]
pub(crate) struct Prolonged {
    pub(crate) lost: Vec<usize>,
    /// Nobody can tell of these: they keep the end that they have.
    pub(crate) unknown: Vec<usize>,
}

impl Prolonged {
    pub(crate) fn but(lost: Vec<usize>) -> Self {
        Self { lost, ..Self::default() }
    }
}

/// How the lines of a session are tried for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trying {
    /// The shortest time between two tries for one lock. The longest is three times as much, by chance.
    pub(crate) pause: Duration,
    /// Whether releases are told.
    pub(crate) hears: bool,
    /// Whether one request can release a lock and take it for the next of the line.
    pub(crate) passes: bool,
    /// What the locks of this layout are in the server.
    pub(crate) kind: &'static str,
}

impl Trying {
    /// How long the first of a line waits until its next try, for a lock that lives so long unless it is given up sooner.
    fn pause_of(&self, left: Option<Duration>) -> Duration {
        let most = u64::try_from(2 * self.pause.as_millis()).unwrap_or(u64::MAX).max(1);
        let pause = self.pause + Duration::from_millis(getrandom::u64().unwrap_or_default() % most);
        left.map_or(pause, |left| pause.min(left + AFTER_THE_END + pause / 8))
    }

    /// The lock is taken by something that is no lock of this layout, for which nobody can wait. The caller adds the name.
    pub(crate) fn other_kind(&self, operation: &'static str, kind: &str) -> Error {
        let message = "the name is held by another kind of lock, or is no lock: use another name or prefix, or the layout of that lock";
        Error::new(ErrorKind::Layout, operation, message).with("type", kind).with("known", self.kind)
    }
}

/// What the server is asked about the locks of one session.
pub(crate) trait UnqueuedBackend: Send + Sync + 'static {
    /// How a connection to the server is made.
    type Dial: Dial;

    /// Refuses what this layout cannot do, and says what others are to see of who holds the lock.
    fn check(&self, entry: &Entry) -> Result<String>;

    /// Takes a lock that is free, or finds that this request has it. `is_new`: it was never sent before.
    fn take(&self, connection: &Wire<Self>, due: &Try, is_new: bool) -> impl Future<Output = Result<Tried>> + Send;

    /// How long what is granted is good for, from before it was asked for.
    fn validity(&self, ttl: Duration) -> Duration {
        ttl
    }

    /// Prolongs these locks by a ttl. With none of them it says that the session can do that.
    fn renew(&self, connection: &Wire<Self>, places: &[PlaceId]) -> impl Future<Output = Result<Prolonged>> + Send;

    /// What locks are given up on in a layout that reaches a part of its servers also where those are missing that it takes for all else.
    fn at_hand(&self) -> Option<Arc<Wire<Self>>> {
        None
    }

    /// Gives up these locks: how many were there.
    fn leave(
        &self,
        connection: &Wire<Self>,
        operation: &'static str,
        places: &[PlaceId],
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Gives up a lock and takes it for the next one: how many were there, and the grant if it was made; `None` where nobody can do that.
    fn pass(
        &self,
        _connection: &Wire<Self>,
        _place: &PlaceId,
        _next: &Next<'_>,
    ) -> impl Future<Output = Result<(usize, Option<Tried>)>> + Send {
        async { Ok((0, None)) }
    }

    /// Makes a lock that is held a lighter one: whether it was there.
    fn lighten(
        &self,
        _connection: &Wire<Self>,
        _place: &PlaceId,
        _claim: Claim,
        _said: &str,
    ) -> impl Future<Output = Result<bool>> + Send {
        async { Ok(false) }
    }

    /// Why a lock that is lost is gone, if somebody broke it.
    fn broken(
        &self,
        _connection: &Wire<Self>,
        _place: &PlaceId,
        _token: Option<FencingToken>,
    ) -> impl Future<Output = Result<Option<Arc<str>>>> + Send {
        async { Ok(None) }
    }

    /// Has releases be told, and told no more, as `work` says.
    fn hear(&self, _connection: &Wire<Self>, _places: &Places, _work: &Work) -> impl Future<Output = ()> + Send {
        async {}
    }
}
