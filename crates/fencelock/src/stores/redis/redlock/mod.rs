//! Redlock: the layout `plain` at several servers that know nothing of each other. Who has the key at a majority of them has the lock. What
//! goes wrong at a minority costs no lock. `../try_again/NOTES.md` has the rest.

mod attempt;
mod inspect;
mod places;
mod renewal;
mod servers;
mod session;
mod state;
mod url;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::stream;
use tokio::sync::mpsc;

use self::servers::Servers;
use self::session::{Locks, RedlockSession};
use self::state::{ServerUser, SessionState};
use super::plain;
use super::try_again::{Dialect, Held, Marks, Ours, Reader, WAKE_BOUND};
use super::wire::{Config, LinkUser, link};
use crate::error::{Error, ErrorKind, Result, rounded};
use crate::kit::try_again::Places;
use crate::name::Name;
use crate::store::{
    Break, Capability, Liveness, Opened, Opening, Order, Outline, Pace, Page, Peer, Presumption, Queue, RequestId,
    Residue, Store, StoreInfo, StoreUrl, Tokens, Waiters,
};

/// What the registry knows of this store over TCP.
pub(crate) const INFO: StoreInfo = StoreInfo {
    scheme: "redlock",
    feature: "redis",
    example: "redlock://host1:6379,host2,host3/0",
    options: url::OPTIONS,
    capability: Some(|| CAPABILITY.clone()),
    layouts: &[],
    open: Some(open),
};

/// The same over TLS.
pub(crate) const TLS_INFO: StoreInfo = StoreInfo {
    scheme: "redlocks",
    feature: "redis-tls",
    example: "redlocks://host1:6379,host2,host3/0",
    options: url::TLS_OPTIONS,
    ..INFO
};

static CAPABILITY: Capability = Capability {
    store: "redlock",
    layout: "SET name value NX PX ttl at a quorum of masters",
    liveness: Liveness::Lease,
    order: Order::None,
    tokens: Tokens::None,
    presumes: &[
        Presumption::SameMasters,
        Presumption::QuorumKept,
        Presumption::KeyStays,
        Presumption::ClockSteady,
        Presumption::ClockRates,
    ],
    shared_claims: false,
    permits: false,
    notes: false,
    waiters: Waiters::Unseen,
    detection_slack: Duration::from_millis(100),
    wake_bound: WAKE_BOUND,
    same_as: &[Peer::Redsync, Peer::NpmRedlock, Peer::Rslock, Peer::Pottery, Peer::RedisSemaphore, Peer::SetIfAbsent],
    residue: &[Residue::BreaksForDays(30)],
    pace: Pace::DEFAULT,
    blocking: false,
};

fn open(url: StoreUrl) -> BoxFuture<'static, Result<Arc<dyn Store>>> {
    Box::pin(async move {
        let url::Said { servers, prefix, times } = url::read(url)?;
        let plain = plain::dialect(prefix, plain::Extra::Nothing);
        let dialect = Arc::new(Dialect { capability: &CAPABILITY, marks: &MARKS, ..plain });
        let servers = servers.into_iter().map(Arc::new).collect();
        let store = Redlock { servers, dialect, times, newest: Mutex::default(), reader: Mutex::default() };
        Ok(Arc::new(store) as Arc<dyn Store>)
    })
}

/// What may be said of the times of a lock at several servers.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    /// How much sooner than the ttl a grant ends, for clocks that do not go at one rate; `None` for a hundredth of the ttl and 2 ms.
    drift: Option<Duration>,
    /// How long after its start a server has no vote; `None` for the ttl.
    rejoin: Option<Duration>,
}

impl Times {
    fn drift(self, ttl: Duration) -> Duration {
        self.drift.unwrap_or(ttl / 100 + Duration::from_millis(2))
    }
}

/// What is promised to a user who may not run INFO, which tells the `run_id`, at every server.
fn without_info(capability: &Capability) -> Capability {
    Capability {
        presumes: &[
            Presumption::SameMasters,
            Presumption::QuorumKept,
            Presumption::ClockSteady,
            Presumption::ClockRates,
            Presumption::NoConnectionBreaks,
        ],
        ..capability.clone()
    }
}

/// How long a server is waited for: longer than a connection to it may take to be made, which then says what was wrong, and less long than
/// the engine waits.
fn patience_with(opening: &Opening) -> Duration {
    opening.request_deadline * 19 / 20
}

/// How long those are given who look without a session.
const LOOKING: Duration = Duration::from_secs(10);

/// The store.
struct Redlock {
    servers: Vec<Arc<Config>>,
    dialect: Arc<Dialect>,
    times: Times,
    /// The session opened last: locks are looked at through it.
    newest: Mutex<Weak<Locks>>,
    /// What locks are looked at through when there is no session.
    reader: Mutex<Option<Arc<Servers>>>,
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.servers).finish()
    }
}

/// What locks are looked at through.
enum View {
    Session(Arc<Locks>),
    Reader(Arc<Servers>),
}

impl View {
    fn servers(&self) -> &Servers {
        match self {
            Self::Session(locks) => &locks.servers,
            Self::Reader(servers) => servers,
        }
    }
}

impl Redlock {
    async fn open(&self, opening: Opening) -> Result<Opened> {
        let ttl = opening.ttl;
        if self.times.drift(ttl) >= ttl / 2 {
            let message = "drift_ms is less than half of the ttl, for that is what it takes from every lock";
            return Err(Error::new(ErrorKind::Config, "open session", message).with("ttl", rounded(ttl)));
        }
        let (sender, mut events) = mpsc::unbounded_channel();
        let dialect = Arc::clone(&self.dialect);
        let places = Places::new(dialect.trying(), sender);
        let state = Arc::new(SessionState::new(dialect, opening, self.times, places, self.servers.len()));
        let opening = &state.opening;
        let links = self.servers.iter().enumerate().map(|(index, config)| {
            let user = ServerUser { state: Arc::clone(&state), index };
            (format!("{config:?}"), link(config, Arc::new(user) as Arc<dyn LinkUser>, Some(opening)))
        });
        let servers = Servers::new(links.collect(), ttl, patience_with(opening), Some(opening.tasks.clone()));
        let confirmed = opening.clock.now();
        servers.meet().await?;
        state.confirm(confirmed);
        let capability = (!state.sees_all_restarts()).then(|| Arc::new(without_info(self.dialect.capability)));
        let locks = Locks::new(servers, state)?;
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&locks);
        let events = Box::pin(stream::poll_fn(move |cx| events.poll_recv(cx)));
        Ok(Opened { session: Arc::new(RedlockSession(locks)), events, ttl: Some(ttl), confirmed, capability })
    }

    fn view(&self) -> View {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(locks) = newest.filter(|locks| locks.state.places.over().is_none()) {
            return View::Session(locks);
        }
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = reader.get_or_insert_with(|| {
            let user = || Arc::new(Reader(Arc::clone(&self.dialect)));
            let links = self.servers.iter().map(|config| (format!("{config:?}"), link(config, user(), None)));
            Arc::new(Servers::new(links.collect(), LOOKING, LOOKING / 3, None))
        });
        View::Reader(Arc::clone(reader))
    }
}

impl Store for Redlock {
    fn capability(&self) -> &Capability {
        self.dialect.capability
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(self.open(opening))
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        Box::pin(async move { inspect::queue(self.view().servers(), &self.dialect, name, page).await })
    }

    fn contention<'a>(&'a self, name: &'a Name, mine: &'a [RequestId]) -> BoxFuture<'a, Result<Outline>> {
        Box::pin(async move { inspect::contention(self.view().servers(), &self.dialect, name, mine).await })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>> {
        Box::pin(stream::once(async move { inspect::names(self.view().servers(), &self.dialect, prefix).await }))
    }

    fn break_grant<'a>(&'a self, order: &'a Break) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { inspect::break_grant(self.view().servers(), &self.dialect, order).await })
    }

    fn breaks<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<Break>>> {
        Box::pin(async move { inspect::breaks(self.view().servers(), &self.dialect, name).await })
    }
}

/// As in `plain`, but that the number of the attempt follows the request's.
static MARKS: Marks = Marks { head: |id| format!("{}{id}.", plain::OURS), ours, ..plain::MARKS };

/// The request that a value of ours begins with, whichever attempt of it, and what follows.
fn ours(held: &Held) -> Ours<'_> {
    let (id, said) = std::str::from_utf8(&held.by).ok()?.strip_prefix(plain::OURS)?.split_once(':')?;
    let (client, number) = id.split_once('.')?.0.split_once('-')?;
    let id = RequestId { client: u64::from_str_radix(client, 16).ok()?, number: u64::from_str_radix(number, 16).ok()? };
    Some((id, said.as_bytes()))
}
