//! The layout of our own: queues that scripts keep, one record for each name. `NOTES.md` in the folder above has keys, scripts and states.

mod janitor;
mod layout;
mod member;
mod refusal;
mod scripts;
mod session;
mod show;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::stream;
use tokio::sync::mpsc;

use self::layout::{LAYOUT_NAME, Layout};
use self::member::{Member, Reader, probe};
use self::session::RedisSession;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::served::{Core, Hub, REPAIR};
use crate::name::Name;
use crate::store::{
    Break, Capability, Liveness, Opened, Opening, Order, Outline, Pace, Page, Queue, RequestId, Store, Tokens,
};
use crate::stores::redis::wire::{Config, Connection, Link, LinkUser, link, without_info};

pub(super) static CAPABILITY: Capability = Capability {
    store: "redis",
    layout: LAYOUT_NAME,
    liveness: Liveness::Lease,
    order: Order::Fifo,
    tokens: Tokens::ClockFlooredCounter,
    certainty: "the server keeps its memory (a crash loses what was not saved yet, a failover what was not replicated yet) and its wall clock does not jump ahead",
    shared_claims: true,
    permits: true,
    // Keys of sessions go on time, by the millisecond; who waits looks within the wake bound.
    detection_slack: Duration::from_millis(100),
    wake_bound: REPAIR.saturating_add(Duration::from_secs(1)),
    // Their layouts keep no queue: the client that finds the key absent has it.
    excludes: "",
    residue: "two numbers for each of at most 4096 buckets of names, and for 30 days the records of breaks; what crashed clients held goes as clients that live come by, 1000 names or places with each renewal",
    pace: Pace::DEFAULT,
    blocking: false,
};

/// The store on this server, whose keys begin with `prefix`.
pub(super) fn new(config: Config, prefix: &str) -> Arc<dyn Store> {
    let layout = Arc::new(Layout::new(prefix));
    Arc::new(RedisStore { config: Arc::new(config), layout, newest: Mutex::default(), reader: Mutex::default() })
}

/// Locks on a Redis server.
struct RedisStore {
    config: Arc<Config>,
    layout: Arc<Layout>,
    /// The session opened last: queues are read through it.
    newest: Mutex<Weak<Core<Member>>>,
    /// What queues are read through when there is no session.
    reader: Mutex<Option<Arc<Link>>>,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.config, f)
    }
}

impl RedisStore {
    async fn open(&self, opening: Opening) -> Result<Opened> {
        let session = getrandom::u64().map_err(|error| {
            Error::new(ErrorKind::Exhausted, "open session", "no random numbers").caused_by(error.to_string())
        })?;
        let (sender, mut events) = mpsc::unbounded_channel();
        let ttl = opening.ttl;
        let member = Arc::new(Member::new(Arc::clone(&self.layout), session, opening, Hub::new(sender)));
        let user = Arc::clone(&member) as Arc<dyn LinkUser>;
        let link = link(&self.config, user, Some(&member.opening));
        link.connection().await?;
        let confirmed = member.confirmed();
        let capability = (!member.knows_the_run()).then(|| Arc::new(without_info(&CAPABILITY)));
        let core = Arc::new(Core { link, member });
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&core);
        let events = Box::pin(futures_util::stream::poll_fn(move |cx| events.poll_recv(cx)));
        Ok(Opened { session: Arc::new(RedisSession(core)), events, ttl: Some(ttl), confirmed, capability })
    }

    /// The connection of the session opened last, or, if there is none any more, one that serves no session.
    async fn connection(&self) -> Result<Arc<Connection>> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(core) = newest.filter(|core| core.alive("read").is_ok()) {
            return core.link.connection().await;
        }
        let reader = {
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || link(&self.config, Arc::new(Reader::new(Arc::clone(&self.layout))), None);
            Arc::clone(reader.get_or_insert_with(new))
        };
        reader.connection().await
    }
}

impl Store for RedisStore {
    fn capability(&self) -> &Capability {
        &CAPABILITY
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(self.open(opening))
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        Box::pin(async move { show::queue(&*self.connection().await?, &self.layout, name, page).await })
    }

    fn contention<'a>(&'a self, name: &'a Name, mine: &'a [RequestId]) -> BoxFuture<'a, Result<Outline>> {
        Box::pin(async move { show::contention(&*self.connection().await?, &self.layout, name, mine).await })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>> {
        let portion = async move |unlisted: Vec<_>| {
            if unlisted.is_empty() {
                return Ok(None);
            }
            show::names(&*self.connection().await?, &self.layout, unlisted, prefix).await.map(Some)
        };
        Box::pin(stream::try_unfold(show::unlisted(), portion))
    }

    fn break_grant<'a>(&'a self, order: &'a Break) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let connection = self.connection().await?;
            // A client that only looked until now may not be allowed to write all of it.
            probe(&self.layout, 0, &connection, false).await?;
            show::break_grant(&connection, &self.layout, order).await
        })
    }

    fn breaks<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<Break>>> {
        Box::pin(async move { show::breaks(&*self.connection().await?, &self.layout, name).await })
    }
}
