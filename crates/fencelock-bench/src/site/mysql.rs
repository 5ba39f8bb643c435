//! The MariaDB server of the run.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use fencelock_testbed::mysql::{OWNER, Server, Settings};

use super::{OpenTransaction, Site, Traffic};
use crate::crew::Target;

#[derive(Debug)]
pub(crate) struct Mysql {
    server: Server,
    /// The number of queries for the server's counters, and the requests that each of them adds to the counters.
    asked: AtomicU64,
    each: u64,
}

impl Mysql {
    pub(crate) fn start() -> Result<Self> {
        // A peer that prepares each statement anew closes none.
        let settings = Settings::default().with("--max-connections=3000").with("--max-prepared-stmt-count=1000000");
        let server = Server::start(settings).context("no MariaDB")?;
        let mut site = Self { server, asked: AtomicU64::new(0), each: 0 };
        let before = site.status("Questions")?;
        site.each = site.status("Questions")? - before;
        site.asked = AtomicU64::new(0);
        Ok(site)
    }

    fn status(&self, name: &str) -> Result<u64> {
        let said = self.server.sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
        self.asked.fetch_add(1, Ordering::Relaxed);
        said.split_whitespace().nth(1).and_then(|number| number.parse().ok()).context(said)
    }
}

impl Site for Mysql {
    fn describe(&self) -> Result<Option<String>> {
        let version = self.server.sql("SELECT VERSION()")?;
        let flushes = "`innodb_flush_log_at_trx_commit=1`";
        Ok(Some(format!("MariaDB {}, which syncs each commit to the disk ({flushes})", version.trim())))
    }

    fn servers(&self) -> Vec<&dyn fencelock_testbed::Server> {
        vec![&self.server]
    }

    /// Ours gets a database of its own; a peer locks a row in it.
    fn target(&self, servers: &str, number: u64) -> Target {
        let name = format!("bench_{number}");
        let make = format!("CREATE DATABASE {name}; GRANT ALL ON {name}.* TO {OWNER}@'%'");
        if let Err(error) = self.server.sql(&make) {
            // The workers will fail to connect, and report that.
            eprintln!("no database: {error}");
        }
        Target { url: format!("mysql://{OWNER}:secret@{servers}/{name}"), file: name.into() }
    }

    fn open_transaction(&self) -> Result<OpenTransaction> {
        let address = self.server.address();
        let mut mariadb = Command::new("mariadb");
        mariadb.args(["--no-defaults", "-N", "-B", "-n", "-u", "root", "-h", "127.0.0.1"]);
        mariadb.args(["-P", &address.port().to_string()]);
        let level = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;";
        OpenTransaction::begin(mariadb, &format!("{level}\nSTART TRANSACTION WITH CONSISTENT SNAPSHOT;\nSELECT 1;"))
    }

    /// Statements that clients sent. A waiter is woken by the end of a query of its own.
    fn traffic(&self) -> Result<Traffic> {
        let counted = self.status("Questions")?;
        let requests = counted.saturating_sub(self.asked.load(Ordering::Relaxed) * self.each);
        Ok(Traffic { requests, sent: requests })
    }

    fn undone(&self) -> Result<u64> {
        self.status("Innodb_deadlocks")
    }
}
