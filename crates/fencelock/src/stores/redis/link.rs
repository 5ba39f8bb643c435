//! The way to the server: a connection that is made when it is needed, one at a time, with pauses after failures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use futures_util::future::{Shared, WeakShared};

use super::config::Config;
use super::connection::{Connection, Ears};
use super::fault::forbidden;
use super::janitor::{Janitor, clear_up};
use super::layout::{Layout, VERSION};
use super::push::{Hub, Over};
use super::repair::repair;
use super::scripts::{self, Open};
use crate::engine::clock::{Clock, Moment, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Opening, Tasks};

/// The pause after the first failure; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A connection that takes longer to be made, or is silent for longer, is given up, however long a session may live.
const MOST_PATIENCE: Duration = Duration::from_secs(10);
/// The ttl that the patience with a connection of no session goes by.
const READER_TTL: Duration = Duration::from_secs(10);

/// The session that a link speaks for.
pub(super) struct Member {
    /// Drawn at random.
    pub(super) session: u64,
    pub(super) opening: Opening,
    pub(super) hub: Arc<Hub>,
    pub(super) janitor: Arc<Janitor>,
}

/// The way to one server, for one session or for nobody.
pub(super) struct Link {
    config: Arc<Config>,
    pub(super) layout: Arc<Layout>,
    pub(super) clock: Arc<dyn Clock>,
    /// How long a connection may take to be made.
    patience: Duration,
    /// How long a connection may be silent. A session that lives longer may have it be silent longer.
    silence: Duration,
    member: Option<Member>,
    state: Mutex<State>,
    /// The newest epoch of the session that we know; 0 before it is open.
    epoch: AtomicU64,
    /// Before the request was sent that opened the session, or resumed it last.
    confirmed: AtomicU64,
}

#[derive(Default)]
struct State {
    current: Option<Arc<Connection>>,
    dialing: Option<WeakShared<Dial>>,
    failures: u32,
    not_before: Option<Moment>,
    /// How many connections were tried.
    tried: u64,
    run_id: Option<String>,
}

type Dialed = std::result::Result<Arc<Connection>, Arc<Error>>;
type Dial = BoxFuture<'static, Dialed>;

impl Link {
    pub(super) fn new(config: &Arc<Config>, layout: &Arc<Layout>, member: Option<Member>) -> Arc<Self> {
        let opening = member.as_ref().map(|member| &member.opening);
        let ttl = opening.map_or(READER_TTL, |opening| opening.ttl);
        Arc::new(Self {
            config: Arc::clone(config),
            layout: Arc::clone(layout),
            clock: opening
                .map_or_else(|| Arc::new(SystemClock) as Arc<dyn Clock>, |opening| Arc::clone(&opening.clock)),
            patience: opening.map_or(READER_TTL * 3 / 10, Opening::patience).min(MOST_PATIENCE),
            silence: (ttl * 3 / 10).min(MOST_PATIENCE),
            member,
            state: Mutex::default(),
            epoch: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The session has this epoch, at least.
    pub(super) fn raise(&self, epoch: u64) {
        self.epoch.fetch_max(epoch, Ordering::AcqRel);
    }

    /// When the request was sent that opened the session, or resumed it last.
    pub(super) fn confirmed(&self) -> Moment {
        Moment::from_nanos(self.confirmed.load(Ordering::Acquire))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.lock().current.as_ref().is_some_and(|current| current.is_alive())
    }

    /// Closes the connection, if there is one.
    pub(super) fn hang_up(&self) {
        let current = self.lock().current.take();
        drop(current);
    }

    /// The connection; makes one when there is none. Those who come while one is being made share the outcome.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>> {
        let dial = match self.current_or_dial() {
            Ok(current) => return Ok(current),
            Err(dial) => dial,
        };
        dial.await.map_err(|error| error.again())
    }

    fn current_or_dial(self: &Arc<Self>) -> Result<Arc<Connection>, Shared<Dial>> {
        let mut state = self.lock();
        if let Some(current) = state.current.as_ref().filter(|current| current.is_alive()) {
            return Ok(Arc::clone(current));
        }
        let under_way = state.dialing.as_ref().and_then(WeakShared::upgrade).filter(|dial| dial.peek().is_none());
        if let Some(dial) = under_way {
            return Err(dial);
        }
        let link = Arc::clone(self);
        let dial = async move { link.dial().await.map_err(Arc::new) }.boxed().shared();
        state.dialing = dial.downgrade();
        Err(dial)
    }

    async fn dial(self: &Arc<Self>) -> Result<Arc<Connection>> {
        let (number, not_before) = {
            let mut state = self.lock();
            state.tried += 1;
            (state.tried, state.not_before)
        };
        if let Some(not_before) = not_before {
            self.clock.sleep_until(not_before).await;
        }
        let deadline = self.clock.now().after(self.patience);
        let connected = tokio::select! {
            biased;
            connected = self.connect(number) => connected,
            () = self.clock.sleep_until(deadline) => Err(self.too_slow()),
        };
        let mut state = self.lock();
        match connected {
            Ok(connection) => {
                (state.failures, state.not_before) = (0, None);
                let before = state.current.replace(Arc::clone(&connection));
                drop(state);
                drop(before);
                Ok(connection)
            }
            Err(error) => {
                state.failures += 1;
                state.not_before = Some(self.clock.now().after(pause(state.failures)));
                Err(error)
            }
        }
    }

    fn too_slow(&self) -> Error {
        let message = match self.config.tls {
            Some(_) => "the server gave no answer in time; does it speak TLS on that port?",
            None => "the server gave no answer in time",
        };
        Error::new(ErrorKind::Unreachable, "connect", message)
            .with("server", format!("{:?}", self.config))
            .with("within", format!("{:?}", self.patience))
            .retryable()
    }

    async fn connect(self: &Arc<Self>, number: u64) -> Result<Arc<Connection>> {
        let ears = self.member.as_ref().map(|member| Ears {
            hub: Arc::clone(&member.hub),
            channel: self.layout.session_key(member.session),
            number,
        });
        let tasks = match &self.member {
            Some(member) => member.opening.tasks.clone(),
            None => Tasks::here()?,
        };
        let opened = Connection::open(&self.config, ears.as_ref(), &self.clock, self.silence, &tasks).await;
        let (connection, chores) = opened.map_err(|error| self.at_the_server(error))?;
        let connection = Arc::new(connection);
        let server = connection.server().await.map_err(|error| self.at_the_server(error))?;
        server.check(&self.config)?;
        connection.load_scripts().await.map_err(|error| self.at_the_server(error))?;
        self.probe(&connection).await.map_err(|error| self.at_the_server(error))?;
        if let Some(member) = &self.member {
            self.has_run_since(server.run_id, member);
            self.greet(&connection, member).await.map_err(|error| self.at_the_server(error))?;
            member.hub.connected(number);
            let weak = Arc::downgrade(&connection);
            let (link, hub) = (Arc::clone(&self.layout), Arc::clone(&member.hub));
            let clear_up = clear_up(weak.clone(), Arc::clone(&link), Arc::clone(&member.janitor));
            let repair = repair(weak, link, member.session, hub, Arc::clone(&self.clock));
            // The task that would do it has ended if nobody takes it.
            let _ = chores.send(Box::pin(async move {
                futures_util::join!(repair, clear_up);
            }));
        }
        Ok(connection)
    }

    /// Refuses a layout that is not ours, and a user who may not do all that scripts do, before anything is written.
    async fn probe(&self, connection: &Connection) -> Result<()> {
        let session = self.member.as_ref().map_or(0, |member| member.session);
        let probed = connection.run("connect", &scripts::probe(&self.layout, session)).await?;
        if probed.version != VERSION {
            return Err(unknown_layout(probed.version));
        }
        forbidden(&probed.refused).map_or(Ok(()), Err)
    }

    fn at_the_server(&self, error: Error) -> Error {
        let is_named = error.context().any(|(key, _)| key == "server");
        if is_named { error } else { error.with("server", format!("{:?}", self.config)) }
    }

    /// A server that was started anew may have forgotten what it confirmed, or remember what is over: nothing of the session
    /// can be relied on any more. Nor where nobody may ask whether it was.
    fn has_run_since(&self, run_id: Option<String>, member: &Member) {
        let is_known = run_id.is_some();
        let before = std::mem::replace(&mut self.lock().run_id, run_id.clone());
        if self.epoch() != 0 && !(is_known && before == run_id) {
            let message = "the server was started anew, or may have been: the session and its locks are lost";
            tracing::warn!(server = ?self.config, is_known, "{message}");
            member.hub.restarted();
        }
    }

    /// Opens the session, or goes on with it on a new connection: whatever is still on its way on an older one is refused.
    async fn greet(&self, connection: &Connection, member: &Member) -> Result<()> {
        if member.hub.over() != Over::No {
            return Ok(());
        }
        let sent = self.clock.now();
        if self.epoch() == 0 {
            let open = scripts::open(&self.layout, member.session, member.opening.ttl, &member.opening.owner);
            match connection.run("open session", &open).await? {
                Open::Opened(epoch) => self.raise(epoch),
                Open::Layout(found) => return Err(unknown_layout(found)),
            }
        } else {
            let resume = scripts::resume(&self.layout, member.session, member.opening.ttl);
            match connection.run("resume session", &resume).await? {
                Some(epoch) => self.raise(epoch),
                None => {
                    member.hub.end(Over::There);
                    return Ok(());
                }
            }
        }
        self.confirmed.fetch_max(sent.as_nanos(), Ordering::AcqRel);
        Ok(())
    }
}

fn unknown_layout(found: String) -> Error {
    let message = "the keys under this prefix have a layout that this release does not know: use another prefix, or the release that made them";
    Error::new(ErrorKind::Layout, "connect", message).with("layout", found).with("known", VERSION)
}

/// Twice as long with each failure, and up to half of it less so that clients that lost one server do not come back as one.
fn pause(failures: u32) -> Duration {
    let pause = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_PAUSE);
    let share = getrandom::u64().unwrap_or_default() % 1000;
    pause.mul_f64(1.0 - share as f64 / 2000.0)
}
