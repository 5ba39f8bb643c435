//! The way to a member: which one is tried, for how long, and what is said first.

use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;

use super::connection::Connection;
use super::ops::one;
use super::session::EtcdSession;
use super::url::Config;
use crate::error::{Error, Result};
use crate::kit::address::HostPort;
use crate::kit::bounds::Bounds;
use crate::kit::dial::{Bytes, encrypted};
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
            let (config, Bounds { clock, patience, .. }) = (&*self.config, &self.bounds);
            let shown = |server| config.shown(server);
            let silent = |server, share| config.addresses.too_slow(config.tls.is_some(), shown(server), share);
            let greet =
                async |server| self.greeted(server, number).await.map_err(|error| error.with("server", shown(server)));
            config.addresses.dial_one_of(&config.servers, (&**clock, *patience), silent, greet).await
        })
    }

    fn too_slow(&self, within: Duration) -> Error {
        self.config.addresses.too_slow(self.config.tls.is_some(), format_args!("{:?}", self.config), within)
    }

    fn is_alive(connection: &Connection) -> bool {
        !connection.close.is_closed()
    }

    fn hang_up(connection: &Connection) {
        connection.close();
    }
}

impl Dialler {
    async fn greeted(&self, server: &HostPort, number: u64) -> Result<Arc<Connection>> {
        let config = &*self.config;
        let encrypted = |stream| encrypted(config.tls.as_ref(), &server.host, stream);
        let stream = config.addresses.dial(server, &config.shown(server), &*self.bounds.clock, encrypted).await?;
        // Another address of the same name may be fit.
        self.greet(stream, server, number).await.inspect_err(|_| config.addresses.forget(server))
    }

    async fn greet(&self, stream: Box<dyn Bytes>, server: &HostPort, number: u64) -> Result<Arc<Connection>> {
        let scheme = if self.config.tls.is_some() { "https" } else { "http" };
        let origin = format!("{scheme}://{server}/");
        let (tasks, session) = (self.bounds.tasks.clone().map_or_else(Tasks::here, Ok)?, self.session.clone());
        let ended = move || session.iter().for_each(|session| session.places.disconnected(number));
        let terms = (number, self.bounds.clone(), &tasks);
        let connection = Connection::open(stream, origin, terms, ended).await?;
        if let Some((user, password)) = &self.config.login {
            connection.log_in(user.clone(), password.read().await?).await?;
        }
        if let Some(session) = &self.session {
            Arc::clone(session).greet(&connection).await?;
        } else {
            // A member without a leader answers no read, so another one is tried.
            connection.ask("connect", one(self.config.keys.session(0))).await?;
        }
        Ok(connection)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::store::StoreUrl;

    #[tokio::test]
    async fn the_address_of_a_member_that_is_away_is_kept_and_that_of_a_wrong_server_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("etcd://{}/locks", listener.local_addr().unwrap());
        let config = Config::from_url(StoreUrl::parse(&url).unwrap()).unwrap();
        let dialler = Dialler { config: Arc::clone(&config), bounds: Bounds::of(None), session: None };
        let server = &config.servers[0];
        let connect = || config.addresses.dial(server, &"member", &*dialler.bounds.clock, async |_| Ok(()));
        connect().await.unwrap();
        drop(listener.accept().await.unwrap());
        let wrong = async { drop(listener.accept().await.unwrap()) };
        let (greeted, ()) = tokio::join!(dialler.greeted(server, 1), wrong);
        assert!(greeted.is_err() && !config.addresses.has_worked(server));
        connect().await.unwrap();
        drop(listener);
        let greeted = dialler.greeted(server, 2).await;
        assert!(greeted.is_err() && config.addresses.has_worked(server));
    }
}
