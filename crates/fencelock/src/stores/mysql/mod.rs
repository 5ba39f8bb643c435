//! Locks in MariaDB and MySQL: an ordered queue for each name, kept by procedures in the database that the URL names. One call, one round
//! trip and one transaction to acquire, and the same to release.
//!
//! A lock lives as long as the lease of its session does, one row that one call renews for any number of locks, and only the server's clock
//! judges that. `NOTES.md` beside this file has tables, procedures, and the order of locks.

mod bell;
mod connection;
mod fault;
mod get_lock;
mod layout;
mod link;
mod notes;
mod schema;
mod session;
mod setup;
mod show;
mod tables;
mod url;

use std::fmt;
use std::sync::Arc;

use futures_core::future::BoxFuture;

use self::connection::Connection;
use self::layout::Layout;
use self::link::{Link, apart, link};
pub use self::schema::{Migration, Schema};
use self::session::MysqlSession;
use self::show::Listed;
use self::url::Config;
#[allow(unused_imports, reason = "a build without TLS does not need it")]
pub(in crate::stores) use self::url::bad;
use crate::error::Result;
use crate::kit::database::lease::FAIR;
use crate::kit::database::{Nobody, User, session_locks};
use crate::kit::lock_table;
use crate::kit::served::Places;
use crate::kit::server::{Events, Server, ServerStore};
use crate::name::Name;
use crate::store::{
    Break, Capability, NoteOrder, NoteRead, Opening, Outline, Page, Presumption, Queue, RequestId, Residue, Store,
    StoreInfo, StoreUrl,
};

/// What the registry knows of this store.
pub(crate) const INFO: StoreInfo = StoreInfo {
    scheme: "mysql",
    feature: "mysql",
    example: "mysql://user:password@host:3306/database",
    options: url::OPTIONS,
    capability: Some(|| CAPABILITY.clone()),
    layouts: &[
        ("layout=distributed_lock", || tables::TUTORIAL.clone()),
        ("layout=shedlock", || tables::SHEDLOCK.clone()),
        ("layout=get_lock&key=.net", || get_lock::CAPABILITY.clone()),
    ],
    open: Some(open),
};

/// The same by its other name.
pub(crate) const MARIADB_INFO: StoreInfo =
    StoreInfo { scheme: "mariadb", example: "mariadb://user:password@host:3306/database", ..INFO };

static CAPABILITY: Capability = Capability {
    store: "mysql",
    layout: "fencelock mysql fair layout 4",
    presumes: &[Presumption::CommitsKept, Presumption::ClockSteady],
    residue: &[Residue::Buckets(4096), Residue::Notes, Residue::BreaksForDays(30), Residue::LeftByCrashed],
    ..FAIR
};

fn open(url: StoreUrl) -> BoxFuture<'static, Result<Arc<dyn Store>>> {
    Box::pin(async move {
        let (layout, config) = Layout::and_config(url)?;
        Ok(match layout {
            Layout::Fair => Arc::new(ServerStore::new(Mysql(Arc::new(config)))) as Arc<dyn Store>,
            Layout::Table(table) => lock_table::store(config, *table),
            Layout::Named(keys) => session_locks::store(config, keys),
        })
    })
}

/// Locks on a MariaDB or MySQL server.
struct Mysql(Arc<Config>);

impl fmt::Debug for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Server for Mysql {
    type Session = MysqlSession;
    type Listed = Listed;

    fn capability(&self) -> &Capability {
        &CAPABILITY
    }

    fn session(&self, opening: Opening, events: Events) -> Result<(Arc<MysqlSession>, Arc<Link>)> {
        let session = Arc::new(MysqlSession::new(Arc::clone(&self.0), opening, Places::new(events))?);
        let user = Arc::clone(&session) as Arc<dyn User<Connection>>;
        let link = link(&self.0, user, Some(&session.lease.opening));
        Ok((session, link))
    }

    fn reader(&self) -> Arc<Link> {
        link(&self.0, Arc::new(Nobody), None)
    }

    /// The tables are made by whoever takes the first lock.
    fn is_unused(&self, connection: &Connection) -> bool {
        !connection.has_schema()
    }

    async fn queue(&self, connection: &Connection, name: &Name, page: Page) -> Result<Queue> {
        show::queue(connection, name, page).await
    }

    async fn contention(&self, connection: &Connection, name: &Name, mine: &[RequestId]) -> Result<Outline> {
        show::contention(connection, name, mine).await
    }

    async fn names(&self, connection: &Connection, from: Listed, prefix: &str) -> Result<(Vec<Name>, Option<Listed>)> {
        show::names(connection, &from, prefix).await
    }

    async fn break_grant(&self, _: &Connection, order: &Break) -> Result<bool> {
        // A client that only looks may be connected to a replica.
        show::break_grant(&*apart(&self.0, None).await?, order).await
    }

    async fn breaks(&self, connection: &Connection, name: &Name) -> Result<Vec<Break>> {
        show::breaks(connection, name).await
    }

    async fn write_note(&self, connection: &Connection, order: &NoteOrder) -> Result<bool> {
        notes::write(connection, order).await
    }

    async fn note(&self, connection: &Connection, name: &Name) -> Result<NoteRead> {
        notes::read(connection, name).await
    }
}
