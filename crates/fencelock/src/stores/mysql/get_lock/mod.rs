//! Named locks of MariaDB and MySQL (`GET_LOCK`), by the names of other programs: the server's memory says who has one, for as long as a
//! connection lasts. A session has one connection and never another: its end is the end of the session and of every lock. Lines and tries
//! are `kit/try_again/`.

mod key;

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::future::join;
use mysql_async::Value;
use mysql_async::prelude::FromValue;
use tokio::sync::mpsc;

pub(super) use self::key::Keys;
use super::connection::{Chores, Connection, User, column, strange};
use super::link::{Dialler, Link, link_without_schema};
use super::url::Config;
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::kit::fault::{Meaning, refused};
use crate::kit::try_again::{Asks, Member, Server, Tried, Try, TryAgainStore, Trying, WAKE_BOUND};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{
    Capability, Contender, Entry, Foreign, Grant, Liveness, Loss, Opening, Order, Owner, Page, PlaceId, Queue,
    RequestId, SessionEvent, Store, Tokens, Waits,
};
use crate::time::Moment;

pub(super) static CAPABILITY: LazyLock<Capability> = LazyLock::new(|| Capability {
    liveness: Liveness::Session,
    order: Order::None,
    tokens: Tokens::None,
    certainty: "whatever ends the connection is heard of by both ends, the client within 0.2 s: no proxy drops one end alone, the server's host does not restart within a ttl without a word, nobody ends the session by KILL, and no replica takes over, which knows of no named lock",
    detection_slack: Duration::from_secs(2),
    wake_bound: WAKE_BOUND,
    excludes: "DistributedLock.NET, with_advisory_lock, and any named lock of that name on the server",
    ..Capability::least("mysql", "named locks of sessions, by GET_LOCK")
});

const TRYING: Trying = Trying { pause: Duration::from_millis(100), hears: false, passes: false, kind: "named lock" };

/// How often a connection that holds something is looked at: the driver does not say when it ends by itself.
const LOOK: Duration = Duration::from_millis(200);

const ONLY_MUTEXES: &str = "named locks are taken as mutexes here: readers, writers and permits need `layout=fair`";
const NOT_HERE: &str = "the server is a node of a cluster (Galera), where a named lock holds on one node alone or is refused: say `layout=distributed_lock`";

/// The store with these names.
pub(super) fn new(config: Config, keys: Keys) -> Arc<dyn Store> {
    Arc::new(TryAgainStore::new(Named { config: Arc::new(config), keys: Arc::new(keys) }))
}

struct Named {
    config: Arc<Config>,
    keys: Arc<Keys>,
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (named locks)", self.config)
    }
}

/// What of the server's errors means something else here. 1235 is Galera's refusal, and 1105 the one of Percona's strict mode.
fn meant(code: u16) -> Option<Meaning> {
    matches!(code, 1105 | 1235).then(|| refused(ErrorKind::Unsupported, NOT_HERE))
}

/// What the server is asked for one session.
pub(super) struct Asking {
    keys: Arc<Keys>,
    opening: Opening,
    /// The number of the connection, as the server has it.
    process: AtomicU64,
    /// Whose each named lock is in this session: it has been asked for, and was not refused. A session that has one could take it again.
    taken: Mutex<HashMap<String, RequestId>>,
}

impl Asking {
    fn taken(&self) -> MutexGuard<'_, HashMap<String, RequestId>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The named lock of this place, if it may be the server's word that the place has it.
    fn key_of(&self, operation: &'static str, place: &PlaceId) -> Result<Option<String>> {
        let key = self.keys.of(operation, &place.name)?;
        Ok((self.taken().get(&key) == Some(&place.request)).then_some(key))
    }
}

/// What the server says to a question about one value.
async fn told<T: FromValue>(
    connection: &Connection,
    operation: &'static str,
    sql: &str,
    arguments: Vec<Value>,
) -> Result<T> {
    let rows = connection.run(operation, sql, arguments, &meant).await?.rows;
    column(operation, rows.first().ok_or_else(|| strange(operation))?, 0)
}

impl Asks for Asking {
    type Dial = Dialler;

    fn check(&self, entry: &Entry) -> Result<String> {
        if entry.claim != Claim::MUTEX {
            let error = Error::new(ErrorKind::Unsupported, "enter", ONLY_MUTEXES);
            return Err(error.with("name", &entry.name).with("claim", entry.claim));
        }
        self.keys.of("enter", &entry.name).map(|_| String::new())
    }

    async fn take(&self, connection: &Connection, due: &Try, is_new: bool) -> Result<(Tried, Moment)> {
        let operation = if is_new { "enter" } else { "next" };
        let (key, id) = (self.keys.of(operation, &due.place.name)?, due.place.request);
        let is_in_doubt = match self.taken().entry(key.clone()) {
            // Another place of this session has it, perhaps under another name.
            MapEntry::Occupied(other) if *other.get() != id => {
                return Ok((Tried::Busy(None), self.opening.clock.now()));
            }
            MapEntry::Occupied(_) => true,
            MapEntry::Vacant(free) => {
                free.insert(id);
                false
            }
        };
        // One that this session has is never taken again, as it would need a second release: it is ours where no answer came to a former
        // try, and else that of another place, whose name the server takes for the same (MySQL does not tell capital letters).
        let sql = "SELECT IF(IS_USED_LOCK(?) <=> CONNECTION_ID(), 2, GET_LOCK(?, 0))";
        let sent = self.opening.clock.now();
        let arguments = vec![key.as_str().into(), key.as_str().into()];
        let taken: Result<Option<i64>> = told(connection, operation, sql, arguments).await;
        let taken = match taken {
            Ok(Some(1)) => Ok(true),
            Ok(Some(2)) => Ok(is_in_doubt),
            Ok(Some(_)) => Ok(false),
            Ok(None) => {
                let message = "the server gave no named lock: it has no memory, or somebody ended the request";
                Err(Error::new(ErrorKind::Exhausted, operation, message).retryable())
            }
            Err(error) => Err(error),
        };
        let is_free = match &taken {
            Ok(is_taken) => !is_taken,
            Err(error) => !is_in_doubt && error.outcome() == Outcome::NotApplied,
        };
        if is_free {
            self.taken().remove(&key);
        }
        Ok((if taken? { Tried::Granted(None) } else { Tried::Busy(None) }, sent))
    }

    /// The locks last as long as the connection, so its answer is that of all of them, unless it is with another process of the server.
    async fn renew(&self, connection: &Connection, places: &[PlaceId]) -> Result<Vec<usize>> {
        let process: u64 = told(connection, "renew", "SELECT CONNECTION_ID()", Vec::new()).await?;
        let is_same = process == self.process.load(Ordering::Acquire);
        let is_lost = |place: &PlaceId| Ok::<_, Error>(!is_same || self.key_of("renew", place)?.is_none());
        let lost = places.iter().map(is_lost).collect::<Result<Vec<bool>>>()?;
        Ok(lost.iter().enumerate().filter(|(_, is_lost)| **is_lost).map(|(index, _)| index).collect())
    }

    async fn leave(&self, connection: &Connection, operation: &'static str, places: &[PlaceId]) -> Result<usize> {
        let mut left = 0;
        for place in places {
            let Some(key) = self.key_of(operation, place)? else { continue };
            let arguments = vec![key.as_str().into()];
            let was: Option<i64> = told(connection, operation, "SELECT RELEASE_LOCK(?)", arguments).await?;
            left += usize::from(was == Some(1));
            self.taken().remove(&key);
        }
        Ok(left)
    }
}

/// A session as its one connection sees it.
struct SessionUser(Arc<Member<Asking>>);

/// Asks for nothing again and again while something is held: a request without an answer is how the end of a connection is noticed.
async fn looks(connection: Weak<Connection>, member: Arc<Member<Asking>>) {
    let clock = &member.opening.clock;
    loop {
        clock.sleep_until(clock.now().after(LOOK)).await;
        let Some(connection) = connection.upgrade() else { return };
        if !member.asks.taken().is_empty() {
            // Its failure ends the connection, which is told by that.
            let _ = connection.simple("renew", "DO 0").await;
        }
    }
}

impl User for SessionUser {
    fn greet<'a>(&'a self, connection: &'a Arc<Connection>) -> BoxFuture<'a, Result<Option<Chores>>> {
        Box::pin(async move {
            let member = &self.0;
            // Nothing that was granted on another connection is there on this one.
            member.lines.alive("connect")?;
            if member.is_open() {
                member.lines.end(Loss::Expired);
                return member.lines.alive("connect").map(|()| None);
            }
            let sent = member.opening.clock.now();
            let cluster = connection.simple("open session", "SHOW GLOBAL VARIABLES LIKE 'wsrep_on'").await?;
            if let Some(row) = cluster.first()
                && column::<String>("open session", row, 1)? == "ON"
            {
                return Err(Error::new(ErrorKind::Unsupported, "connect", NOT_HERE));
            }
            // The server ends a session that is silent for so long, and never sooner: its holders count on that.
            let silence = format!("SET SESSION wait_timeout = {}", member.opening.ttl.as_secs() + 1);
            connection.simple("open session", &silence).await?;
            let process = told(connection, "open session", "SELECT CONNECTION_ID()", Vec::new()).await?;
            member.asks.process.store(process, Ordering::Release);
            member.confirm(sent);
            let chores = join(member.tries(connection), looks(Arc::downgrade(connection), Arc::clone(member)));
            let chores: Chores = Box::pin(async { ((), ()) = chores.await });
            Ok(Some(chores))
        })
    }

    fn disconnected(&self, _: u64) {
        if self.0.is_open() {
            self.0.lines.end(Loss::Expired);
        }
    }
}

impl Server for Named {
    type Asks = Asking;
    type Listed = ();

    fn capability(&self) -> &Capability {
        &CAPABILITY
    }

    fn member(
        &self,
        opening: Opening,
        events: mpsc::UnboundedSender<SessionEvent>,
    ) -> Result<(Arc<Member<Asking>>, Arc<Link>)> {
        let (keys, taken) = (Arc::clone(&self.keys), Mutex::default());
        let asking = Asking { keys, opening: opening.clone(), process: AtomicU64::new(0), taken };
        let member = Member::new(asking, opening, TRYING, events);
        let user = Arc::new(SessionUser(Arc::clone(&member)));
        // Giving it up costs every lock, so it is not given up before they are over anyway.
        let silence = member.opening.ttl * 2 / 3;
        Ok((Arc::clone(&member), link_without_schema(&self.config, user, Some(&member.opening), Some(silence))))
    }

    fn reader(&self) -> Arc<Link> {
        link_without_schema(&self.config, Arc::new(super::link::Nobody), None, None)
    }

    /// Who holds it, and no more of it than the server tells this user. Who waits for which lock it tells nobody.
    async fn queue(&self, connection: &Connection, name: &Name, page: Page) -> Result<Queue> {
        let key = self.keys.of("queue", name)?;
        let sql = "SELECT l.id, COALESCE(p.USER, '?'), COALESCE(p.HOST, '?') FROM (SELECT IS_USED_LOCK(?) AS id) AS l \
             LEFT JOIN information_schema.PROCESSLIST AS p ON p.ID = l.id WHERE l.id IS NOT NULL";
        let rows = connection.run("queue", sql, vec![key.into()], &meant).await?.rows;
        let mut holders = Vec::new();
        for row in &rows {
            let process: u64 = column("queue", row, 0)?;
            let (user, host): (String, String) = (column("queue", row, 1)?, column("queue", row, 2)?);
            let id = RequestId { client: process, number: 0 };
            let owner = Some(Owner::new(process, format!("{user} at {host} (connection {process} of the server)"), 0));
            let foreign = Some(Foreign { what: "a session of the server", waits: Waits::Yes });
            let grant = Some(Grant::new(None));
            holders.push(Contender { owner, grant, foreign, ..Contender::new(id, Claim::MUTEX) });
        }
        Ok(Queue::page_of(name.clone(), holders, page))
    }

    async fn names(&self, _: &Connection, (): (), _: &str) -> Result<(Vec<Name>, Option<()>)> {
        let message = "the server lists no named locks: ask for one by its name";
        Err(Error::new(ErrorKind::Unsupported, "names", message))
    }
}
