//! A race layout over several masters that know nothing of each other: the client that has the key at a quorum of them has the lock. What goes
//! wrong at a minority costs no lock. `../NOTES.md` has the rest.

mod bidding;
mod calls;
mod fleet;
mod master;
mod place;
mod renewal;
mod session;
mod show;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::stream;
use tokio::sync::mpsc;

use self::fleet::Fleet;
use self::master::{MasterUser, Member};
use self::session::{Core, QuorumSession};
use super::Dialect;
use super::member::Reader;
use crate::error::{Error, ErrorKind, Result, rounded};
use crate::kit::try_again::Lines;
use crate::name::Name;
use crate::store::{Break, Capability, Opened, Opening, Outline, Page, Presumption, Queue, RequestId, Store};
use crate::stores::redis::wire::{Config, LinkUser, link};

/// What may be said of the times of a lock over several masters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Terms {
    /// How much sooner than the ttl a grant ends, for clocks that do not go at one rate; `None` for a hundredth of the ttl and 2 ms.
    pub(crate) drift: Option<Duration>,
    /// How long after its start a master is not counted; `None` for the ttl.
    pub(crate) rejoin: Option<Duration>,
}

impl Terms {
    fn drift(self, ttl: Duration) -> Duration {
        self.drift.unwrap_or(ttl / 100 + Duration::from_millis(2))
    }
}

/// What is promised to a user who may not ask every master which run of it this is.
fn without_runs(capability: &Capability) -> Capability {
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

/// How long a master is waited for: longer than a connection to it may take to be made, which then says what was wrong, and less long than
/// the engine waits.
fn patience_with(opening: &Opening) -> Duration {
    opening.request_deadline * 19 / 20
}

/// How long those are given who look without a session.
const LOOKING: Duration = Duration::from_secs(10);

/// The store over these masters with this layout.
pub(crate) fn new(masters: Vec<Config>, dialect: Dialect, terms: Terms) -> Arc<dyn Store> {
    let masters = masters.into_iter().map(Arc::new).collect();
    let (newest, reader) = (Mutex::default(), Mutex::default());
    Arc::new(QuorumStore { masters, dialect: Arc::new(dialect), terms, newest, reader })
}

struct QuorumStore {
    masters: Vec<Arc<Config>>,
    dialect: Arc<Dialect>,
    terms: Terms,
    /// The session opened last: locks are looked at through it.
    newest: Mutex<Weak<Core>>,
    /// What locks are looked at through when there is no session.
    reader: Mutex<Option<Arc<Fleet>>>,
}

impl fmt::Debug for QuorumStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.masters).finish()
    }
}

/// What locks are looked at through.
enum View {
    Session(Arc<Core>),
    Reader(Arc<Fleet>),
}

impl View {
    fn fleet(&self) -> &Fleet {
        match self {
            Self::Session(core) => &core.fleet,
            Self::Reader(fleet) => fleet,
        }
    }
}

impl QuorumStore {
    async fn open(&self, opening: Opening) -> Result<Opened> {
        let ttl = opening.ttl;
        if self.terms.drift(ttl) >= ttl / 2 {
            let message = "drift_ms is less than half of the ttl, for that is what it takes from every lock";
            return Err(Error::new(ErrorKind::Config, "open session", message).with("ttl", rounded(ttl)));
        }
        let (sender, mut events) = mpsc::unbounded_channel();
        let dialect = Arc::clone(&self.dialect);
        let lines = Lines::new(dialect.trying(), sender);
        let member = Arc::new(Member::new(dialect, opening, self.terms, lines, self.masters.len()));
        let opening = &member.opening;
        let links = self.masters.iter().enumerate().map(|(master, config)| {
            let user = MasterUser { member: Arc::clone(&member), master };
            (format!("{config:?}"), link(config, Arc::new(user) as Arc<dyn LinkUser>, Some(opening)))
        });
        let fleet = Fleet::new(links.collect(), ttl, patience_with(opening), Some(opening.tasks.clone()));
        let confirmed = opening.clock.now();
        fleet.meet().await?;
        member.confirm(confirmed);
        let capability = (!member.knows_all_runs()).then(|| Arc::new(without_runs(self.dialect.capability)));
        let core = Core::new(fleet, member)?;
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&core);
        let events = Box::pin(stream::poll_fn(move |cx| events.poll_recv(cx)));
        Ok(Opened { session: Arc::new(QuorumSession(core)), events, ttl: Some(ttl), confirmed, capability })
    }

    fn view(&self) -> View {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(core) = newest.filter(|core| core.member.lines.over().is_none()) {
            return View::Session(core);
        }
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = reader.get_or_insert_with(|| {
            let user = || Arc::new(Reader(Arc::clone(&self.dialect)));
            let links = self.masters.iter().map(|config| (format!("{config:?}"), link(config, user(), None)));
            Arc::new(Fleet::new(links.collect(), LOOKING, LOOKING / 3, None))
        });
        View::Reader(Arc::clone(reader))
    }
}

impl Store for QuorumStore {
    fn capability(&self) -> &Capability {
        self.dialect.capability
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(self.open(opening))
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        Box::pin(async move { show::queue(self.view().fleet(), &self.dialect, name, page).await })
    }

    fn contention<'a>(&'a self, name: &'a Name, mine: &'a [RequestId]) -> BoxFuture<'a, Result<Outline>> {
        Box::pin(async move { show::contention(self.view().fleet(), &self.dialect, name, mine).await })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>> {
        let portion = async move |cursor: Option<show::Cursor>| {
            let Some(cursor) = cursor else { return Ok(None) };
            show::names(self.view().fleet(), &self.dialect, cursor, prefix).await.map(Some)
        };
        Box::pin(stream::try_unfold(Some(show::Cursor::default()), portion))
    }

    fn break_grant<'a>(&'a self, order: &'a Break) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { show::break_grant(self.view().fleet(), &self.dialect, order).await })
    }

    fn breaks<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<Break>>> {
        Box::pin(async move { show::breaks(self.view().fleet(), &self.dialect, name).await })
    }
}
