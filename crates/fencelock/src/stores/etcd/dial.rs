//! The way to a member: which one is tried, for how long, and what is said first.

use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use http::Uri;

use super::connection::Connection;
use super::ops::one;
use super::session::EtcdSession;
use super::url::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::address::HostPort;
use crate::kit::bounds::Bounds;
use crate::kit::dial::encrypted;
use crate::kit::reconnect::{Dial, Reconnect};
use crate::store::Tasks;

pub(super) type Link = Reconnect<Dialler>;

pub(super) struct Dialler {
    config: Arc<Config>,
    bounds: Bounds,
    /// `None` for a client that only looks.
    session: Option<Arc<EtcdSession>>,
}

pub(super) fn link(config: &Arc<Config>, session: Option<Arc<EtcdSession>>) -> Arc<Link> {
    let bounds = Bounds::of(session.as_deref().map(|session| &session.opening));
    let (clock, patience) = (Arc::clone(&bounds.clock), bounds.patience);
    Reconnect::new(Dialler { config: Arc::clone(config), bounds, session }, clock, patience)
}

impl Dial for Dialler {
    type Connection = Connection;

    fn dial(&self, number: u64) -> BoxFuture<'_, Result<Arc<Connection>>> {
        Box::pin(async move {
            let silent = |server: &HostPort, share| self.silent(&self.shown(server), share);
            let greet = |server| self.greeted(server, number);
            let limit = (&*self.bounds.clock, self.bounds.patience);
            self.config.last.dial(&self.config.servers, limit, silent, greet).await
        })
    }

    fn too_slow(&self, within: Duration) -> Error {
        self.silent(&format!("{:?}", self.config), within)
    }

    fn is_alive(connection: &Connection) -> bool {
        connection.is_alive()
    }

    fn hang_up(connection: &Connection) {
        connection.close();
    }
}

impl Dialler {
    fn shown(&self, server: &HostPort) -> String {
        format!("{}://{server}", self.config.scheme())
    }

    fn silent(&self, servers: &str, within: Duration) -> Error {
        self.config.addresses.too_slow(self.config.tls.is_some(), servers, within)
    }

    async fn greeted(&self, server: &HostPort, number: u64) -> Result<Arc<Connection>> {
        let shown = self.shown(server);
        let greeted = self.greet(server, &shown, number).await;
        if greeted.is_err() {
            // Another address of the same name may be fit.
            self.config.addresses.forget(server);
        }
        greeted.map_err(|error| error.with("server", shown))
    }

    async fn greet(&self, server: &HostPort, shown: &str, number: u64) -> Result<Arc<Connection>> {
        let config = &*self.config;
        let encrypted = |stream| encrypted(config.tls.as_ref(), &server.host, stream);
        let stream = config.addresses.dial(server, &shown, &*self.bounds.clock, encrypted).await?;
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let origin = Uri::builder().scheme(scheme).authority(server.to_string()).path_and_query("/").build();
        let origin = origin.map_err(|_| Error::new(ErrorKind::Config, "connect", "the host cannot stand in a URI"))?;
        let (tasks, session) = (self.bounds.tasks.clone().map_or_else(Tasks::here, Ok)?, self.session.clone());
        let ended = move || session.iter().for_each(|session| session.places.disconnected(number));
        let terms = (number, self.bounds.clone(), &tasks);
        let (mut connection, watches) = Connection::open(stream, origin, terms, ended).await?;
        if let Some((user, password)) = &config.login {
            connection.log_in(user.clone(), password.read().await?).await?;
        }
        let connection = Arc::new(connection);
        if let Some(session) = &self.session {
            let chores = Arc::clone(session).greet(&connection, watches).await?;
            connection.keep_doing(chores, &tasks);
        } else {
            // A member without a leader answers no read, so another one is tried.
            connection.ask("connect", one(format!("{}/", config.prefix).into_bytes())).await?;
        }
        Ok(connection)
    }
}
