//! The way to the server: a connection that is made when it is needed, one at a time, with pauses after failures.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;

use super::config::Config;
use super::connection::Connection;
use super::user::LinkUser;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::share_call::SharedCall;
use crate::store::{Opening, Tasks};
use crate::time::{Clock, Moment, SystemClock};

/// The pause after the first failure; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A connection that takes longer to be made, or is silent for longer, is given up, however long a session may live.
const MOST_PATIENCE: Duration = Duration::from_secs(10);
/// The ttl that the patience with a connection of no session goes by.
const READER_TTL: Duration = Duration::from_secs(10);

/// The way to one server, for one user.
pub(crate) struct Link {
    config: Arc<Config>,
    pub(crate) clock: Arc<dyn Clock>,
    /// How long a connection may take to be made.
    patience: Duration,
    /// How long a connection may be silent. A session that lives longer may have it be silent longer.
    silence: Duration,
    user: Arc<dyn LinkUser>,
    /// Where the connections' tasks run; `None` for wherever one is made.
    tasks: Option<Tasks>,
    dialing: SharedCall<Dialed>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    current: Option<Arc<Connection>>,
    failures: u32,
    not_before: Option<Moment>,
    /// How many connections were tried.
    tried: u64,
}

type Dialed = std::result::Result<Arc<Connection>, Arc<Error>>;

impl Link {
    /// A way for `user`, whose session is opened with `opening`, if it has one.
    pub(crate) fn new(config: &Arc<Config>, user: Arc<dyn LinkUser>, opening: Option<&Opening>) -> Arc<Self> {
        let ttl = opening.map_or(READER_TTL, |opening| opening.ttl);
        Arc::new(Self {
            config: Arc::clone(config),
            clock: opening
                .map_or_else(|| Arc::new(SystemClock) as Arc<dyn Clock>, |opening| Arc::clone(&opening.clock)),
            patience: opening.map_or(READER_TTL * 3 / 10, Opening::patience).min(MOST_PATIENCE),
            silence: (ttl * 3 / 10).min(MOST_PATIENCE),
            user,
            tasks: opening.map(|opening| opening.tasks.clone()),
            dialing: SharedCall::default(),
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Option<Arc<Connection>> {
        self.lock().current.as_ref().filter(|current| current.is_alive()).map(Arc::clone)
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.current().is_some()
    }

    /// Closes the connection, if there is one.
    pub(crate) fn hang_up(&self) {
        let current = self.lock().current.take();
        drop(current);
    }

    /// The connection; makes one when there is none. Those who come while one is being made share the outcome.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let dial = self.dialing.join(|| {
            let link = Arc::clone(self);
            async move { link.dial().await.map_err(Arc::new) }.boxed()
        });
        dial.await.map_err(|error| error.again())
    }

    async fn dial(&self) -> Result<Arc<Connection>> {
        // One that was under way when this one was asked for may have been made meanwhile.
        if let Some(current) = self.current() {
            return Ok(current);
        }
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

    async fn connect(&self, number: u64) -> Result<Arc<Connection>> {
        let tasks = self.tasks.clone().map_or_else(Tasks::here, Ok)?;
        self.greeted(number, &tasks).await.map_err(|error| {
            let is_named = error.context().any(|(key, _)| key == "server");
            if is_named { error } else { error.with("server", format!("{:?}", self.config)) }
        })
    }

    async fn greeted(&self, number: u64, tasks: &Tasks) -> Result<Arc<Connection>> {
        let opened = Connection::open(&self.config, &self.user, number, &self.clock, self.silence, tasks).await;
        let (connection, sender) = opened?;
        let connection = Arc::new(connection);
        let server = connection.server().await?;
        server.check(&self.config)?;
        connection.load_scripts().await?;
        if let Some(chores) = self.user.greet(&connection, &server).await? {
            // The task that would do them has ended if nobody takes them.
            let _ = sender.send(chores);
        }
        Ok(connection)
    }
}

/// Twice as long with each failure, and up to half of it less so that clients that lost one server do not come back as one.
fn pause(failures: u32) -> Duration {
    let pause = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_PAUSE);
    let share = getrandom::u64().unwrap_or_default() % 1000;
    pause.mul_f64(1.0 - share as f64 / 2000.0)
}
