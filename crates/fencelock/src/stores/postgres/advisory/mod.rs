//! Advisory locks of PostgreSQL, by the keys of other programs: the server's memory says who has one, for as long as a connection lasts.
//! A session has one connection and never another: its end is the end of the session and of every lock. Lines and tries are
//! `kit/try_again/`.

mod key;

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_core::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_postgres::Row;

use self::key::Key;
pub(super) use self::key::Keys;
use super::connection::{Chores, Connection, User, strange};
use super::link::{Dialler, Link, link_without_schema};
use super::url::Config;
use crate::error::{Error, ErrorKind, Outcome, Result};
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
    certainty: "whatever ends the connection is heard of by both ends: no proxy drops one end alone, the server's host does not restart within a ttl without a word, and no standby is promoted, which knows of no advisory lock",
    // Before PostgreSQL 14 the network's own timers end a session, which count in seconds.
    detection_slack: Duration::from_secs(5),
    wake_bound: WAKE_BOUND,
    excludes: "DistributedLock.NET, with_advisory_lock, and any advisory lock of that key in the database",
    ..Capability::least("postgres", "advisory locks of sessions: a bigint, or a pair of integers")
});

const TRYING: Trying = Trying { pause: Duration::from_millis(100), hears: false, passes: false, kind: "advisory lock" };

const ONLY_MUTEXES: &str = "advisory locks are taken as mutexes here: readers, writers and permits need `layout=fair`";

/// The store with these keys.
pub(super) fn new(config: Config, keys: Keys) -> Arc<dyn Store> {
    Arc::new(TryAgainStore::new(Advisory { config: Arc::new(config), keys: Arc::new(keys) }))
}

struct Advisory {
    config: Arc<Config>,
    keys: Arc<Keys>,
}

impl fmt::Debug for Advisory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (advisory locks)", self.config)
    }
}

impl Key {
    /// As an argument of the server's functions.
    fn argument(self) -> String {
        match self {
            Self::Big(number) => format!("({number}::int8)"),
            Self::Pair(first, second) => format!("({first}::int4, {second}::int4)"),
        }
    }

    /// Which rows of `pg_locks` are of this key, in this database.
    fn rows(self) -> String {
        let (class, object, kind) = match self {
            Self::Big(number) => (number.cast_unsigned() >> 32, number.cast_unsigned() & 0xffff_ffff, 1),
            Self::Pair(first, second) => (u64::from(first.cast_unsigned()), u64::from(second.cast_unsigned()), 2),
        };
        format!("{HERE} AND l.classid::int8 = {class} AND l.objid::int8 = {object} AND l.objsubid = {kind}")
    }
}

const HERE: &str = "l.locktype = 'advisory' AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())";

/// What the server is asked for one session.
pub(super) struct Asking {
    keys: Arc<Keys>,
    opening: Opening,
    /// Which process of the server is behind the connection.
    process: AtomicI32,
    /// Whose each key is in this session: it has been asked for, and was not refused. A session that has a lock could take it again.
    taken: Mutex<HashMap<Key, RequestId>>,
}

impl Asking {
    fn taken(&self) -> MutexGuard<'_, HashMap<Key, RequestId>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of this place, if it may be the server's word that the place has it.
    fn key_of(&self, operation: &'static str, place: &PlaceId) -> Result<Option<Key>> {
        let key = self.keys.of(operation, &place.name)?;
        Ok((self.taken().get(&key) == Some(&place.request)).then_some(key))
    }
}

async fn is(connection: &Connection, operation: &'static str, sql: &str) -> Result<bool> {
    let rows = connection.query(operation, sql, &[], &|_| None).await?;
    rows.first().and_then(|row| row.try_get(0).ok()).ok_or_else(|| strange(operation))
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
        let is_in_doubt = match self.taken().entry(key) {
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
        let take = format!("pg_catalog.pg_try_advisory_lock{}", key.argument());
        let sql = match is_in_doubt {
            false => format!("SELECT {take}"),
            // It may have been granted, and no answer come: a second time would need a second release.
            true => format!(
                "SELECT CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_locks AS l WHERE {} AND l.granted AND l.pid = pg_backend_pid()) THEN true ELSE {take} END",
                key.rows()
            ),
        };
        let sent = self.opening.clock.now();
        let taken = is(connection, operation, &sql).await;
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
        let process = self.process.load(Ordering::Acquire);
        let is_same = is(connection, "renew", &format!("SELECT pg_backend_pid() = {process}")).await?;
        let is_lost = |place: &PlaceId| Ok::<_, Error>(!is_same || self.key_of("renew", place)?.is_none());
        let lost = places.iter().map(is_lost).collect::<Result<Vec<bool>>>()?;
        Ok(lost.iter().enumerate().filter(|(_, is_lost)| **is_lost).map(|(index, _)| index).collect())
    }

    async fn leave(&self, connection: &Connection, operation: &'static str, places: &[PlaceId]) -> Result<usize> {
        let mut left = 0;
        for place in places {
            let Some(key) = self.key_of(operation, place)? else { continue };
            let unlock = format!("SELECT pg_catalog.pg_advisory_unlock{}", key.argument());
            left += usize::from(is(connection, operation, &unlock).await?);
            self.taken().remove(&key);
        }
        Ok(left)
    }
}

/// The server ends a session that is silent for so long, and never sooner: its holders count on that. From PostgreSQL 14 on it does so by a
/// timer of its own. Before, the timers of TCP end it within a few seconds more where the host or the network are gone, and a process that
/// is stopped keeps its locks.
fn ends_after(ttl: Duration) -> String {
    let (idle, seconds) = (ttl.as_millis().max(1), ttl.as_secs() + 1);
    let between = (seconds / 6).clamp(1, 3);
    let count = seconds / between + 1;
    format!(
        "SELECT pg_catalog.set_config(s.name, w.value, false) FROM pg_catalog.pg_settings AS s JOIN (VALUES ('idle_session_timeout', '{idle}'), \
         ('tcp_keepalives_idle', '{}'), ('tcp_keepalives_interval', '{between}'), ('tcp_keepalives_count', '{count}'), \
         ('tcp_user_timeout', '{}')) AS w (name, value) ON w.name = s.name",
        (seconds / 2).max(1),
        seconds * 1000
    )
}

/// A session as its one connection sees it.
struct SessionUser(Arc<Member<Asking>>);

impl User for SessionUser {
    fn greet(self: Arc<Self>, connection: Arc<Connection>) -> BoxFuture<'static, Result<Option<Chores>>> {
        Box::pin(async move {
            let member = &self.0;
            // Nothing that was granted on another connection is there on this one.
            member.lines.alive("connect")?;
            if member.is_open() {
                member.lines.end(Loss::Expired);
                return member.lines.alive("connect").map(|()| None);
            }
            let sent = member.opening.clock.now();
            connection.simple("open session", &ends_after(member.opening.ttl)).await?;
            let rows = connection.query("open session", "SELECT pg_backend_pid()", &[], &|_| None).await?;
            let process = rows.first().and_then(|row| row.try_get(0).ok()).ok_or_else(|| strange("open session"))?;
            member.asks.process.store(process, Ordering::Release);
            member.confirm(sent);
            Ok(Some(member.tries(&connection)))
        })
    }

    fn disconnected(&self, _: u64) {
        if self.0.is_open() {
            self.0.lines.end(Loss::Expired);
        }
    }
}

impl Server for Advisory {
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
        let asking = Asking { keys, opening: opening.clone(), process: AtomicI32::new(0), taken };
        let member = Member::new(asking, opening, TRYING, events);
        let user = Arc::new(SessionUser(Arc::clone(&member)));
        // Giving it up costs every lock, so it is not given up before they are over anyway.
        let silence = member.opening.ttl * 2 / 3;
        Ok((Arc::clone(&member), link_without_schema(&self.config, Some(user), Some(&member.opening), Some(silence))))
    }

    fn reader(&self) -> Arc<Link> {
        link_without_schema(&self.config, None, None, None)
    }

    async fn queue(&self, connection: &Connection, name: &Name, page: Page) -> Result<Queue> {
        let key = self.keys.of("queue", name)?;
        let sql = format!(
            "SELECT l.pid, l.granted, COALESCE(a.application_name, ''), COALESCE(host(a.client_addr), ''), \
             COALESCE(extract(epoch FROM a.backend_start) * 1000000, 0)::int8 FROM pg_catalog.pg_locks AS l \
             LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid WHERE {} ORDER BY l.granted DESC, l.pid",
            key.rows()
        );
        let rows = connection.query("queue", &sql, &[], &|_| None).await?;
        let contenders = rows.iter().map(contender).collect::<Result<_, _>>().map_err(|_| strange("queue"))?;
        Ok(Queue::page_of(name.clone(), contenders, page))
    }

    /// Those names that can be told from their keys.
    async fn names(&self, connection: &Connection, (): (), prefix: &str) -> Result<(Vec<Name>, Option<()>)> {
        let sql = format!(
            "SELECT DISTINCT l.classid::int8, l.objid::int8, l.objsubid FROM pg_catalog.pg_locks AS l WHERE {HERE}"
        );
        let rows = connection.query("names", &sql, &[], &|_| None).await?;
        let key = |row: &Row| -> Option<Key> {
            let (class, object): (i64, i64) = (row.try_get(0).ok()?, row.try_get(1).ok()?);
            Some(match row.try_get::<_, i16>(2).ok()? {
                1 => Key::Big(class << 32 | object),
                _ => Key::Pair(class as i32, object as i32),
            })
        };
        let names = rows.iter().filter_map(|row| self.keys.name(key(row)?));
        Ok((names.filter(|name| name.as_str().starts_with(prefix)).collect(), None))
    }
}

/// A process of the server that has the lock or waits for it; the server knows no more of whom it serves than what that says of itself.
fn contender(row: &Row) -> Result<Contender, tokio_postgres::Error> {
    let (process, is_granted): (i32, bool) = (row.try_get(0)?, row.try_get(1)?);
    let (application, from): (String, String) = (row.try_get(2)?, row.try_get(3)?);
    let since: i64 = row.try_get(4)?;
    let id = RequestId { client: u64::from(process.unsigned_abs()), number: since.unsigned_abs() };
    let at = if from.is_empty() { String::new() } else { format!(" at {from}") };
    let owner = Some(Owner::new(id.client, format!("{application}{at} (process {process} of the server)"), 0));
    let foreign = Some(Foreign { what: "a session of the server", waits: Waits::Yes });
    Ok(Contender { owner, grant: is_granted.then(|| Grant::new(None)), foreign, ..Contender::new(id, Claim::MUTEX) })
}
