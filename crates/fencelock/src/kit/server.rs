//! A store over a server: sessions, each with its own connection, and looks at the locks of all clients.

mod place;
mod session;

use std::fmt;
use std::future::{Future, ready};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::{FutureExt, stream};
use tokio::sync::mpsc;

pub(crate) use self::place::AskedPlace;
use self::session::SessionHandle;
use super::reconnect::{Dial, Reconnect};
use super::session_state::SessionState;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{
    Break, Capability, Entered, Entry, NoteOrder, NoteRead, Opened, Opening, Outline, Page, PlaceId, PlaceList, Queue,
    Renewal, RequestId, SessionEvent, Standing, Store, breaks_nothing, keeps_no_notes,
};
use crate::sync::Mutex;
use crate::time::{Clock, Moment};

/// A session of a store over a server, independent of its connection: the requests about the session and its places.
pub(crate) trait ServerSession: Send + Sync + Sized + 'static {
    type Dial: Dial;
    /// The record of one place in the session.
    type Slot: Send + Sync + 'static;

    fn state(&self) -> &SessionState;

    /// Returns an error if the session has ended.
    fn alive(&self, operation: &'static str) -> Result<()> {
        self.state().alive(operation)
    }

    fn enter(core: &Arc<Core<Self>>, entry: Arc<Entry>) -> impl Future<Output = Result<Entered>> + Send;

    /// Whether the server answers within the call.
    fn answers_inline(&self) -> bool {
        false
    }

    fn withdraw(core: &Core<Self>, place: PlaceId) -> impl Future<Output = Result<()>> + Send;

    fn renew(core: &Core<Self>, places: &dyn PlaceList) -> impl Future<Output = Result<Renewal>> + Send;

    fn waited_for<'a>(_core: &'a Core<Self>, _place: &'a PlaceId) -> Option<BoxFuture<'a, Result<()>>> {
        None
    }

    fn close(core: &Core<Self>) -> impl Future<Output = Result<()>> + Send;

    fn id(slot: &Self::Slot) -> &PlaceId;

    fn standing(&self, slot: &Self::Slot) -> Standing;

    /// Ready once the place has stopped waiting, or when its task must check the session; an error if a request about the place failed.
    fn poll_news(&self, slot: &Self::Slot, cx: &Context<'_>) -> Poll<Result<()>>;

    /// Sleeps until the place must look again; an error says that the server did not answer.
    fn wait_until(&self, clock: &dyn Clock, until: Moment) -> impl Future<Output = Result<()>> + Send {
        clock.sleep_until(until).map(Ok)
    }

    fn lighten(core: &Core<Self>, slot: &Self::Slot, claim: Claim) -> impl Future<Output = Result<()>> + Send;

    /// Gives the place up, and returns whether it was there.
    fn leave(core: &Core<Self>, slot: &Self::Slot) -> impl Future<Output = Result<bool>> + Send;

    /// The client dropped its place.
    fn dropped(&self, _slot: &Self::Slot) {}
}

/// The state that a session and its places share.
pub(crate) struct Core<S: ServerSession> {
    pub(crate) link: Arc<Reconnect<S::Dial>>,
    pub(crate) session: Arc<S>,
    pub(crate) waited: tokio::sync::Mutex<Waited>,
}

/// The last query for waiters behind grants, of a server that answers for all grants in one query.
#[derive(Default)]
pub(crate) struct Waited {
    /// When the next query is due; `None` at first.
    pub(crate) due: Option<Moment>,
    /// The grants of the next query.
    pub(crate) asked: Vec<PlaceId>,
    /// The grants with contenders waiting behind them.
    pub(crate) found: Vec<RequestId>,
}

pub(crate) type Events = mpsc::UnboundedSender<SessionEvent>;

/// The server of a store: its connections, and the requests about the locks of all clients.
pub(crate) trait Server: fmt::Debug + Send + Sync + Sized + 'static {
    type Session: ServerSession;
    type Listed: Default + Send;

    fn capability(&self) -> &Capability;

    /// The clock that every client of the store must use; by default the system's.
    fn clock(&self) -> Option<Arc<dyn Clock>> {
        None
    }

    /// A session that is not open yet, and its link, whose first connection opens it.
    fn session(&self, opening: Opening, events: Events) -> Result<SessionOnLink<Self>>;

    /// The capability, refined at connect; `None` if it is that of the store.
    fn learned(&self, _session: &Self::Session) -> Option<Arc<Capability>> {
        None
    }

    /// The link for requests outside of any session.
    fn reader(&self) -> Arc<Link<Self>>;

    /// Whether no client has taken a lock on the server yet, so that there is nothing to read.
    fn is_unused(&self, _connection: &Wire<Self>) -> bool {
        false
    }

    fn queue(&self, connection: &Wire<Self>, name: &Name, page: Page) -> impl Future<Output = Result<Queue>> + Send;

    /// The outline of a queue; by default computed from the whole queue.
    fn contention(
        &self,
        connection: &Wire<Self>,
        name: &Name,
        mine: &[RequestId],
    ) -> impl Future<Output = Result<Outline>> + Send {
        async move { Ok(Outline::of(&self.queue(connection, name, Page::ALL).await?.contenders, mine)) }
    }

    /// A page of the names that begin with `prefix`, and where the next page begins; `None` at the end.
    fn names(
        &self,
        connection: &Wire<Self>,
        from: Self::Listed,
        prefix: &str,
    ) -> impl Future<Output = Result<(Vec<Name>, Option<Self::Listed>)>> + Send;

    /// The key of the lock `name`; `None` where each name is its key.
    fn key<'a>(&'a self, _: &'a ServerStore<Self>, _name: &'a Name) -> Option<BoxFuture<'a, Result<String>>> {
        None
    }

    /// Breaks a grant, and returns whether it was there. By default the store has no room for the record that every break needs.
    fn break_grant(&self, _connection: &Wire<Self>, order: &Break) -> impl Future<Output = Result<bool>> + Send {
        ready(Err(breaks_nothing("break", &order.place.name)))
    }

    fn breaks(&self, _connection: &Wire<Self>, name: &Name) -> impl Future<Output = Result<Vec<Break>>> + Send {
        ready(Err(breaks_nothing("breaks", name)))
    }

    /// Writes a note if its grant is current, and returns whether it was. By default the store keeps no notes.
    fn write_note(&self, _connection: &Wire<Self>, order: &NoteOrder) -> impl Future<Output = Result<bool>> + Send {
        ready(Err(keeps_no_notes(&order.grant.place.name)))
    }

    fn note(&self, _connection: &Wire<Self>, name: &Name) -> impl Future<Output = Result<NoteRead>> + Send {
        ready(Err(keeps_no_notes(name)))
    }
}

/// A session, and its link to the server.
pub(crate) type SessionOnLink<S> = (Arc<<S as Server>::Session>, Arc<Link<S>>);
pub(crate) type Link<S> = Reconnect<<<S as Server>::Session as ServerSession>::Dial>;
pub(crate) type Wire<S> = <<<S as Server>::Session as ServerSession>::Dial as Dial>::Connection;

pub(crate) struct ServerStore<S: Server> {
    server: S,
    /// The session opened last, whose connection serves requests about the locks of all clients.
    newest: Mutex<Weak<Core<S::Session>>>,
    /// The link for such requests while there is no session.
    reader: Mutex<Option<Arc<Link<S>>>>,
}

impl<S: Server> fmt::Debug for ServerStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.server, f)
    }
}

impl<S: Server> ServerStore<S> {
    pub(crate) fn new(server: S) -> Self {
        Self { server, newest: Mutex::default(), reader: Mutex::default() }
    }

    async fn open(&self, opening: Opening) -> Result<Opened> {
        let (sender, mut events) = mpsc::unbounded_channel();
        let ttl = opening.ttl;
        let (session, link) = self.server.session(opening, sender)?;
        link.connection().await?;
        if session.state().has_ended() {
            let message = "the session was over as soon as it was open";
            return Err(Error::new(ErrorKind::Unreachable, "open session", message).retryable());
        }
        let (confirmed, capability) = (session.state().confirmed(), self.server.learned(&session));
        let core = Arc::new(Core { link, session, waited: Default::default() });
        *self.newest.lock() = Arc::downgrade(&core);
        let events = Box::pin(stream::poll_fn(move |cx| events.poll_recv(cx)));
        Ok(Opened { session: Arc::new(SessionHandle(core)), events, ttl: Some(ttl), confirmed, capability })
    }

    /// The connection of the session opened last, or of the link without a session if that session has ended.
    pub(crate) async fn connection(&self) -> Result<Arc<Wire<S>>> {
        let newest = self.newest.lock().upgrade();
        if let Some(core) = newest.filter(|core| !core.session.state().has_ended()) {
            return core.link.connection().await;
        }
        self.reader().connection().await
    }

    fn reader(&self) -> Arc<Link<S>> {
        let mut reader = self.reader.lock();
        Arc::clone(reader.get_or_insert_with(|| self.server.reader()))
    }

    /// As [`Self::connection`]; `None` if no client has taken a lock yet. The next connection checks again.
    async fn used(&self) -> Result<Option<Arc<Wire<S>>>> {
        let connection = self.connection().await?;
        if self.server.is_unused(&connection) {
            self.reader().hang_up();
            return Ok(None);
        }
        Ok(Some(connection))
    }
}

impl<S: Server> Store for ServerStore<S> {
    fn capability(&self) -> &Capability {
        self.server.capability()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.server.clock()
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(self.open(opening))
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        Box::pin(async move {
            let Some(connection) = self.used().await? else {
                return Ok(Queue::page_of(name.clone(), Vec::new(), page));
            };
            self.server.queue(&connection, name, page).await
        })
    }

    fn contention<'a>(&'a self, name: &'a Name, mine: &'a [RequestId]) -> BoxFuture<'a, Result<Outline>> {
        Box::pin(async move {
            let Some(connection) = self.used().await? else { return Ok(Outline::of(&[], mine)) };
            self.server.contention(&connection, name, mine).await
        })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>> {
        let portion = async move |from: Option<S::Listed>| {
            let Some(from) = from else { return Ok(None) };
            let Some(connection) = self.used().await? else { return Ok(None) };
            self.server.names(&connection, from, prefix).await.map(Some)
        };
        Box::pin(stream::try_unfold(Some(S::Listed::default()), portion))
    }

    fn key<'a>(&'a self, name: &'a Name) -> Option<BoxFuture<'a, Result<String>>> {
        self.server.key(self, name)
    }

    fn break_grant<'a>(&'a self, order: &'a Break) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let Some(connection) = self.used().await? else { return Ok(false) };
            self.server.break_grant(&connection, order).await
        })
    }

    fn write_note<'a>(&'a self, order: &'a NoteOrder) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { self.server.write_note(&*self.connection().await?, order).await })
    }

    fn note<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<NoteRead>> {
        Box::pin(async move {
            let connection = self.connection().await?;
            let read = self.server.note(&connection, name).await;
            if self.server.is_unused(&connection) {
                self.reader().hang_up();
            }
            read
        })
    }

    fn breaks<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Vec<Break>>> {
        Box::pin(async move {
            let Some(connection) = self.used().await? else { return Ok(Vec::new()) };
            self.server.breaks(&connection, name).await
        })
    }
}
