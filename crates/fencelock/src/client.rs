//! The client: a connection to a store, with many locks.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::breaker::{Breaker, BreakerState, Circuit};
use crate::engine::Engine;
use crate::engine::io::{Io, Spawner};
use crate::engine::observe::{Observer, Observers};
use crate::engine::options::{Retry, Timing, TimingOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::session_state::random_number;
use crate::name::Name;
use crate::primitives::{Mutex, RwLock, Semaphore, StickyLocks};
use crate::store::secret::Secret;
use crate::store::{self, AnyStore, Break, Capability, Contender, Contention, Owner, Page, Queue, StoreUrl, clean};
use crate::time::{Clock, SystemClock};

/// A connection to a store, with one session for all its locks. Cheap to clone; clones share everything.
///
/// When the last clone and the last guard are gone, the client closes itself in the background. No drop ever waits, so a program that ends
/// with a drop may end before the store received the release; its locks then expire with the session's ttl. So at the end of `main`, await
/// [`Client::close`], or call [`flush`](crate::flush), which waits until no release is under way, also where the client is in a `static`.
///
/// In a child that a fork made without `exec`, the clients and guards of its parent do nothing: a guard says that it is lost, with
/// [`Loss::Closed`](crate::Loss::Closed), dropping it or the client releases nothing, and every call is an error of [`ErrorKind::Closed`]. The
/// locks stay the parent's. A child that locks connects a client of its own after the fork. As with everything that has threads, the
/// parent forks while none of them is inside a call of this library.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
/// let client = fencelock::Client::connect("memory:").await?;
/// let guard = client.mutex("deploy")?.acquire().await?;
/// assert!(guard.check().is_ok());
/// guard.release().await?;
/// client.close().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    engine: Arc<Engine>,
    lifeline: Arc<Lifeline>,
    circuit: Option<Arc<Circuit>>,
    sticky: Arc<StickyLocks>,
}

/// Shared by clients, locks and guards; when the last one goes, the client closes itself.
pub(crate) struct Lifeline(Arc<Engine>);

impl Drop for Lifeline {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// The health of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// The session is confirmed: no other client can get its locks for this long; [`Duration::MAX`] where nothing expires (`file:`).
    Confirmed(Duration),
    /// A renewal is overdue; locks are valid for this long.
    Suspect(Duration),
    /// The store refuses to renew or open the session, and no retry helps, such as after a change of the password.
    /// [`Event::RenewalFailed`](crate::observe::Event::RenewalFailed) and the next acquire have the reason. Locks are valid for this long.
    Refused(Duration),
    /// There is no session. The client tries to open one in the background, and so does every acquire.
    NoSession,
    /// The client was closed.
    Closed,
}

impl Client {
    /// Connects to the store that `url` names, with the default options.
    ///
    /// # Errors
    /// See [`ClientBuilder::connect`].
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// A builder for a client with options.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The mutex `name`: a single holder at a time, first come, first served where the store keeps order.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`].
    #[doc(alias("lock"))]
    pub fn mutex(&self, name: impl AsRef<str>) -> Result<Mutex> {
        Mutex::new(self.clone(), Name::new(name)?)
    }

    /// The read-write lock `name`: many readers or one writer, first come, first served between them.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`]; [`ErrorKind::Unsupported`] where [`Capability::shared_claims`] is false.
    pub fn rwlock(&self, name: impl AsRef<str>) -> Result<RwLock> {
        RwLock::new(self.clone(), Name::new(name)?)
    }

    /// The semaphore `name`, of which up to `capacity` permits are held at a time: 1 to 4,294,967,294.
    ///
    /// All contenders of a name must give the same capacity; see [`Semaphore`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`]; [`ErrorKind::Config`] for another capacity; [`ErrorKind::Unsupported`] where
    /// [`Capability::permits`] is false and `capacity` is not 1.
    pub fn semaphore(&self, name: impl AsRef<str>, capacity: u32) -> Result<Semaphore> {
        Semaphore::new(self.clone(), Name::new(name)?, capacity)
    }

    /// The capability of the store, refined when the newest session was opened.
    #[must_use]
    pub fn capability(&self) -> Arc<Capability> {
        self.engine.capability()
    }

    /// The times of this client.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.engine.timing
    }

    /// This client, as other clients see it.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.engine.owner
    }

    /// Lists the holders and waiters of `name`, front first.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`]; errors of the store; [`ErrorKind::Unreachable`] when it does not answer within the request deadline.
    pub async fn queue(&self, name: impl AsRef<str>) -> Result<Queue> {
        self.queue_page(name, Page::ALL).await
    }

    /// Lists a page of the holders and waiters of `name`, front first, and counts them all.
    ///
    /// # Errors
    /// As [`Client::queue`].
    pub async fn queue_page(&self, name: impl AsRef<str>, page: Page) -> Result<Queue> {
        let (engine, name) = (Arc::clone(&self.engine), Name::new(name)?);
        let read = async move { engine.in_time("queue", engine.store.queue(&name, page)).await.map(clean::queue) };
        self.engine.spawner.run(read).await
    }

    /// Returns the head of the queue of `name`, and its length: the cheapest look at a long queue.
    ///
    /// # Errors
    /// As [`Client::queue`].
    #[doc(alias("holder", "is_locked"))]
    pub async fn contention(&self, name: impl AsRef<str>) -> Result<Contention> {
        let (engine, name) = (Arc::clone(&self.engine), Name::new(name)?);
        let look = async move {
            let outline = engine.in_time("contention", engine.store.contention(&name, &[])).await?;
            Ok(clean::outline(outline).contention(name, None))
        };
        self.engine.spawner.run(look).await
    }

    /// Lists up to `limit` names with contenders that start with `prefix`, in byte order, after `from`.
    ///
    /// Each call reads all names of the store, in as many requests as necessary, each with the request deadline. To list all, call it once,
    /// with a `limit` of `usize::MAX`.
    ///
    /// # Errors
    /// As [`Client::queue`].
    pub async fn names(&self, prefix: &str, from: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        let (engine, prefix, from) = (Arc::clone(&self.engine), prefix.to_owned(), from.cloned());
        self.engine.spawner.run(async move { engine.names(&prefix, from.as_ref(), limit).await }).await
    }

    /// The key of the lock `name` in the store: names of one key are one lock. A name is its own key, but not in lock tables, whose columns
    /// have a collation, nor for advisory and named locks of a database.
    ///
    /// # Errors
    /// As [`Client::queue`].
    pub async fn key(&self, name: &Name) -> Result<String> {
        let (engine, name) = (Arc::clone(&self.engine), name.clone());
        if engine.store.key(&name).is_none() {
            return Ok(name.to_string());
        }
        let key = async move {
            let asked = engine.store.key(&name).unwrap_or_else(|| Box::pin(async { Ok(name.to_string()) }));
            engine.in_time("key", asked).await
        };
        self.engine.spawner.run(key).await
    }

    /// Breaks the grant of `holder`, as [`Client::queue`] showed it: exactly this one, and no later one. Its guard is lost with
    /// [`Loss::Broken`](crate::Loss::Broken) and `reason` (1 to 512 bytes without control characters), the next grant has a higher token,
    /// and the store keeps a record ([`Client::breaks`]). Returns whether the grant was still there.
    ///
    /// Only a resource that compares tokens stops a holder that continues regardless (paused, or cut off).
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a contender that waits, or a reason that is not valid; [`ErrorKind::Unsupported`] where
    /// the store breaks no grants; otherwise as [`Client::queue`].
    #[doc(alias("force_unlock", "force_release"))]
    pub async fn break_grant(&self, name: impl AsRef<str>, holder: &Contender, reason: &str) -> Result<bool> {
        let engine = Arc::clone(&self.engine);
        let order = Break::of(&Name::new(name)?, holder, engine.owner.clone(), reason, engine.clock.wall())?;
        let broken = async move { engine.in_time("break", engine.store.break_grant(&order)).await };
        self.engine.spawner.run(broken).await
    }

    /// The grants of `name` that were broken, as far as the store keeps them, oldest first.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the store breaks no grants; otherwise as [`Client::queue`].
    pub async fn breaks(&self, name: impl AsRef<str>) -> Result<Vec<Break>> {
        let (engine, name) = (Arc::clone(&self.engine), Name::new(name)?);
        let read = async move { engine.in_time("breaks", engine.store.breaks(&name)).await.map(clean::breaks) };
        self.engine.spawner.run(read).await
    }

    /// The health of the client, from memory: for readiness probes.
    ///
    /// After a loss, the client opens a new session in the background, with the pauses of [`ClientBuilder::retry`], and once per ttl after
    /// failures for `give_up_after`. So a probe recovers with the store, even without acquires.
    #[must_use]
    #[doc(alias("ping", "is_connected"))]
    pub fn health(&self) -> Health {
        if self.engine.is_closed() || self.engine.spawner.is_elsewhere() {
            return Health::Closed;
        }
        let now = self.engine.clock.now();
        match self.engine.current() {
            None if self.engine.is_refused() => Health::Refused(Duration::ZERO),
            None => Health::NoSession,
            Some(live) if live.refusal().is_some() => Health::Refused(live.safe_until().since(now)),
            Some(live) if live.is_suspect() => Health::Suspect(live.safe_until().since(now)),
            Some(live) => Health::Confirmed(live.safe_until().since(now)),
        }
    }

    /// The state of the circuit breaker; `None` without a [`ClientBuilder::breaker`].
    #[must_use]
    pub fn breaker(&self) -> Option<BreakerState> {
        self.circuit.as_ref().map(|circuit| circuit.state())
    }

    /// The number of places, held and waiting, that this client keeps alive.
    #[must_use]
    pub fn places(&self) -> usize {
        self.engine.current().map_or(0, |live| live.len())
    }

    /// Releases everything and ends the session. Guards that are still held are lost, with [`Loss::Closed`](crate::Loss::Closed). If the
    /// store is unreachable, the client retries for one ttl, and may take one request deadline more.
    ///
    /// # Errors
    /// When the store received no release; the locks then expire with the session's ttl. [`ErrorKind::Config`], and nothing is closed,
    /// where [`Io::CurrentRuntime`] is used on another runtime.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the rest to the background.
    #[doc(alias("shutdown", "disconnect"))]
    pub async fn close(&self) -> Result<()> {
        self.engine.spawner.check_place()?;
        let engine = Arc::clone(&self.engine);
        self.engine.spawner.run_to_end(async move { engine.close().await }).await
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn circuit(&self) -> Option<&Arc<Circuit>> {
        self.circuit.as_ref()
    }

    pub(crate) fn lifeline(&self) -> &Arc<Lifeline> {
        &self.lifeline
    }

    pub(crate) fn sticky(&self) -> &Arc<StickyLocks> {
        &self.sticky
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("store", &self.engine.store)
            .field("owner", &self.engine.owner)
            .finish_non_exhaustive()
    }
}

/// The options of a [`Client`]. They override the options of the URL.
#[derive(Default)]
#[must_use]
pub struct ClientBuilder {
    timing: TimingOptions,
    retry: Retry,
    breaker: Option<Breaker>,
    io: Io,
    opaque: Option<bool>,
    observers: Observers,
    clock: Option<Arc<dyn Clock>>,
    connect_timeout: Option<Duration>,
    only_when_needed: bool,
    password: Option<Secret>,
    /// The store's URL, for errors.
    url: Option<String>,
}

impl ClientBuilder {
    /// The ttl: the time that places outlive the last confirmed renewal. 100 ms to 24 h, 10 s by default.
    #[doc(alias("lease", "expiry"))]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.timing.ttl = Some(ttl);
        self
    }

    /// The interval of the session's renewals: ttl / 4 by default (ZooKeeper: ttl / 6), and on `file:` 2 s at most.
    pub fn renew_interval(mut self, interval: Duration) -> Self {
        self.timing.renew_interval = Some(interval);
        self
    }

    /// The safety margin: how long before the ttl runs out a guard stops being valid. The larger of ttl / 10 and 500 ms by
    /// default (ZooKeeper: at least one tick).
    pub fn margin(mut self, margin: Duration) -> Self {
        self.timing.margin = Some(margin);
        self
    }

    /// The longest time of one request to the store: ttl / 3 by default.
    pub fn request_deadline(mut self, deadline: Duration) -> Self {
        self.timing.request_deadline = Some(deadline);
        self
    }

    /// The time that [`ClientBuilder::connect`] keeps trying while the store cannot be reached, with the pauses of
    /// [`ClientBuilder::retry`], whose `give_up_after` has no effect here. Afterwards the last failure is reported. Failures that no retry
    /// can help (a wrong password, a URL that is not valid) are reported at once.
    ///
    /// By default, and with zero, there is one attempt, which takes at most the request deadline.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = Some(limit);
        self
    }

    /// Opens the session at the first acquire, and not before: for a client that only reads queues and names, or breaks a grant. Without a
    /// session a client can read from a store that grants it no locks: a server that cannot save its data, a replica, a user without the
    /// right to write.
    ///
    /// [`ClientBuilder::connect`] sends no request then: the first look shows whether the store is reachable.
    pub fn session_when_needed(mut self, only_when_needed: bool) -> Self {
        self.only_when_needed = only_when_needed;
        self
    }

    /// Requests the password anew at each connection, so that a change on the server costs no lock. The result of `ask` replaces the
    /// password of the URL, which names the user only. `ask` runs on a thread of its own and may block, for less than the request deadline.
    /// The option `password_file` of a URL does the same with a file, which no other user can read.
    ///
    /// ```
    /// let builder = fencelock::Client::builder().password(|| std::fs::read_to_string("/run/secrets/redis"));
    /// # drop(builder);
    /// ```
    pub fn password<E>(mut self, ask: impl Fn() -> Result<String, E> + Send + Sync + 'static) -> Self
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.password = Some(Secret::asked(ask));
        self
    }

    /// The policy for retries of requests that failed for a passing reason.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Lets acquires fail at once while the store is known to be unreachable; without a breaker, each tries by itself.
    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// The thread or runtime of background work: by default a thread of fencelock's own.
    pub fn io(mut self, io: Io) -> Self {
        self.io = io;
        self
    }

    /// Hides host and pid from other clients (the URL option is `owner=opaque`).
    pub fn opaque_owner(mut self, opaque: bool) -> Self {
        self.opaque = Some(opaque);
        self
    }

    /// Adds an observer of everything that happens to this client's locks.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.add(observer);
        self
    }

    /// The clock of this client; only for tests. A store with its own clock (`memory:` with a virtual one) overrides it.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Connects to the store that `url` names, and opens the session, unless it is to be opened
    /// [when needed](Self::session_when_needed).
    ///
    /// | URL | options of its own |
    /// |---|---|
    /// | `zk://[user:password@]host[:2181],host2/parent` | `layout` (`curator`, `kazoo`, `shared`), `tick_ms`, `max_frame_bytes`, `max_answer_bytes` |
    /// | `zks://host:2281/parent` | the same, and `tls_ca`, `tls_cert`, `tls_key` |
    /// | `redis://[user:password@]host[:6379][/database]` | `layout` (`fair`; `plain`, the keys of `SET NX` clients; `redisson`, `redisson-fenced`), `prefix` |
    /// | `rediss://host/0` | the same, and `tls_ca`, `tls_cert`, `tls_key` |
    /// | `redis+unix:///path/of/the.sock` | `layout`, `prefix`, `db` |
    /// | `redis+sentinel://[user:password@]host[:26379],host2,host3/NAME[/database]` | the options of `rediss:`, and `min_replicas`, `map`, `sentinel_user`, `sentinel_password_file`, `sentinel_tls` |
    /// | `redis+cluster://[user:password@]host[:6379],host2,host3` | `prefix`, `min_replicas`, `map`, `password_file`; with `rediss+cluster:` `tls_ca`, `tls_cert`, `tls_key` |
    /// | `redlock://[user:password@]host[:6379],host2,host3[/database]` | `prefix`, `drift_ms`, `rejoin_ms` |
    /// | `redlocks://host,host2,host3` | the same, and `tls_ca`, `tls_cert`, `tls_key` |
    /// | `etcd://[user:password@]host[:2379],host2/prefix` | none but for `etcds:`, which takes `tls_ca`, `tls_cert`, `tls_key` |
    /// | `postgres://user:password@host[:5432],host2/database` | `layout` (`fair`), `schema`, `user`, `password`, `host`, `port`, `bell`, `sslmode` (`verify-full`, `disable`), `application_name`, `tls_ca`, `tls_cert`, `tls_key` |
    /// | `mysql://user:password@host[:3306]/database` | `layout` (`fair`), `user`, `password`, `socket`, `sslmode` (`verify-full`, `disable`), `tls_ca`, `tls_cert`, `tls_key` |
    /// | `file:///var/lib/locks` | `create`, `inherit` (`true`, `false`) |
    /// | `memory:name` | none; clients of one process and name share it |
    ///
    /// Every store takes the options `ttl_ms`, `renew_interval_ms`, `margin_ms`, `request_deadline_ms` (whole milliseconds) and `owner`
    /// (`full`, or `opaque` to hide host and pid) in its URL. Stores that take a password take `password_file`, a path, as well: the file
    /// is read anew at each connection. A character that would end a user's name, a password or a path is written as `%` and two
    /// hexadecimal digits.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a URL or option that is not valid, [`ErrorKind::Unsupported`] for a store that was not compiled in, and
    /// errors of the store.
    pub async fn connect(mut self, url: impl AsRef<str>) -> Result<Client> {
        let mut url = StoreUrl::parse(url.as_ref())?;
        self.url = Some(url.to_string());
        self.timing.fill_from(&mut url)?;
        let opaque = match url.take("owner").as_deref() {
            None => None,
            Some("full") => Some(false),
            Some("opaque") => Some(true),
            Some(_) => {
                return Err(Error::new(ErrorKind::Config, "store URL", "the option owner is `full` or `opaque`"));
            }
        };
        self.opaque = self.opaque.or(opaque);
        self.retry.check()?;
        self.breaker.as_ref().map_or(Ok(()), Breaker::check)?;
        url.ask_for_password(self.password.take());
        let store = store::open_url(url).await?;
        self.connect_store(store).await
    }

    /// Connects to a store that exists already: a `MemoryStore` that a test shares between clients, a `FileStore`, or one of
    /// your own (feature `unstable-store`).
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    pub async fn connect_store(mut self, store: impl Into<AnyStore>) -> Result<Client> {
        let AnyStore(store) = store.into();
        if self.password.is_some() {
            let message = "a store that exists already has no URL whose password could be asked for";
            return Err(Error::new(ErrorKind::Config, "connect", message));
        }
        let timing = self.timing.resolve(&store.capability().pace)?;
        self.retry.check()?;
        self.breaker.as_ref().map_or(Ok(()), Breaker::check)?;
        let spawner = Spawner::new(self.io, store.capability().blocking)?;
        let clock = store.clock().or(self.clock).unwrap_or_else(|| Arc::new(SystemClock));
        let owner = owner(self.opaque.unwrap_or(false))?;
        let of_breaker = |options| Arc::new(Circuit::new(options, Arc::clone(&clock), self.observers.clone()));
        let circuit = self.breaker.map(of_breaker);
        if let Some(circuit) = &circuit {
            self.observers.add(Arc::clone(circuit) as Arc<dyn Observer>);
        }
        let mut engine = Engine::new(store, clock, timing, self.retry, owner, self.observers, spawner);
        engine.url = self.url.unwrap_or(engine.url);
        let engine = Arc::new(engine);
        let (lifeline, sticky) = (Arc::new(Lifeline(Arc::clone(&engine))), Arc::default());
        let client = Client { lifeline, engine, circuit, sticky };
        if self.only_when_needed {
            return Ok(client);
        }
        let opening = Arc::clone(&client.engine);
        let limit = self.connect_timeout;
        client.engine.spawner.run(async move { opening.connect(limit).await }).await?;
        Ok(client)
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("timing", &self.timing).field("io", &self.io).finish_non_exhaustive()
    }
}

fn owner(opaque: bool) -> Result<Owner> {
    let client = random_number("connect")?;
    if opaque {
        return Ok(Owner::new(client, "", 0));
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(Owner::new(client, host, std::process::id()))
}
