//! Locks in MariaDB and MySQL: the tables and procedures that keep them, for users that make them by hand or for another account.
//!
//! A client makes them by itself when its user may. Where it may not, another user runs [`Schema::migrate`], or the statements of
//! [`Schema::statements`], or `fencelock migrate`, and grants the user of the clients the right to call the procedures.

use std::fmt;
use std::sync::Arc;

use super::link::Mysql;
use super::setup::{account, grants, make, statements};
use super::tables::{self, Table};
use super::url::{Config, bad};
use crate::engine::options::URL_OPTIONS;
use crate::error::Result;
use crate::kit::database::Migration;
use crate::kit::database::link::{Database as _, Dialler, Purpose};
use crate::store::StoreUrl;

/// The tables and procedures in which a `mysql:` URL keeps its locks, or the lock table of its layout.
#[derive(Clone)]
pub struct Schema {
    config: Arc<Config>,
    /// A lock table of others that stands for them.
    table: Option<Arc<Table>>,
}

impl Schema {
    /// The tables of this store URL; options of clients, such as `ttl_ms`, are ignored.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) that names what is wrong.
    pub fn of(url: &str) -> Result<Self> {
        let mut url = StoreUrl::parse(url)?;
        URL_OPTIONS.iter().for_each(|option| drop(url.take(option)));
        let (layout, config) = Mysql::layout_and_config(url)?;
        let table = layout.table(bad("named locks need nothing that is made: this is for the other layouts"))?;
        Ok(Self { config: Arc::new(config), table: table.map(|table| Arc::new(Table::from(table))) })
    }

    /// The SQL that makes tables and procedures, and lets these accounts (`user` or `user@host`) use them, for the command `mariadb`.
    #[must_use]
    pub fn statements(&self, accounts: &[&str]) -> String {
        let database = self.config.database.replace('`', "``");
        if let Some(table) = &self.table {
            let granted: String = accounts.iter().map(|name| format!("{};\n", table.grant(&account(name)))).collect();
            return format!("USE `{database}`;\n{};\n{granted}", table.ddl());
        }
        let granted = accounts.iter().flat_map(|account| grants(&self.config, account));
        let all: Vec<String> = statements().into_iter().chain(granted).collect();
        format!("USE `{database}`\nDELIMITER //\n{}\n//\nDELIMITER ;\n", all.join("\n//\n"))
    }

    /// Makes the tables and procedures, and lets these accounts (`user` or `user@host`) use them. After a failure, call it again.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied) for a user who may not create tables and procedures, or not let others use them,
    /// [`ErrorKind::Layout`](crate::ErrorKind::Layout) for those of another release or program.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time.
    pub async fn migrate(&self, accounts: &[&str]) -> Result<Migration> {
        let connection = Dialler::<Mysql>::alone(&self.config, Purpose::Migration, None).await?;
        if let Some(table) = &self.table {
            return tables::make(&connection, table, accounts).await;
        }
        let is_new = make(&connection, &self.config).await?;
        for statement in accounts.iter().flat_map(|account| grants(&self.config, account)) {
            connection.simple("migrate", &statement).await?;
        }
        Ok(Migration::of(is_new))
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.config, f)
    }
}
