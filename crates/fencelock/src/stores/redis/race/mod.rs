//! Layouts without a queue: the client that finds the key absent has the lock. Contenders of one session line up among themselves, and the first of
//! them tries again until it has it. What one layout is besides that is a [`Dialect`]. `NOTES.md` beside this file has the rest.

mod channels;
mod dialect;
mod lines;
mod member;
pub(super) mod quorum;
mod session;
mod show;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::stream;
use tokio::sync::mpsc;

pub(super) use self::dialect::{Dialect, Held, Marks, Ours, Quick, Scripts, Shared, milliseconds};
use self::lines::Lines;
use self::member::{Member, Reader};
use self::session::{Core, RaceSession};
use super::wire::{Config, Connection, Link, LinkUser, link, without_info};
use crate::error::Result;
use crate::name::Name;
use crate::store::{Break, Capability, Opened, Opening, Page, Queue, Store};

/// How long the first of a line sleeps at most beside a lock that is free: a pause and a request.
pub(super) const WAKE_BOUND: Duration = Duration::from_secs(2);

/// The store on this server with this layout.
pub(super) fn new(config: Config, dialect: Dialect) -> Arc<dyn Store> {
    let (config, dialect) = (Arc::new(config), Arc::new(dialect));
    Arc::new(RaceStore { config, dialect, newest: Mutex::default(), reader: Mutex::default() })
}

struct RaceStore {
    config: Arc<Config>,
    dialect: Arc<Dialect>,
    /// The session opened last: locks are looked at through it.
    newest: Mutex<Weak<Core>>,
    /// What locks are looked at through when there is no session.
    reader: Mutex<Option<Arc<Link>>>,
}

impl fmt::Debug for RaceStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.config, f)
    }
}

impl RaceStore {
    async fn open(&self, opening: Opening) -> Result<Opened> {
        let (sender, mut events) = mpsc::unbounded_channel();
        let ttl = opening.ttl;
        let member =
            Arc::new(Member::new(Arc::clone(&self.dialect), opening, Lines::new(Arc::clone(&self.dialect), sender)));
        let user = Arc::clone(&member) as Arc<dyn LinkUser>;
        let link = link(&self.config, user, Some(&member.opening));
        link.connection().await?;
        let confirmed = member.confirmed();
        let capability = (!member.run.is_known()).then(|| Arc::new(without_info(self.dialect.capability)));
        let core = Arc::new(Core { link, member });
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&core);
        let events = Box::pin(stream::poll_fn(move |cx| events.poll_recv(cx)));
        Ok(Opened { session: Arc::new(RaceSession(core)), events, ttl: Some(ttl), confirmed, capability })
    }

    async fn connection(&self) -> Result<Arc<Connection>> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(core) = newest.filter(|core| core.member.lines.over().is_none()) {
            return core.link.connection().await;
        }
        let reader = {
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || link(&self.config, Arc::new(Reader(Arc::clone(&self.dialect))), None);
            Arc::clone(reader.get_or_insert_with(new))
        };
        reader.connection().await
    }
}

impl Store for RaceStore {
    fn capability(&self) -> &Capability {
        self.dialect.capability
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(self.open(opening))
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        Box::pin(async move { show::queue(&*self.connection().await?, &self.dialect, name, page).await })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>> {
        let portion = async move |cursor: Option<String>| {
            let Some(cursor) = cursor else { return Ok(None) };
            show::names(&*self.connection().await?, &self.dialect, &cursor, prefix).await.map(Some)
        };
        Box::pin(stream::try_unfold(Some("0".to_owned()), portion))
    }

    fn break_grant<'a>(&'a self, order: &'a Break) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { show::break_grant(&*self.connection().await?, &self.dialect, order).await })
    }

    fn breaks<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<Break>>> {
        Box::pin(async move { show::breaks(&*self.connection().await?, &self.dialect, name).await })
    }
}
