//! Other programs' locks that last as long as a connection of the server. A session has one connection, whose end ends every lock. A store
//! implements the statements ([`SessionLocks`]). Lines and tries are in `try_again/`.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::fmt;
use std::future::{Future, ready};
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use super::link::{Database, Dialler, Link};
use super::{Chores, NoUser, User};
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::kit::server::{Events, Server, ServerStore};
use crate::kit::try_again::{Prolonged, Tried, Try, TryAgainSession, Trying, UnqueuedBackend, WAKE_BOUND, Wire};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{
    Capability, Contender, Entry, Foreign, Grant, Liveness, Loss, Opening, Owner, Page, PlaceId, Queue, RequestId,
    Store, Waits,
};
use crate::sync::Mutex;
use futures_core::future::BoxFuture;
use futures_util::future::join;

const ONLY_MUTEXES: &str =
    "locks of the server's sessions are taken as mutexes here: readers, writers and permits need `layout=fair`";

pub(crate) fn least(store: &'static str, layout: &'static str) -> Capability {
    Capability { liveness: Liveness::Session, wake_bound: WAKE_BOUND, ..Capability::least(store, layout) }
}

pub(crate) fn contender(id: RequestId, who: String, is_granted: bool) -> Contender {
    let owner = Some(Owner::new(id.client, who, 0));
    let foreign = Some(Foreign { what: "a session of the server", waits: Waits::Yes });
    Contender { owner, grant: is_granted.then(|| Grant::new(None)), foreign, ..Contender::new(id, Claim::MUTEX) }
}

pub(crate) type OnWire<L> = <<L as SessionLocks>::Database as Database>::Connection;

/// `take` is for a free lock; with `is_in_doubt` the session may have the lock already, and a second one would need a second release. `give_up`
/// returns whether the session had the lock. `watch` notices the end of a connection while a lock is held, for drivers that do not.
pub(crate) trait SessionLocks: Send + Sync + Sized + 'static {
    type Database: Database;
    type Key: Clone + Eq + Hash + fmt::Debug + Send + Sync;

    const KIND: &'static str;
    const CAPABILITY: &'static LazyLock<Capability>;

    fn key(&self, operation: &'static str, name: &Name) -> Result<Self::Key>;

    /// Has the server end a session that is silent for this ttl, and never sooner. Returns the number of the server's process.
    fn begin(&self, connection: &OnWire<Self>, ttl: Duration) -> impl Future<Output = Result<u64>> + Send;

    fn process(&self, connection: &OnWire<Self>) -> impl Future<Output = Result<u64>> + Send;

    fn take(
        &self,
        connection: &OnWire<Self>,
        operation: &'static str,
        key: &Self::Key,
        is_in_doubt: bool,
    ) -> impl Future<Output = Result<bool>> + Send;

    fn give_up(
        &self,
        connection: &OnWire<Self>,
        operation: &'static str,
        key: &Self::Key,
    ) -> impl Future<Output = Result<bool>> + Send;

    fn watch(_: Weak<OnWire<Self>>, _: Arc<TryAgainSession<Asking<Self>>>) -> impl Future<Output = ()> + Send {
        async {}
    }

    fn contenders(
        &self,
        connection: &OnWire<Self>,
        key: &Self::Key,
    ) -> impl Future<Output = Result<Vec<Contender>>> + Send;

    fn names(&self, connection: &OnWire<Self>) -> impl Future<Output = Result<Vec<Name>>> + Send;
}

pub(crate) fn store<L: SessionLocks>(config: <L::Database as Database>::Config, locks: L) -> Arc<dyn Store> {
    Arc::new(ServerStore::new(Locks { config: Arc::new(config), locks: Arc::new(locks) }))
}

struct Locks<L: SessionLocks> {
    config: Arc<<L::Database as Database>::Config>,
    locks: Arc<L>,
}

impl<L: SessionLocks> fmt::Debug for Locks<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({}s)", self.config, L::KIND)
    }
}

pub(crate) struct Asking<L: SessionLocks> {
    locks: Arc<L>,
    process: AtomicU64,
    taken: Mutex<HashMap<L::Key, RequestId>>,
}

impl<L: SessionLocks> Asking<L> {
    pub(crate) fn holds_nothing(&self) -> bool {
        self.taken.lock().is_empty()
    }

    fn key_of(&self, operation: &'static str, place: &PlaceId) -> Result<Option<L::Key>> {
        let key = self.locks.key(operation, &place.name)?;
        Ok((self.taken.lock().get(&key) == Some(&place.request)).then_some(key))
    }
}

impl<L: SessionLocks> UnqueuedBackend for Asking<L> {
    type Dial = Dialler<L::Database>;

    fn check(&self, entry: &Entry) -> Result<String> {
        if entry.claim != Claim::MUTEX {
            let error = Error::new(ErrorKind::Unsupported, "enter", ONLY_MUTEXES);
            return Err(error.with("name", &entry.name).with("claim", entry.claim));
        }
        self.locks.key("enter", &entry.name).map(|_| String::new())
    }

    async fn take(&self, connection: &Wire<Self>, due: &Try, is_new: bool) -> Result<Tried> {
        let operation = if is_new { "enter" } else { "next" };
        let (key, id) = (self.locks.key(operation, &due.place.name)?, due.place.request);
        let is_in_doubt = match self.taken.lock().entry(key.clone()) {
            // Another place of this session has the lock, perhaps under another name.
            MapEntry::Occupied(other) if *other.get() != id => return Ok(Tried::Busy(None)),
            MapEntry::Occupied(_) => true,
            MapEntry::Vacant(free) => {
                free.insert(id);
                false
            }
        };
        let taken = self.locks.take(connection, operation, &key, is_in_doubt).await;
        let is_free = match &taken {
            Ok(is_taken) => !is_taken,
            Err(error) => !is_in_doubt && error.outcome() == Outcome::NotApplied,
        };
        if is_free {
            self.taken.lock().remove(&key);
        }
        Ok(if taken? { Tried::Granted(None) } else { Tried::Busy(None) })
    }

    /// The locks last as long as the connection, so one answer on it renews all locks, unless another process of the server answers.
    async fn renew(&self, connection: &Wire<Self>, places: &[PlaceId]) -> Result<Prolonged> {
        let is_same = self.locks.process(connection).await? == self.process.load(Ordering::Acquire);
        let is_lost = |place: &PlaceId| Ok::<_, Error>(!is_same || self.key_of("renew", place)?.is_none());
        let lost = places.iter().map(is_lost).collect::<Result<Vec<bool>>>()?;
        let lost = lost.iter().enumerate().filter(|(_, is_lost)| **is_lost).map(|(index, _)| index);
        Ok(Prolonged { lost: lost.collect(), unknown: Vec::new() })
    }

    async fn leave(&self, connection: &Wire<Self>, operation: &'static str, places: &[PlaceId]) -> Result<usize> {
        let mut left = 0;
        for place in places {
            let Some(key) = self.key_of(operation, place)? else { continue };
            left += usize::from(self.locks.give_up(connection, operation, &key).await?);
            self.taken.lock().remove(&key);
        }
        Ok(left)
    }
}

struct SessionUser<L: SessionLocks>(Arc<TryAgainSession<Asking<L>>>);

impl<L: SessionLocks> User<OnWire<L>> for SessionUser<L> {
    fn greet(self: Arc<Self>, connection: Arc<OnWire<L>>) -> BoxFuture<'static, Result<Option<Chores>>> {
        Box::pin(async move {
            let session = &self.0;
            // This connection has no lock that was granted on another one.
            session.places.session.alive("connect")?;
            if session.places.session.is_open() {
                session.places.end(Loss::Expired);
                return session.places.session.alive("connect").map(|()| None);
            }
            let sent = session.opening.clock.now();
            let process = session.backend.locks.begin(&connection, session.opening.ttl).await?;
            session.backend.process.store(process, Ordering::Release);
            session.places.session.confirm(sent);
            let chores = join(session.tries(&connection), L::watch(Arc::downgrade(&connection), Arc::clone(session)));
            let chores: Chores = Box::pin(async move { ((), ()) = chores.await });
            Ok(Some(chores))
        })
    }

    fn disconnected(&self, _: u64) {
        if self.0.places.session.is_open() {
            self.0.places.end(Loss::Expired);
        }
    }
}

impl<L: SessionLocks> Server for Locks<L> {
    type Session = TryAgainSession<Asking<L>>;
    type Listed = ();

    fn capability(&self) -> &Capability {
        L::CAPABILITY
    }

    fn session(
        &self,
        opening: Opening,
        events: Events,
    ) -> Result<(Arc<TryAgainSession<Asking<L>>>, Link<L::Database>)> {
        let trying = Trying { pause: Duration::from_millis(100), has_channel: false, passes: false, kind: L::KIND };
        let (locks, taken) = (Arc::clone(&self.locks), Mutex::default());
        let asking = Asking { locks, process: AtomicU64::new(0), taken };
        let session = TryAgainSession::new(asking, opening, trying, events);
        let user = Arc::new(SessionUser(Arc::clone(&session)));
        // An abandoned connection costs every lock, so the client gives it up only once the locks have ended anyway.
        let silence = session.opening.ttl * 2 / 3;
        let link = Dialler::<L::Database>::foreign(&self.config, user, Some(&session.opening), Some(silence));
        Ok((session, link))
    }

    fn reader(&self) -> Link<L::Database> {
        Dialler::<L::Database>::foreign(&self.config, Arc::new(NoUser), None, None)
    }

    /// MySQL takes capital letters in the name of a lock for small ones.
    fn key<'a>(&'a self, _: &'a ServerStore<Self>, name: &'a Name) -> Option<BoxFuture<'a, Result<String>>> {
        let key = self.locks.key("key", name).map(|key| format!("{key:?}").to_lowercase());
        Some(Box::pin(ready(key)))
    }

    async fn queue(&self, connection: &OnWire<L>, name: &Name, page: Page) -> Result<Queue> {
        let contenders = self.locks.contenders(connection, &self.locks.key("queue", name)?).await?;
        Ok(Queue::page_of(name.clone(), contenders, page))
    }

    async fn names(&self, connection: &OnWire<L>, (): (), prefix: &str) -> Result<(Vec<Name>, Option<()>)> {
        let names = self.locks.names(connection).await?.into_iter();
        Ok((names.filter(|name| name.as_str().starts_with(prefix)).collect(), None))
    }
}
