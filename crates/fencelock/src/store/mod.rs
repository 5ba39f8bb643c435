//! The contract between the engine and a store.
//!
//! A store is passive: the engine owns time, retries and loops. Each method states a duty of the store; the tests in the crate
//! `fencelock-conformance` are the laws that every store keeps. A departure is final, tokens rise, and no place appears ahead of one
//! already visible, but for a holder's own lighter claim. An idle name leaves nothing beyond [`Capability::residue`], and a dead session's
//! places are removed within its ttl and [`Capability::detection_slack`] by the store's clock.
//!
//! The engine checks a request before the store receives it. The request ids of a session belong to its owner. A lighter claim is lighter
//! and of the same capacity. The reason of a [`Break`] is one line of a length that fits.

mod any;
mod breaking;
mod capability;
pub(crate) mod checks;
pub(crate) mod clean;
mod contention;
mod ids;
mod note;
mod opening;
mod place;
mod registry;
pub(crate) mod secret;
mod url;
mod view;
mod words;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;

pub use self::any::AnyStore;
pub use self::breaking::Break;
pub use self::capability::{Capability, Liveness, Order, Pace, Tokens, Waiters};
pub use self::contention::{Contention, Outline};
pub use self::ids::{GrantId, Owner, PlaceId, RequestId};
pub use self::note::{Note, NoteOrder, NoteRead};
pub use self::opening::{Opening, Tasks};
pub use self::place::{Ahead, Grant, Left, Loss, Place, Standing};
pub(crate) use self::registry::known;
pub use self::registry::{StoreInfo, open_url, stores};
pub use self::url::StoreUrl;
pub use self::view::{Contender, Expiry, Foreign, ForeignLock, Page, ProcessState, Queue, Waits};
pub use self::words::{Peer, Presumption, Residue};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::queue::Claim;
use crate::time::{Clock, Moment};

/// A coordination store. A store is passive and sleeps, polls and retries only inside [`Place::next`] and in the bounded re-drives of its
/// protocol.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// The promises of this store before it connects; [`Opened::capability`] has the promises of the servers that it met.
    fn capability(&self) -> &Capability;

    /// The clock that the engine must use with this store; `None` for the system's. Only a store with a virtual clock has one of its own.
    fn clock(&self) -> Option<Arc<dyn Clock>> {
        None
    }

    /// Opens a client's only session, on which its places depend. The background tasks of the session run on [`Opening::tasks`].
    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>>;

    /// Reads a page of a queue, front first, and the length of the queue; empty for a name without contenders.
    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>>;

    /// Summarises the queue: its head, its length, and the position of each of `mine`. An error of a lock that was not free shows the
    /// summary; contenders that give up together request a common one.
    ///
    /// By default computed from the whole queue. A store that can answer without reading every waiter must do so.
    fn contention<'a>(&'a self, name: &'a Name, mine: &'a [RequestId]) -> BoxFuture<'a, Result<Outline>> {
        Box::pin(async move { Ok(Outline::of(&self.queue(name, Page::ALL).await?.contenders, mine)) })
    }

    /// Lists the names with contenders that start with `prefix`, in portions and in no order.
    ///
    /// Each portion is one request, which reads a bounded number of names, with or without living contenders. So a portion may be empty,
    /// and names left by dead clients only make the stream longer. A name may appear twice.
    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>>;

    /// The key of the lock `name`: names of one key are one lock. By default `None`: each name is its key.
    fn key<'a>(&'a self, _name: &'a Name) -> Option<BoxFuture<'a, Result<String>>> {
        None
    }

    /// Breaks exactly the grant that `order` names by place and token, and no later one, and keeps `order` for [`Store::breaks`]: no break
    /// is ever without its record. Returns whether the grant was there. The same order may be repeated, with the same result.
    ///
    /// [`SessionEvent::Broken`] notifies the holder's session. By default [`ErrorKind::Unsupported`].
    fn break_grant<'a>(&'a self, order: &'a Break) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { Err(breaks_nothing("break", &order.place.name)) })
    }

    /// Lists the breaks of grants of `name` that the store keeps, oldest first. By default [`ErrorKind::Unsupported`].
    fn breaks<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<Break>>> {
        Box::pin(async move { Err(breaks_nothing("breaks", name)) })
    }

    /// Writes or deletes the note on a lock, atomically, if the grant in `order` is current; returns whether the grant was current. The
    /// note stays when the grant ends. A late request changes nothing once the grant has ended.
    ///
    /// By default [`ErrorKind::Unsupported`], as [`Capability::notes`] says.
    fn write_note<'a>(&'a self, order: &'a NoteOrder) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { Err(keeps_no_notes(&order.grant.place.name)) })
    }

    /// Reads the note on a lock, unless it has expired, and the store's time. By default [`ErrorKind::Unsupported`].
    fn note<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<NoteRead>> {
        Box::pin(async move { Err(keeps_no_notes(name)) })
    }
}

pub(crate) fn keeps_no_notes(name: &Name) -> Error {
    Error::new(ErrorKind::Unsupported, "note", "this store keeps no notes on locks").with("name", name)
}

pub(crate) fn breaks_nothing(operation: &'static str, name: &Name) -> Error {
    let message = "this layout breaks no locks, as it has no place for the record of a break: end the lock with the server's own tools";
    Error::new(ErrorKind::Unsupported, operation, message).with("name", name)
}

/// An open session: its ttl, and the moment from which the ttl counts.
pub struct Opened {
    /// The session itself.
    pub session: Arc<dyn Session>,
    /// The events of the session and its places. Ends only with the session.
    pub events: BoxStream<'static, SessionEvent>,
    /// The ttl as granted; `None` when places cannot expire.
    pub ttl: Option<Duration>,
    /// The moment from which the ttl counts: before the confirmed request was sent.
    pub confirmed: Moment,
    /// The capability, refined at connect; `None` if it equals [`Store::capability`]. The pace is always that of the store.
    pub capability: Option<Arc<Capability>>,
}

/// An event of a session or one of its places.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// The session and all its places have ended; [`Session::over`] has the cause. Sent once, or not at all after a [`Session::close`].
    Over,
    /// A place is gone.
    Gone(GrantId, Loss),
    /// A client broke the grant of a place, for this reason.
    Broken(GrantId, Arc<str>),
    /// An event that only a renewal can clarify: renew now.
    Doubtful,
}

/// The session of a client, on which its places depend.
///
/// Once a session has ended, its data is gone from the store, or soon will be. Then [`Session::over`] has the cause, [`SessionEvent::Over`]
/// makes the engine ask, and `enter`, `renew` and [`Place::next`] fail with [`ErrorKind::Lost`], or with [`ErrorKind::Closed`] after
/// [`Session::close`].
pub trait Session: Send + Sync {
    /// Why the session has ended, as far as this client knows, without I/O: the same for ever, and [`Loss::Closed`] after
    /// [`Session::close`].
    fn over(&self) -> Option<Loss>;

    /// Joins the queue at its tail, and returns the standing in the same round trip.
    ///
    /// With `entry.wait` false, nothing stays behind unless it was granted. The same request id finds the same place.
    /// May be dropped at any point; the caller then calls [`Session::withdraw`].
    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>>;

    /// Whether the first poll of [`Session::enter`] and of [`Place::leave`] needs no runtime and does not block: the store waits for no
    /// other process, disk or network before it returns. The engine makes that poll on the caller's own thread. While the first poll is
    /// pending, the request has changed nothing.
    ///
    /// The engine finishes a pending `enter` on the thread of its requests. A pending `leave` is dropped and requested anew there. By default
    /// `false`.
    fn answers_inline(&self) -> bool {
        false
    }

    /// Undoes an `enter` whose answer never arrived or was not awaited. After `Ok`, that request can no longer take effect. Repeatable.
    fn withdraw<'a>(&'a self, name: &'a Name, id: RequestId) -> BoxFuture<'a, Result<()>>;

    /// Confirms that the session and these places of it live. Places that are not among them may be left to expire.
    fn renew<'a>(&'a self, places: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>>;

    /// Completes once a client waits, or may wait, behind the granted `place` of this session, or the place is gone: a hint. Called only
    /// for places of sticky holders ([`Mutex::sticky`](crate::Mutex::sticky)), so other places cost nothing.
    ///
    /// By default `None`: the store has no such hint, and the engine polls [`Store::contention`].
    fn waited_for<'a>(&'a self, place: &'a PlaceId) -> Option<BoxFuture<'a, Result<()>>> {
        let _ = place;
        None
    }

    /// Ends the session and everything that depends on it. Repeatable.
    fn close(&self) -> BoxFuture<'_, Result<()>>;
}

/// The answer to a renewal of a session that lives.
#[derive(Debug, Clone)]
pub struct Renewal {
    /// The moment from which the ttl counts now: before the confirmed request was sent.
    pub confirmed: Moment,
    /// The new ttl, where the store grants another ttl than before; `None` when nothing changed.
    pub ttl: Option<Duration>,
    /// Places that the store no longer has, and why.
    pub gone: Vec<(PlaceId, Loss)>,
    /// The new ends of held places with an end of their own ([`Grant::valid_until`]). A place that is missing here keeps its end.
    pub valid: Vec<(PlaceId, Moment)>,
    /// The reason for which the store refuses to renew some of the places. The other places may be renewed. They keep their ends.
    pub refusal: Option<Arc<Error>>,
}

impl Renewal {
    /// The usual renewal: the session lives, counted from `confirmed`; nothing else is known.
    #[must_use]
    pub const fn at(confirmed: Moment) -> Self {
        Self { confirmed, ttl: None, gone: Vec::new(), valid: Vec::new(), refusal: None }
    }
}

/// The places that a renewal covers. A store whose session suffices need not read them, and pays nothing for them then.
pub trait PlaceList: Send + Sync {
    /// Shows each of them, held and waiting. The engine holds a lock of its own meanwhile; the caller holds none that `show` or a dropped place takes.
    fn each(&self, show: &mut dyn FnMut(&Name, RequestId));

    /// Copies all of them, for a store that needs them for longer.
    fn all(&self) -> Vec<PlaceId> {
        let mut all = Vec::new();
        self.each(&mut |name, request| all.push(PlaceId { name: name.clone(), request }));
        all
    }
}

impl PlaceList for Vec<PlaceId> {
    fn each(&self, show: &mut dyn FnMut(&Name, RequestId)) {
        self.iter().for_each(|place| show(&place.name, place.request));
    }
}

impl<const N: usize> PlaceList for [PlaceId; N] {
    fn each(&self, show: &mut dyn FnMut(&Name, RequestId)) {
        self.iter().for_each(|place| show(&place.name, place.request));
    }
}

/// The answer to [`Session::enter`].
pub enum Entered {
    /// A place in the queue, granted or waiting.
    In(Box<dyn Place>),
    /// Only without `wait`: a contender is ahead, and the request left no trace.
    Busy,
    /// A contender ahead has another capacity (its claim is given); the request left nothing behind.
    Conflict(Claim),
}

/// A request to enter a queue.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The lock.
    pub name: Name,
    /// The requested claim.
    pub claim: Claim,
    /// The id of this request, never used again.
    pub id: RequestId,
    /// Whether to queue when the lock is taken.
    pub wait: bool,
    /// The purpose of the lock, visible to other clients. At most [`Entry::MAX_PURPOSE`] bytes.
    pub purpose: Option<Arc<str>>,
}

impl Entry {
    /// The longest purpose, in bytes.
    pub const MAX_PURPOSE: usize = Contender::MAX_PURPOSE;
}
