//! Locks without a queue: the client that finds a lock free acquires it. Contenders of one session form a line, and the first of the line
//! tries until it holds the lock. Lines, tries, renewals, losses and releases are the same for all servers.
//!
//! A layout implements its requests: [`UnqueuedBackend`] for the locks of a session, [`Server`](super::server::Server) for the locks of all
//! clients. [`Reconnect`](super::reconnect::Reconnect) makes the connection. Everything else of the contract is here, once.

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

/// How long the first of a line sleeps at most while the lock is free: a pause and a request.
pub(crate) const WAKE_BOUND: Duration = Duration::from_secs(2);

/// The pause from the end of a lock's lease to the next try, even if the holder prolongs the lock by a few milliseconds each time.
const AFTER_THE_END: Duration = Duration::from_millis(20);

/// The result of a try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tried {
    /// Granted, with a token if the layout has tokens.
    Granted(Option<FencingToken>),
    /// Another client holds the lock, for at least this time unless it releases. `None` for a lock without an end, or with an unknown end.
    Busy(Option<Duration>),
    /// The key has this type, and is no lock of this layout.
    Other(String),
}

/// Which locks were not prolonged, by their indices, in their order.
#[derive(Debug, Default)]
pub(crate) struct Prolonged {
    pub(crate) lost: Vec<usize>,
    /// No answer says whether these locks were prolonged: they keep their end.
    pub(crate) unknown: Vec<usize>,
}

/// How a session tries for its lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trying {
    /// The shortest time between two tries for one lock. The longest is three times as much, by chance.
    pub(crate) pause: Duration,
    /// Whether the server publishes releases.
    pub(crate) has_channel: bool,
    /// Whether one request can release a lock and take it for the next of the line.
    pub(crate) passes: bool,
    /// The type of this layout's locks in the server.
    pub(crate) kind: &'static str,
}

impl Trying {
    /// The pause of the first of a line before its next try. `left` is the rest of the lock's lease.
    fn pause_of(&self, left: Option<Duration>) -> Duration {
        let most = u64::try_from(2 * self.pause.as_millis()).unwrap_or(u64::MAX).max(1);
        let pause = self.pause + Duration::from_millis(fastrand::u64(..most));
        left.map_or(pause, |left| pause.min(left + AFTER_THE_END + pause / 8))
    }

    /// The error of a name that holds no lock of this layout, so that waiting is impossible. The caller adds the name.
    pub(crate) fn other_kind(&self, operation: &'static str, kind: &str) -> Error {
        let message = "the name is held by another kind of lock, or is no lock: use another name or prefix, or the layout of that lock";
        Error::new(ErrorKind::Layout, operation, message).with("type", kind).with("known", self.kind)
    }
}

/// The requests about the locks of one session.
pub(crate) trait UnqueuedBackend: Send + Sync + 'static {
    /// The way in which the session connects to its server.
    type Dial: Dial;

    /// Refuses an entry that this layout does not support. Returns the text about the holder for other clients.
    fn check(&self, entry: &Entry) -> Result<String>;

    /// Takes a lock that is free, or finds that this request holds the lock. `is_new` says that the request was never sent before.
    fn take(&self, connection: &Wire<Self>, due: &Try, is_new: bool) -> impl Future<Output = Result<Tried>> + Send;

    /// How long a grant is valid, counted from before its request.
    fn validity(&self, ttl: Duration) -> Duration {
        ttl
    }

    /// How many locks one request renews or gives up; requests for more locks are in flight concurrently.
    fn locks_per_call(&self) -> usize {
        256
    }

    /// Prolongs these locks by a ttl. Without locks, success confirms that the session could renew.
    fn renew(&self, connection: &Wire<Self>, places: &[PlaceId]) -> impl Future<Output = Result<Prolonged>> + Send;

    /// The connection for releases, in a layout that may release on a part of its servers while all other requests need more of them.
    fn release_connection(&self) -> Option<Arc<Wire<Self>>> {
        None
    }

    /// Gives up these locks. Returns how many of them were there.
    fn leave(
        &self,
        connection: &Wire<Self>,
        operation: &'static str,
        places: &[PlaceId],
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Gives up a lock and takes it for the next of the line. Returns how many locks were given up, and the result of the try, if there was
    /// one.
    fn pass(
        &self,
        _connection: &Wire<Self>,
        _place: &PlaceId,
        _next: &Next<'_>,
    ) -> impl Future<Output = Result<(usize, Option<Tried>)>> + Send {
        async { Ok((0, None)) }
    }

    /// Gives a held lock a lighter claim. Returns whether the lock was there.
    fn lighten(
        &self,
        _connection: &Wire<Self>,
        _place: &PlaceId,
        _claim: Claim,
        _said: &str,
    ) -> impl Future<Output = Result<bool>> + Send {
        async { Ok(false) }
    }

    /// The reason of the break, if a user broke this lost lock.
    fn broken(
        &self,
        _connection: &Wire<Self>,
        _place: &PlaceId,
        _token: Option<FencingToken>,
    ) -> impl Future<Output = Result<Option<Arc<str>>>> + Send {
        async { Ok(None) }
    }

    /// Subscribes and unsubscribes to channels of releases, as `work` says.
    fn hear(&self, _connection: &Wire<Self>, _places: &Places, _work: &Work) -> impl Future<Output = ()> + Send {
        async {}
    }
}
