//! The way to a Redis server: how a connection is made, and that it is made for one user.

use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;

use super::config::Config;
use super::connection::Connection;
use super::user::LinkUser;
use crate::error::{Error, Result};
use crate::kit::bounds::Bounds;
use crate::kit::reconnect::{Dial, Reconnect};
use crate::store::{Opening, Tasks};
use crate::time::Clock;

/// The way to one server, for one user.
pub(crate) type Link = Reconnect<Dialler>;

/// How a connection to one server is made for one user.
pub(crate) struct Dialler {
    config: Arc<Config>,
    clock: Arc<dyn Clock>,
    /// How long a connection may be silent. A session that lives longer may have it be silent longer.
    silence: Duration,
    user: Arc<dyn LinkUser>,
    /// Where the connections' tasks run; `None` for wherever one is made.
    tasks: Option<Tasks>,
}

/// A way for `user`, whose session is opened with `opening`, if it has one.
pub(crate) fn link(config: &Arc<Config>, user: Arc<dyn LinkUser>, opening: Option<&Opening>) -> Arc<Link> {
    let Bounds { clock, patience, silence, tasks } = Bounds::of(opening);
    let dialler = Dialler { config: Arc::clone(config), clock: Arc::clone(&clock), silence, user, tasks };
    Reconnect::new(dialler, clock, patience)
}

impl Dial for Dialler {
    type Connection = Connection;

    fn dial(&self, number: u64) -> BoxFuture<'_, Result<Arc<Connection>>> {
        Box::pin(async move {
            let tasks = self.tasks.clone().map_or_else(Tasks::here, Ok)?;
            self.greeted(number, &tasks).await.map_err(|error| {
                let is_named = error.context().any(|(key, _)| key == "server");
                if is_named { error } else { error.with("server", format!("{:?}", self.config)) }
            })
        })
    }

    fn too_slow(&self, within: Duration) -> Error {
        self.config.addresses.too_slow(self.config.tls.is_some(), format_args!("{:?}", self.config), within)
    }

    fn is_alive(connection: &Connection) -> bool {
        connection.is_alive()
    }
}

impl Dialler {
    async fn greeted(&self, number: u64, tasks: &Tasks) -> Result<Arc<Connection>> {
        let opened = Connection::open(&self.config, &self.user, number, &self.clock, self.silence, tasks).await;
        let (connection, sender) = opened?;
        let connection = Arc::new(connection);
        let server = connection.server().await?;
        if let Err(unfit) = server.check(&self.config, self.user.only_looks()) {
            // Another server of the same name may be fit.
            self.config.forget_address();
            return Err(unfit);
        }
        connection.load_scripts().await?;
        if let Some(chores) = self.user.greet(&connection, &server).await? {
            // The task that would do them has ended if nobody takes them.
            let _ = sender.send(chores);
        }
        Ok(connection)
    }
}
