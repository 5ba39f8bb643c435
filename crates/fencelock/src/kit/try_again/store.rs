//! A store with a layout without a queue, as the engine sees it.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::stream;
use tokio::sync::mpsc;

use super::handle::{Core, SessionHandle};
use super::{Asks, TryAgainSession, Wire};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::reconnect::Reconnect;
use crate::name::Name;
use crate::store::{Break, Capability, Opened, Opening, Page, Queue, SessionEvent, Store};

/// What such a store asks its server about everybody's locks, and how it gets there.
pub(crate) trait Server: fmt::Debug + Send + Sync + 'static {
    /// What it asks about those of a session.
    type Asks: Asks;
    /// How far names were listed.
    type Listed: Default + Send;

    fn capability(&self) -> &Capability;

    /// A session that is not open yet, and the way on which its first connection opens it.
    fn session(&self, opening: Opening, events: mpsc::UnboundedSender<SessionEvent>) -> Result<SessionOnLink<Self>>;

    /// What the store promises after what the session learned of the server; `None` for what it promises anyway.
    fn learned(&self, _asks: &Self::Asks) -> Option<Arc<Capability>> {
        None
    }

    /// A way for looking, which belongs to no session.
    fn reader(&self) -> Arc<Link<Self>>;

    /// Who holds the lock: nobody else is in the server.
    fn queue(&self, connection: &OnWire<Self>, name: &Name, page: Page) -> impl Future<Output = Result<Queue>> + Send;

    /// One portion of the names that begin with `prefix`, and how far that came; `None` at the end.
    fn names(
        &self,
        connection: &OnWire<Self>,
        from: Self::Listed,
        prefix: &str,
    ) -> impl Future<Output = Result<(Vec<Name>, Option<Self::Listed>)>> + Send;

    /// Breaks a grant: whether it was there. By default no layout has a place for the record that every break leaves.
    fn break_grant(&self, _connection: &OnWire<Self>, order: &Break) -> impl Future<Output = Result<bool>> + Send {
        async move { Err(no_records("break").with("name", &order.place.name)) }
    }

    fn breaks(&self, _connection: &OnWire<Self>, name: &Name) -> impl Future<Output = Result<Vec<Break>>> + Send {
        async move { Err(no_records("breaks").with("name", name)) }
    }
}

fn no_records(operation: &'static str) -> Error {
    let message = "this layout breaks no locks, as it has no place for the record of a break: end the lock with the server's own tools";
    Error::new(ErrorKind::Unsupported, operation, message)
}

/// A session, and its way to the server.
pub(crate) type SessionOnLink<S> = (Arc<TryAgainSession<<S as Server>::Asks>>, Arc<Link<S>>);
/// The way to the server.
pub(crate) type Link<S> = Reconnect<<<S as Server>::Asks as Asks>::Dial>;
/// What requests are sent on.
pub(crate) type OnWire<S> = Wire<<S as Server>::Asks>;

/// The store.
pub(crate) struct TryAgainStore<S: Server> {
    server: S,
    /// The session opened last: locks are looked at through it.
    newest: Mutex<Weak<Core<S::Asks>>>,
    /// What locks are looked at through when there is no session.
    reader: Mutex<Option<Arc<Link<S>>>>,
}

impl<S: Server> fmt::Debug for TryAgainStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.server, f)
    }
}

impl<S: Server> TryAgainStore<S> {
    pub(crate) fn new(server: S) -> Self {
        Self { server, newest: Mutex::default(), reader: Mutex::default() }
    }

    async fn open(&self, opening: Opening) -> Result<Opened> {
        let (sender, mut events) = mpsc::unbounded_channel();
        let ttl = opening.ttl;
        let (session, link) = self.server.session(opening, sender)?;
        link.connection().await?;
        let (confirmed, capability) = (session.confirmed(), self.server.learned(&session.asks));
        let core = Arc::new(Core { link, session });
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&core);
        let events = Box::pin(stream::poll_fn(move |cx| events.poll_recv(cx)));
        Ok(Opened { session: Arc::new(SessionHandle(core)), events, ttl: Some(ttl), confirmed, capability })
    }

    async fn connection(&self) -> Result<Arc<OnWire<S>>> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(core) = newest.filter(|core| core.session.places.over().is_none()) {
            return core.link.connection().await;
        }
        let reader = {
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(reader.get_or_insert_with(|| self.server.reader()))
        };
        reader.connection().await
    }
}

impl<S: Server> Store for TryAgainStore<S> {
    fn capability(&self) -> &Capability {
        self.server.capability()
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(self.open(opening))
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        Box::pin(async move { self.server.queue(&*self.connection().await?, name, page).await })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>> {
        let portion = async move |from: Option<S::Listed>| {
            let Some(from) = from else { return Ok(None) };
            self.server.names(&*self.connection().await?, from, prefix).await.map(Some)
        };
        Box::pin(stream::try_unfold(Some(S::Listed::default()), portion))
    }

    fn break_grant<'a>(&'a self, order: &'a Break) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { self.server.break_grant(&*self.connection().await?, order).await })
    }

    fn breaks<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<Break>>> {
        Box::pin(async move { self.server.breaks(&*self.connection().await?, name).await })
    }
}
