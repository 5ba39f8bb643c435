//! Locks in PostgreSQL: the schema that keeps them, for users that make it by hand or for another role.
//!
//! A client makes the schema by itself when its role may create one. Where it may not, another role runs [`Schema::migrate`], or the
//! statements of [`Schema::statements`], or `fencelock migrate`, and grants the role of the clients the right to call the functions.
//!
//! `docs/locks-in-postgresql.md` describes the functions `hold`, `fence` and `in_transaction` for transactions of one's own.

use std::fmt;
use std::sync::Arc;

use super::link::Postgres;
use super::setup::{ddl, grants, make};
use super::tables::{Table, make as make_table};
use super::url::{Config, bad};
use crate::engine::options::URL_OPTIONS;
use crate::error::Result;
use crate::kit::database::Migration;
use crate::kit::database::link::{Database as _, Dialler, Purpose};
use crate::store::StoreUrl;

/// The statement that makes a grant part of its transaction. The parameters are the lock's name (`text`) and its token (`bigint`,
/// [`FencingToken::to_i64`](crate::FencingToken::to_i64)). With `?schema=locks` it is `SELECT locks.hold($1, $2)`.
///
/// The statement fails with SQLSTATE `FL001` unless the grant is current, and keeps it from ending until the transaction does.
pub const HOLD: &str = "SELECT fencelock.hold($1, $2)";

/// The schema in which a `postgres:` URL keeps its locks, or the lock table of its layout.
#[derive(Clone)]
pub struct Schema {
    config: Arc<Config>,
    unlogged: bool,
    /// A lock table of another program in its place.
    table: Option<Arc<Table>>,
}

impl Schema {
    /// The schema of this store URL; options of clients, such as `ttl_ms`, are ignored.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) that names what is wrong.
    pub fn of(url: &str) -> Result<Self> {
        let mut url = StoreUrl::parse(url)?;
        URL_OPTIONS.iter().for_each(|option| drop(url.take(option)));
        let (layout, config) = Postgres::layout_and_config(url)?;
        let table = layout.table(bad("advisory locks need nothing that is made: this is for the other layouts"))?;
        let table = table.map(|table| Arc::new(Table::from(table)));
        Ok(Self { config: Arc::new(config), unlogged: false, table })
    }

    /// Made with unlogged tables: acquiring and releasing hardly wait for the disk. The price is a crash of the server, which ends every
    /// lock; after it no client is granted one for the longest ttl of a client, so that no holder is still at work. Existing tables stay.
    #[must_use]
    pub fn unlogged(self) -> Self {
        Self { unlogged: true, ..self }
    }

    /// The statements that make the schema and let these roles use it, for one transaction, in this order.
    #[must_use]
    pub fn statements(&self, roles: &[&str]) -> String {
        if let Some(table) = &self.table {
            let granted: String = roles.iter().map(|role| table.grant(role)).collect();
            return format!("BEGIN;\n{}{granted}COMMIT;\n", table.ddl());
        }
        let schema = &self.config.schema;
        let granted: String = roles.iter().map(|role| grants(schema, role)).collect();
        format!("BEGIN;\n{}{granted}COMMIT;\n", ddl(schema, self.unlogged))
    }

    /// Makes the schema unless it is there, and lets these roles use it. All of it, or nothing. The owner of the schema must call this.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied) for a role that may not create a schema, or not let others use one that is there,
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for a role that does not exist, and for unlogged tables where logged ones exist,
    /// [`ErrorKind::Layout`](crate::ErrorKind::Layout) for a schema of another release or program.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time.
    pub async fn migrate(&self, roles: &[&str]) -> Result<Migration> {
        let connection = Dialler::<Postgres>::alone(&self.config, Purpose::Migration, None).await?;
        if let Some(table) = &self.table {
            return make_table(&connection, table, self.unlogged, roles).await;
        }
        make(&connection, &self.config.schema, self.unlogged, roles).await.map(Migration::of)
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:?}", self.config.schema.quoted(), self.config)
    }
}
