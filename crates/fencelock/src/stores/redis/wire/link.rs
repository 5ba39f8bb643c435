//! The link to a Redis server: makes connections for one user.

use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use futures_util::future::{OptionFuture, join, join3};
use tokio::sync::oneshot;

use super::config::{Address, Config};
use super::connection::Connection;
use super::user::{Chores, LinkUser};
use crate::error::{Error, Result, rounded};
use crate::kit::bounds::Bounds;
use crate::kit::reconnect::{Dial, Reconnect};
use crate::store::{Opening, Tasks};
use crate::stores::redis::cluster::{Possession, Routes};
use crate::stores::redis::sentinel::{Replicas, hand_on};
use crate::time::Clock;

/// The link of one user to a server.
pub(crate) type Link = Reconnect<Dialler>;

/// Makes connections to a server for one user.
pub(crate) struct Dialler {
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Arc<dyn Clock>,
    /// How long a connection may be silent. The limit is longer for a session with a longer ttl.
    silence: Duration,
    user: Arc<dyn LinkUser>,
    /// The runtime of the connections' tasks; `None` for the runtime of the caller that connects.
    tasks: Option<Tasks>,
    /// How long the client may take to connect.
    pub(crate) patience: Duration,
    /// The links to the nodes of a Cluster, if this is the link to any of them.
    routes: Option<Arc<Routes>>,
    /// The error of the last server that was found.
    pub(crate) unfit: Mutex<Option<Error>>,
}

/// A connection whose chores have not started yet.
pub(crate) type Ready = (Arc<Connection>, oneshot::Sender<Chores>, Chores);

/// A link for `user`, whose session is opened with `opening`, if it has one.
pub(crate) fn link(config: &Arc<Config>, user: Arc<dyn LinkUser>, opening: Option<&Opening>) -> Arc<Link> {
    let Bounds { clock, patience, silence, tasks } = Bounds::of(opening);
    let ((config, routes), unfit) = (Routes::of_one_link(config, &user, opening), Mutex::default());
    let dialler = Dialler { config, clock: Arc::clone(&clock), silence, user, tasks, patience, routes, unfit };
    Reconnect::new(dialler, clock, patience)
}

impl Dial for Dialler {
    type Connection = Connection;

    fn dial(&self, number: u64) -> BoxFuture<'_, Result<Arc<Connection>>> {
        Box::pin(async move {
            let tasks = self.tasks.clone().map_or_else(Tasks::here, Ok)?;
            match &self.config.address {
                Address::Tcp(_) | Address::Unix(_) => {
                    Ok(begin(self.greeted(&self.config, number, &tasks).await?, pending().boxed()))
                }
                _ => self.find(number, &tasks).await,
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
    pub(crate) async fn greeted(&self, config: &Config, number: u64, tasks: &Tasks) -> Result<Ready> {
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
        let open = || Replicas::open(config, &server, self.user.channel(), (&self.clock, self.patience), tasks);
        let replicas = OptionFuture::from((config.min_replicas > 0 && !self.user.only_looks()).then(open));
        // Runs all at once: the locks of a moving slot wait for this connection. A failure elsewhere drops no proof of the slot's new place.
        let arrived = Possession::arrived(&connection, self.user.channel(), server.clone());
        // A user without the right to load scripts is refused now, and not while it holds a lock and the server has forgotten them.
        let mut load = redis::cmd("SCRIPT");
        let load = connection.command("load scripts", load.arg("LOAD").arg("return 1"));
        let (seen, replicas, loaded) = join3(arrived, replicas, load).await;
        let (mut seen, _) = (seen?, loaded?);
        if self.routes.is_some() {
            // Each renewal looks at each lock, so no other node of the Cluster counts as a restart.
            (seen.run_id, seen.promoted_from) = (Some("any node".to_owned()), None);
        }
        connection.replicas = replicas.transpose()?;
        let connection = Arc::new(connection);
        // The link to any node has greeted for this one.
        let is_one_of_several = self.routes.is_none() && connection.routes.strong_count() > 0;
        let chores = if is_one_of_several { None } else { self.user.greet(&connection, &seen).await? };
        let mut chores = chores.unwrap_or_else(|| pending().boxed());
        if let Some(messages) = messages {
            chores = join(chores, hand_on(Arc::downgrade(&connection), messages)).map(drop).boxed();
        }
        Ok((connection, sender, chores))
    }
}

/// Runs the chores until the connection ends. The connection ends once the locks have moved to another server.
pub(crate) fn begin((connection, sender, chores): Ready, moved: BoxFuture<'static, ()>) -> Arc<Connection> {
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
