//! The link to a Redis server: makes connections for one user.

use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use futures_util::future::join;
use tokio::sync::oneshot;

use super::config::{Address, Config};
use super::connection::Connection;
use super::user::{Chores, LinkUser};
use crate::error::{Error, Result, rounded};
use crate::kit::bounds::Bounds;
use crate::kit::pause::spread;
use crate::kit::reconnect::{Dial, Reconnect};
use crate::store::{Opening, Tasks};
use crate::stores::redis::sentinel::{Replicas, Sentinels, hand_on};
use crate::time::Clock;

/// The pause before the next search for a server, unless there is news.
const AGAIN: Duration = Duration::from_secs(1);

/// The link of one user to a server.
pub(crate) type Link = Reconnect<Dialler>;

/// Makes connections to a server for one user.
pub(crate) struct Dialler {
    config: Arc<Config>,
    clock: Arc<dyn Clock>,
    /// How long a connection may be silent. The limit is longer for a session with a longer ttl.
    silence: Duration,
    user: Arc<dyn LinkUser>,
    /// The runtime of the connections' tasks; `None` for the runtime of the caller that connects.
    tasks: Option<Tasks>,
    /// How long the client may take to connect.
    patience: Duration,
    /// The error of the last server that was found.
    unfit: Mutex<Option<Error>>,
}

/// A connection whose chores have not started yet.
type Ready = (Arc<Connection>, oneshot::Sender<Chores>, Chores);

/// A link for `user`, whose session is opened with `opening`, if it has one.
pub(crate) fn link(config: &Arc<Config>, user: Arc<dyn LinkUser>, opening: Option<&Opening>) -> Arc<Link> {
    let Bounds { clock, patience, silence, tasks } = Bounds::of(opening);
    let (config, unfit) = (Arc::clone(config), Mutex::default());
    let dialler = Dialler { config, clock: Arc::clone(&clock), silence, user, tasks, patience, unfit };
    Reconnect::new(dialler, clock, patience)
}

impl Dial for Dialler {
    type Connection = Connection;

    fn dial(&self, number: u64) -> BoxFuture<'_, Result<Arc<Connection>>> {
        Box::pin(async move {
            let tasks = self.tasks.clone().map_or_else(Tasks::here, Ok)?;
            match &self.config.address {
                Address::Primary(sentinels) => self.find(sentinels, number, &tasks).await,
                _ => Ok(begin(self.greeted(&self.config, number, &tasks).await?, pending().boxed())),
            }
        })
    }

    fn too_slow(&self, within: Duration) -> Error {
        let unfit = self.unfit.lock().unwrap_or_else(PoisonError::into_inner).take();
        let config = &self.config;
        let silent = || config.addresses.too_slow(config.tls.is_some(), format_args!("{config:?}"), within);
        unfit.map_or_else(silent, |error| error.with("within", rounded(within)))
    }

    fn is_alive(connection: &Connection) -> bool {
        connection.is_alive()
    }
}

impl Dialler {
    /// Searches the server that takes locks, and connects to it. Repeats the search within the time that a connection may take.
    async fn find(&self, sentinels: &Sentinels, number: u64, tasks: &Tasks) -> Result<Arc<Connection>> {
        loop {
            let found = sentinels.find(&*self.clock, self.patience / 2).await;
            let (unfit, moved) = match found {
                Ok(found) => {
                    let mut moved = sentinels.clone().moved(found.clone(), Arc::clone(&self.clock)).boxed();
                    let config = self.config.at(found.server.clone());
                    let greeted = tokio::select! {
                        biased;
                        greeted = self.greeted(&config, number, tasks) => greeted,
                        () = &mut moved => continue,
                    };
                    match greeted {
                        Ok(ready) => return Ok(begin(ready, moved)),
                        Err(error) if found.named == found.server => (error, moved),
                        Err(error) => (error.with("named", found.named), moved),
                    }
                }
                Err(error) => (error, pending().boxed()),
            };
            if !unfit.is_retryable() {
                return Err(unfit);
            }
            tracing::debug!(error = %unfit, "no server is found that takes locks");
            *self.unfit.lock().unwrap_or_else(PoisonError::into_inner) = Some(unfit);
            let again = self.clock.now().after(spread(AGAIN));
            tokio::select! {
                () = moved => {}
                () = self.clock.sleep_until(again) => {}
            }
        }
    }

    async fn greeted(&self, config: &Config, number: u64, tasks: &Tasks) -> Result<Ready> {
        self.greeted_there(config, number, tasks).await.map_err(|error| {
            let is_named = error.context().any(|(key, _)| key == "server");
            if is_named { error } else { error.with("server", format!("{config:?}")) }
        })
    }

    async fn greeted_there(&self, config: &Config, number: u64, tasks: &Tasks) -> Result<Ready> {
        let opened = Connection::open(config, &self.user, number, &self.clock, self.silence, tasks).await;
        let (mut connection, sender, messages) = opened?;
        let server = connection.server().await?;
        if let Err(unfit) = server.check(config, self.user.only_looks()) {
            // Another server with the same name may be fit.
            config.forget_address();
            return Err(unfit);
        }
        if config.min_replicas > 0 && !self.user.only_looks() {
            let (times, channel) = ((&self.clock, self.patience), self.user.channel());
            connection.replicas = Some(Replicas::open(config, &server, channel, times, tasks).await?);
        }
        let connection = Arc::new(connection);
        connection.load_scripts().await?;
        let chores = self.user.greet(&connection, &server).await?;
        let mut chores = chores.unwrap_or_else(|| pending().boxed());
        if let Some(messages) = messages {
            chores = join(chores, hand_on(Arc::downgrade(&connection), messages)).map(drop).boxed();
        }
        Ok((connection, sender, chores))
    }
}

/// Runs the chores until the connection ends. The connection ends once the locks have moved to another server.
fn begin((connection, sender, chores): Ready, moved: BoxFuture<'static, ()>) -> Arc<Connection> {
    let chores = async {
        tokio::select! {
            () = moved => tracing::debug!("another server takes locks now"),
            () = chores.then(|()| pending()) => {}
        }
    };
    // If the receiver is gone, the connection's task has ended already.
    let _ = sender.send(chores.boxed());
    connection
}
