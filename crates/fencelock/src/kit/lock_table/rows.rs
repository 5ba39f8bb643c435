//! The rows of a lock table: the requests of sessions and of readers.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::holder::holder;
use super::{LockTable, TableKind, shedlock, tutorial};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::database::link::{Database, Dialler, Link};
use crate::kit::database::{Chores, User};
use crate::kit::server::{Events, Server, ServerStore};
use crate::kit::try_again::{Prolonged, Tried, Try, TryAgainSession, Trying, UnqueuedBackend, Wire};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Capability, Entry, Opening, Page, PlaceId, Queue, Store};
use futures_core::future::BoxFuture;

const TRYING: Trying = Trying { pause: Duration::from_millis(100), has_channel: false, passes: false, kind: "row" };

const NAMES_PER_CALL: i64 = 1000;

const ONLY_MUTEXES: &str = "a lock table knows mutexes only: readers, writers and permits need `layout=fair`";

pub(crate) type OnWire<R> = <<R as Rows>::Database as Database>::Connection;

/// Requests about rows, each a key and a holder. `take` writes a row for `ttl_ms` if the row is missing, has expired or is this holder's.
/// `renew` returns for each row that has not expired whether it was renewed, `leave` how many rows were there. `held` returns the holder and
/// the milliseconds until its end, `None` for a row without an end. `keys` returns whether each is held, at most `most` behind `from`.
pub(crate) trait Rows: Send + Sync + 'static {
    type Database: Database;

    const STORE: &'static str;

    fn of(&self) -> &LockTable;

    fn longest(&self) -> Option<usize>;

    /// Checks the existing table, and refuses a table with which two clients could hold one lock.
    fn meet(&self, connection: &OnWire<Self>, only_looks: bool) -> impl Future<Output = Result<()>> + Send;

    fn take(
        &self,
        connection: &OnWire<Self>,
        operation: &'static str,
        row: (&str, &str),
        ttl_ms: i64,
    ) -> impl Future<Output = Result<Tried>> + Send;

    fn renew(
        &self,
        connection: &OnWire<Self>,
        rows: (Vec<&str>, Vec<String>),
        ttl_ms: i64,
    ) -> impl Future<Output = Result<Vec<bool>>> + Send;

    fn leave(
        &self,
        connection: &OnWire<Self>,
        operation: &'static str,
        rows: (Vec<&str>, Vec<String>),
    ) -> impl Future<Output = Result<usize>> + Send;

    fn held(
        &self,
        connection: &OnWire<Self>,
        key: &str,
    ) -> impl Future<Output = Result<Option<(String, Option<i64>)>>> + Send;

    fn key_of(&self, connection: &OnWire<Self>, name: &Name) -> impl Future<Output = Result<String>> + Send;

    fn keys(
        &self,
        connection: &OnWire<Self>,
        from: &str,
        most: i64,
    ) -> impl Future<Output = Result<Vec<(String, bool)>>> + Send;
}

pub(crate) fn store<R: Rows>(config: <R::Database as Database>::Config, table: R) -> Arc<dyn Store> {
    let capability = match table.of().kind {
        TableKind::Tutorial => tutorial(R::STORE),
        TableKind::ShedLock { .. } => shedlock(R::STORE),
    };
    Arc::new(ServerStore::new(Tables { config: Arc::new(config), table: Arc::new(table), capability }))
}

struct Tables<R: Rows> {
    config: Arc<<R::Database as Database>::Config>,
    table: Arc<R>,
    capability: Capability,
}

impl<R: Rows> fmt::Debug for Tables<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (table {})", self.config, self.table.of().name.join("."))
    }
}

struct Asking<R> {
    rows: Arc<R>,
    opening: Opening,
}

impl<R> Asking<R> {
    fn ttl_ms(&self) -> i64 {
        i64::try_from(self.opening.ttl.as_millis()).unwrap_or(i64::MAX)
    }
}

fn rows(places: &[PlaceId]) -> (Vec<&str>, Vec<String>) {
    places.iter().map(|place| (place.name.as_str(), holder(place.request))).unzip()
}

impl<R: Rows> UnqueuedBackend for Asking<R> {
    type Dial = Dialler<R::Database>;

    fn check(&self, entry: &Entry) -> Result<String> {
        if entry.claim != Claim::MUTEX {
            let error = Error::new(ErrorKind::Unsupported, "enter", ONLY_MUTEXES);
            return Err(error.with("name", &entry.name).with("claim", entry.claim));
        }
        let longest = self.rows.longest().unwrap_or(usize::MAX);
        if entry.name.as_str().chars().count() > longest {
            let message = "the name is longer than the column of the key in the lock table";
            let error = Error::new(ErrorKind::InvalidName, "enter", message);
            return Err(error.with("name", &entry.name).with("characters at most", longest));
        }
        Ok(String::new())
    }

    async fn take(&self, connection: &Wire<Self>, due: &Try, is_new: bool) -> Result<Tried> {
        let operation = if is_new { "enter" } else { "next" };
        let holder = holder(due.place.request);
        self.rows.take(connection, operation, (due.place.name.as_str(), &holder), self.ttl_ms()).await
    }

    async fn renew(&self, connection: &Wire<Self>, places: &[PlaceId]) -> Result<Prolonged> {
        let kept = self.rows.renew(connection, rows(places), self.ttl_ms()).await?;
        let lost = kept.iter().enumerate().filter(|(_, is_kept)| !**is_kept).map(|(index, _)| index);
        Ok(Prolonged { lost: lost.collect(), unknown: Vec::new() })
    }

    async fn leave(&self, connection: &Wire<Self>, operation: &'static str, places: &[PlaceId]) -> Result<usize> {
        self.rows.leave(connection, operation, rows(places)).await
    }
}

struct SessionUser<R: Rows>(Arc<TryAgainSession<Asking<R>>>);

impl<R: Rows> User<OnWire<R>> for SessionUser<R> {
    fn greet(self: Arc<Self>, connection: Arc<OnWire<R>>) -> BoxFuture<'static, Result<Option<Chores>>> {
        Box::pin(async move {
            let sent = self.0.opening.clock.now();
            self.0.backend.rows.meet(&connection, false).await?;
            if !self.0.places.session.is_open() {
                self.0.places.session.confirm(sent);
            }
            self.0.places.connected();
            Ok(Some(self.0.tries(&connection)))
        })
    }

    fn disconnected(&self, _: u64) {
        self.0.places.disconnected();
        self.0.places.doubt();
    }
}

struct Reader<R>(Arc<R>);

impl<R: Rows> User<OnWire<R>> for Reader<R> {
    fn greet(self: Arc<Self>, connection: Arc<OnWire<R>>) -> BoxFuture<'static, Result<Option<Chores>>> {
        Box::pin(async move { self.0.meet(&connection, true).await.map(|()| None) })
    }
}

impl<R: Rows> Server for Tables<R> {
    type Session = TryAgainSession<Asking<R>>;
    type Listed = String;

    fn capability(&self) -> &Capability {
        &self.capability
    }

    fn session(
        &self,
        opening: Opening,
        events: Events,
    ) -> Result<(Arc<TryAgainSession<Asking<R>>>, Link<R::Database>)> {
        let asking = Asking { rows: Arc::clone(&self.table), opening: opening.clone() };
        let session = TryAgainSession::new(asking, opening, TRYING, events);
        let user = Arc::new(SessionUser(Arc::clone(&session)));
        let link = Dialler::<R::Database>::foreign(&self.config, user, Some(&session.opening), None);
        Ok((session, link))
    }

    fn reader(&self) -> Link<R::Database> {
        Dialler::<R::Database>::foreign(&self.config, Arc::new(Reader(Arc::clone(&self.table))), None, None)
    }

    fn key<'a>(&'a self, store: &'a ServerStore<Self>, name: &'a Name) -> Option<BoxFuture<'a, Result<String>>> {
        Some(Box::pin(async move { self.table.key_of(&*store.connection().await?, name).await }))
    }

    async fn queue(&self, connection: &OnWire<R>, name: &Name, page: Page) -> Result<Queue> {
        let held = self.table.held(connection, name.as_str()).await?;
        let holder = held.map(|(by, left)| self.table.of().contender(&by, left));
        Ok(Queue::page_of(name.clone(), holder.into_iter().collect(), page))
    }

    async fn names(&self, connection: &OnWire<R>, from: String, prefix: &str) -> Result<(Vec<Name>, Option<String>)> {
        let keys = self.table.keys(connection, &from, NAMES_PER_CALL).await?;
        let held = keys.iter().filter(|(key, is_held)| *is_held && key.starts_with(prefix));
        let names = held.filter_map(|(key, _)| Name::new(key).ok()).collect();
        // A key that is no UTF-8 is shown as another text. The listing ends if the next page would begin where this one did.
        Ok((names, keys.into_iter().next_back().map(|(key, _)| key).filter(|last| *last != from)))
    }
}
