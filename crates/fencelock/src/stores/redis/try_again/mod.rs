//! Layouts without a queue: the client that finds the key absent acquires the lock. Contenders of one session form a line, and the first of
//! the line tries until it holds the lock. A [`Dialect`] has the rest of a layout. See `NOTES.md` in this folder.

pub(crate) mod dialect;
pub(super) mod inspect;
mod session;

use std::fmt;
use std::sync::Arc;

use futures_util::future::OptionFuture;

use self::dialect::Found;
pub(super) use self::dialect::{Dialect, Held, Marks, Ours, Quick, Scripts, Sharing, milliseconds};
pub(super) use self::session::Reader;
use self::session::{Asking, SessionUser};
use super::wire::{Config, Connection, Link, LinkUser, Naming, RestartWatch, link, without_info};
use crate::error::Result;
use crate::kit::server::{Events, Server, ServerStore};
use crate::kit::try_again::TryAgainSession;
pub(super) use crate::kit::try_again::WAKE_BOUND;
use crate::name::Name;
use crate::store::{Break, Capability, Opening, Page, Queue, Store};

/// The store on this server with this layout.
pub(super) fn new(config: Config, mut dialect: Dialect) -> Arc<dyn Store> {
    dialect.is_clustered = config.naming == Naming::Cluster;
    Arc::new(ServerStore::new(OneServer { config: Arc::new(config), dialect: Arc::new(dialect) }))
}

struct OneServer {
    config: Arc<Config>,
    dialect: Arc<Dialect>,
}

impl fmt::Debug for OneServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.config, f)
    }
}

impl Server for OneServer {
    type Session = TryAgainSession<Asking>;
    /// The number of the node, and the cursor of a listing of its keys.
    type Listed = (usize, String);

    fn capability(&self) -> &Capability {
        self.dialect.capability
    }

    fn session(&self, opening: Opening, events: Events) -> Result<(Arc<TryAgainSession<Asking>>, Arc<Link>)> {
        let (dialect, trying) = (Arc::clone(&self.dialect), self.dialect.trying());
        let asking = Asking { dialect, opening: opening.clone(), restarts: RestartWatch::default() };
        let session = TryAgainSession::new(asking, opening, trying, events);
        let user = Arc::new(SessionUser(Arc::clone(&session))) as Arc<dyn LinkUser>;
        let link = link(&self.config, user, Some(&session.opening));
        Ok((session, link))
    }

    fn learned(&self, session: &TryAgainSession<Asking>) -> Option<Arc<Capability>> {
        (!session.backend.restarts.sees_restarts()).then(|| Arc::new(without_info(self.dialect.capability)))
    }

    fn reader(&self) -> Arc<Link> {
        link(&self.config, Arc::new(Reader(Arc::clone(&self.dialect))), None)
    }

    /// The holders of the lock: the server has no waiters.
    async fn queue(&self, connection: &Connection, name: &Name, page: Page) -> Result<Queue> {
        let dialect = &self.dialect;
        dialect.check_name("queue", name)?;
        let holders = match connection.run("queue", &dialect.show(name)).await? {
            Found::Held(holders) => holders,
            Found::Other(kind) => return Err(dialect.trying().other_kind("queue", &kind).with("name", name)),
        };
        let holders = holders.iter().map(|held| inspect::contender(dialect.marks, held)).collect::<Result<_>>()?;
        Ok(Queue::page_of(name.clone(), holders, page))
    }

    async fn names(
        &self,
        connection: &Connection,
        (number, from): (usize, String),
        prefix: &str,
    ) -> Result<(Vec<Name>, Option<(usize, String)>)> {
        let node = OptionFuture::from(connection.routes.upgrade().as_ref().map(|routes| routes.nth(number)))
            .await
            .transpose()?;
        let (node, has_more) = node.as_ref().map_or((connection, false), |(node, has_more)| (&**node, *has_more));
        let (names, next) = inspect::names(node, &self.dialect, &from, prefix).await?;
        let next_node = has_more.then(|| (number + 1, String::new()));
        Ok((names, next.map(|cursor| (number, cursor)).or(next_node)))
    }

    async fn break_grant(&self, connection: &Connection, order: &Break) -> Result<bool> {
        inspect::break_grant(connection, &self.dialect, order).await
    }

    async fn breaks(&self, connection: &Connection, name: &Name) -> Result<Vec<Break>> {
        inspect::breaks(connection, &self.dialect, name).await
    }
}
