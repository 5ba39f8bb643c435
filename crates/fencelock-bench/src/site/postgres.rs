//! The PostgreSQL server of the run.

use std::process::Command;

use anyhow::{Context as _, Result};
use fencelock_testbed::postgres::{OWNER, Server, Settings};

use super::{OpenTransaction, Site, Traffic};
use crate::crew::Target;

#[derive(Debug)]
pub(crate) struct Postgres {
    server: Server,
}

impl Postgres {
    pub(crate) fn start() -> Result<Self> {
        let settings = Settings::default().with("shared_preload_libraries = 'pg_stat_statements'");
        let server = Server::start(settings).context("no PostgreSQL")?;
        server.sql("postgres", "CREATE EXTENSION pg_stat_statements")?;
        Ok(Self { server })
    }

    fn number(&self, sql: &str) -> Result<u64> {
        let said = self.server.sql("postgres", sql)?;
        said.trim().parse().with_context(|| said.clone())
    }
}

impl Site for Postgres {
    fn describe(&self) -> Result<Option<String>> {
        let version = self.server.sql("postgres", "SHOW server_version")?;
        Ok(Some(format!("PostgreSQL {}, which syncs each commit to the disk (`fsync` on)", version.trim())))
    }

    fn servers(&self) -> Vec<&dyn fencelock_testbed::Server> {
        vec![&self.server]
    }

    /// Ours gets a schema of its own; a peer locks a row of that name.
    fn target(&self, servers: &str, number: u64) -> Target {
        let name = format!("bench_{number}");
        Target { url: format!("postgres://{OWNER}:secret@{servers}/{OWNER}?schema={name}"), file: name.into() }
    }

    fn open_transaction(&self) -> Result<OpenTransaction> {
        let address = self.server.address();
        let mut psql = Command::new("psql");
        psql.args(["-XAtq", "-U", "postgres", "-h", "127.0.0.1", "-d", OWNER, "-p", &address.port().to_string()]);
        // The transaction keeps its snapshot, and gets a transaction id.
        OpenTransaction::begin(psql, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current();")
    }

    /// Statements that clients sent. Notifications are not counted by the server.
    fn traffic(&self) -> Result<Traffic> {
        let counted = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'";
        let requests = self.number(counted)?;
        Ok(Traffic { requests, sent: requests })
    }
}
