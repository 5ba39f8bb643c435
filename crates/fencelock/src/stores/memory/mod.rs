//! Locks inside one process, for tests: a real queue with a clock and faults that a test owns.
//!
//! [`MemoryStore`] keeps every promise of a store but one: everything is lost with the process. Each client under test gets its own handle
//! with [`MemoryStore::another_process`]; faults are scripted per handle.

mod clock;
mod link;
mod session;
mod state;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use futures_core::future::BoxFuture;

pub use self::clock::VirtualClock;
pub use self::link::{DelayedRequest, Operation};
use self::link::{Link, Scripted, SharedStore};
use self::session::{MemorySession, Way};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::reconnect::Reconnect;
use crate::kit::served::Places;
use crate::kit::server::{Events, Server, ServerStore};
use crate::name::Name;
use crate::store::{
    AnyStore, Break, Capability, Liveness, NoteOrder, NoteRead, Opening, Order, Outline, Page, PlaceId, Presumption,
    Queue, RequestId, Store, StoreInfo, StoreUrl, Tokens, Waiters,
};
use crate::sync::Mutex;
use crate::time::{Clock, SystemClock};

/// A store in the memory of this process.
///
/// Clones are handles of one client to one store. [`MemoryStore::another_process`] is another client's handle: faults affect only the
/// sessions opened through one handle and its clones.
///
/// The store promises nothing beyond the process: two processes never see each other's locks.
#[derive(Debug, Clone)]
pub struct MemoryStore {
    link: Arc<Link>,
    served: Arc<ServerStore<Memory>>,
}

impl MemoryStore {
    /// An empty store on the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::on(SharedStore::new(Arc::new(SystemClock), false))
    }

    /// An empty store on a clock that stands still until the test moves it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use fencelock::{Client, memory::MemoryStore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
    /// let (store, clock) = MemoryStore::with_virtual_clock();
    /// let client = Client::builder().connect_store(store).await?;
    /// let guard = client.mutex("deploy")?.acquire().await?;
    /// clock.advance(Duration::from_secs(3600)); // as if the process had been stopped for an hour
    /// assert!(guard.check().is_err());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_virtual_clock() -> (Self, VirtualClock) {
        let clock = VirtualClock::new();
        (Self::on(SharedStore::new(Arc::new(clock.clone()), true)), clock)
    }

    /// The store `name`, which all clients of this process with the URL `memory:NAME` share. The store lasts as long as one handle of it.
    #[must_use]
    pub fn named(name: &str) -> Self {
        static NAMED: LazyLock<Mutex<HashMap<String, Weak<SharedStore>>>> = LazyLock::new(Mutex::default);
        let mut named = NAMED.lock();
        named.retain(|_, store| store.strong_count() > 0);
        let store = named.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
            let store = SharedStore::new(Arc::new(SystemClock), false);
            named.insert(name.to_owned(), Arc::downgrade(&store));
            store
        });
        Self::on(store)
    }

    /// Another client's handle to this store, with no fault scripted.
    #[must_use]
    pub fn another_process(&self) -> Self {
        Self::on(Arc::clone(&self.link.shared))
    }

    fn on(shared: Arc<SharedStore>) -> Self {
        let link = Link::new(shared);
        Self { served: Arc::new(ServerStore::new(Memory(Arc::clone(&link)))), link }
    }

    /// Expires every session of this client now, before its ttl; the client is notified, unless it is cut off.
    pub fn expire_sessions(&self) {
        self.link.shared.with(|state, _| state.expire_all_of(&self.link));
    }

    /// Cuts this client off from the store, until [`MemoryStore::heal`].
    ///
    /// The client's requests hang and have no effect. Requests still awaited at the healing arrive then; dropped ones never do (for a
    /// request that arrives after it was given up, see [`MemoryStore::delay_next`]). A wait for a grant receives nothing, and fails as
    /// [`ErrorKind::Unreachable`] at its end. The store works on: the client's sessions expire unrenewed.
    pub fn partition(&self) {
        self.link.change(|faults| faults.cut = true);
    }

    /// Ends a partition: hanging requests arrive now.
    pub fn heal(&self) {
        self.link.change(|faults| faults.cut = false);
    }

    /// Kills this client: none of its requests reaches the store again, and no request gets an answer. The client's
    /// sessions expire unrenewed. A killed client cannot return: a restart is another handle.
    pub fn crash(&self) {
        self.link.change(|faults| faults.crashed = true);
    }

    /// Makes every renewal of this client from now on reach the store `delay` late, by the store's clock; zero ends it.
    pub fn slow_renewals(&self, delay: Duration) {
        self.link.change(|faults| faults.renewal_delay = delay);
    }

    /// Loses the answer to this client's next request of that kind: the request takes effect, and fails as
    /// [`ErrorKind::Unreachable`] with [`Outcome::Unknown`](crate::Outcome::Unknown). Calls add up.
    pub fn lose_next_reply(&self, operation: Operation) {
        self.link.change(|faults| faults.scripts.push((operation, Scripted::LoseReply)));
    }

    /// Holds back this client's next request of that kind until it is released: the request then takes effect, even if the caller gave up
    /// long ago, unless it was withdrawn meanwhile. Calls add up.
    pub fn delay_next(&self, operation: Operation) -> DelayedRequest {
        self.link.hold(operation)
    }

    /// Takes one place out of its queue, as any client with access to the store might; the place's client is notified. Returns whether the
    /// place was there.
    pub fn remove(&self, place: &PlaceId) -> bool {
        self.link.shared.with(|state, _| state.remove(place))
    }

    /// The present content of the store.
    #[must_use]
    pub fn census(&self) -> Census {
        let (sessions, names, places) = self.link.shared.with(|state, _| state.count());
        Census { sessions, names, places }
    }
}

/// The content of a [`MemoryStore`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    /// Sessions that live.
    pub sessions: usize,
    /// The names for which the store keeps anything.
    pub names: usize,
    /// Places, of holders and waiters.
    pub places: usize,
}

impl From<MemoryStore> for AnyStore {
    fn from(store: MemoryStore) -> Self {
        Self(store.into())
    }
}

impl From<MemoryStore> for Arc<dyn Store> {
    fn from(store: MemoryStore) -> Self {
        store.served
    }
}

impl Deref for MemoryStore {
    type Target = dyn Store;

    fn deref(&self) -> &dyn Store {
        &*self.served
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

static CAPABILITY: Capability = Capability {
    liveness: Liveness::Memory,
    order: Order::Fifo,
    tokens: Tokens::ClockFlooredCounter,
    presumes: &[Presumption::ProcessLives],
    shared_claims: true,
    permits: true,
    notes: true,
    waiters: Waiters::Notified,
    detection_slack: Duration::ZERO,
    wake_bound: Duration::from_millis(100),
    ..Capability::least("memory", "memory 1")
};

/// The store as one client asks it.
#[derive(Debug)]
struct Memory(Arc<Link>);

impl Memory {
    /// Without a limit of its own: a request of a client that is cut off hangs until it is healed or its caller gives up.
    fn way(&self, session: Option<Arc<MemorySession>>, clock: Arc<dyn Clock>) -> Arc<Reconnect<Way>> {
        Reconnect::new(Way { link: Arc::clone(&self.0), session }, clock, Duration::MAX)
    }
}

impl Server for Memory {
    type Session = MemorySession;
    type Listed = ();

    fn capability(&self) -> &Capability {
        &CAPABILITY
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.0.shared.is_virtual.then(|| Arc::clone(&self.0.shared.clock))
    }

    fn session(&self, opening: Opening, events: Events) -> Result<(Arc<MemorySession>, Arc<Reconnect<Way>>)> {
        if opening.ttl.is_zero() {
            return Err(Error::new(ErrorKind::Config, "open", "a session lives longer than 0 s"));
        }
        let clock = Arc::clone(&opening.clock);
        let session = Arc::new(MemorySession::new(&self.0, opening, Places::new(events)));
        Ok((Arc::clone(&session), self.way(Some(session), clock)))
    }

    fn reader(&self) -> Arc<Reconnect<Way>> {
        self.way(None, Arc::clone(&self.0.shared.clock))
    }

    async fn queue(&self, link: &Link, name: &Name, page: Page) -> Result<Queue> {
        let name = name.clone();
        link.send(Operation::Other, None, move |state, _| state.queue(&name, page)).await
    }

    async fn contention(&self, link: &Link, name: &Name, mine: &[RequestId]) -> Result<Outline> {
        let (name, mine) = (name.clone(), mine.to_vec());
        let outline = move |queue: Queue| Outline::of(&queue.contenders, &mine);
        link.send(Operation::Contention, None, move |state, _| outline(state.queue(&name, Page::ALL))).await
    }

    async fn names(&self, link: &Link, (): (), prefix: &str) -> Result<(Vec<Name>, Option<()>)> {
        let prefix = prefix.to_owned();
        link.send(Operation::Other, None, move |state, _| (state.names(&prefix), None)).await
    }

    async fn break_grant(&self, link: &Link, order: &Break) -> Result<bool> {
        let order = order.clone();
        link.send(Operation::Other, None, move |state, _| state.break_grant(order)).await
    }

    async fn breaks(&self, link: &Link, name: &Name) -> Result<Vec<Break>> {
        let name = name.clone();
        link.send(Operation::Other, None, move |state, _| state.breaks(&name)).await
    }

    async fn write_note(&self, link: &Link, order: &NoteOrder) -> Result<bool> {
        let order = order.clone();
        link.send(Operation::WriteNote, None, move |state, _| state.write_note(&order)).await
    }

    async fn note(&self, link: &Link, name: &Name) -> Result<NoteRead> {
        let name = name.clone();
        link.send(Operation::Other, None, move |state, _| state.note(&name)).await
    }
}

/// The store's row in the registry.
pub(crate) const INFO: StoreInfo =
    StoreInfo { capability: Some(|| CAPABILITY.clone()), open: Some(open), ..StoreInfo::OFF };

fn open(url: StoreUrl) -> BoxFuture<'static, Result<Arc<dyn Store>>> {
    Box::pin(async move {
        url.refuse_other_options(INFO.options)?;
        if url.credentials().is_some() || !url.authority().is_empty() || url.path().starts_with('/') {
            return Err(Error::new(
                ErrorKind::Config,
                "store URL",
                "a memory store is `memory:` for one of its own, or `memory:NAME` for one shared in the process",
            ));
        }
        let store = if url.path().is_empty() { MemoryStore::new() } else { MemoryStore::named(url.path()) };
        Ok(store.into())
    })
}
