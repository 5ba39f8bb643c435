//! The MariaDB server of the run.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use fencelock_testbed::Proxy;
use fencelock_testbed::mysql::{OWNER, Server, Settings};

use super::{Kept, OpenTransaction, Site, Traffic};
use crate::crew::Target;
use crate::machine::{self, Cores};
use crate::what::Network;

#[derive(Debug)]
pub(crate) struct Mysql {
    server: Server,
    proxies: [Proxy; 1],
    cores: Cores,
    made: AtomicU64,
    /// How often it was asked for what it counts, and what it counts of each of these.
    asked: AtomicU64,
    each: u64,
}

impl Mysql {
    pub(crate) fn start(cores: Cores) -> Result<Self> {
        let server = Server::start(Settings::default().with("--max-connections=3000")).context("no MariaDB")?;
        let proxy = machine::pinned(&[cores.second], || Ok(Proxy::start(server.address())?))?;
        let mut site =
            Self { server, proxies: [proxy], cores, made: AtomicU64::new(0), asked: AtomicU64::new(0), each: 0 };
        let before = site.status("Questions")?;
        site.each = site.status("Questions")? - before;
        site.asked = AtomicU64::new(0);
        site.keep(Kept::Second)?;
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
        Ok(Some(format!("one MariaDB {} that writes to the disk what it says ({flushes})", version.trim())))
    }

    fn proxies(&self) -> &[Proxy] {
        &self.proxies
    }

    /// A database of its own for ours; what others lock is a row in it.
    fn target(&self, network: Network) -> Target {
        let address = match network {
            Network::OneCore | Network::Loopback => self.server.address(),
            Network::Delay => self.proxies[0].address(),
        };
        let name = format!("bench_{}", self.made.fetch_add(1, Ordering::Relaxed));
        let make = format!("CREATE DATABASE {name}; GRANT ALL ON {name}.* TO {OWNER}@'%'");
        if let Err(error) = self.server.sql(&make) {
            // The workers cannot connect then, and say so.
            eprintln!("no database: {error}");
        }
        Target { url: format!("mysql://{OWNER}:secret@{address}/{name}"), file: name.into() }
    }

    /// Threads that the server starts later keep to the same cores.
    fn keep(&self, to: Kept) -> Result<()> {
        let id = self.server.process_id().context("the server is gone")?;
        machine::pin_process(id, &to.among(self.cores))
    }

    fn open_transaction(&self) -> Result<OpenTransaction> {
        let address = self.server.address();
        let mut mariadb = Command::new("mariadb");
        mariadb.args(["--no-defaults", "-N", "-B", "-n", "-u", "root", "-h", "127.0.0.1"]);
        mariadb.args(["-P", &address.port().to_string()]);
        let level = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;";
        OpenTransaction::begin(mariadb, &format!("{level}\nSTART TRANSACTION WITH CONSISTENT SNAPSHOT;\nSELECT 1;"))
    }

    /// Statements that clients sent. Who is woken hears by the end of a query of its own.
    fn traffic(&self) -> Result<Traffic> {
        let counted = self.status("Questions")?;
        let requests = counted.saturating_sub(self.asked.load(Ordering::Relaxed) * self.each);
        Ok(Traffic { requests, sent: requests })
    }

    fn processor_time(&self) -> Result<Option<Duration>> {
        machine::threads_time(self.server.process_id().context("the server is gone")?).map(Some)
    }

    fn undone(&self) -> Result<u64> {
        self.status("Innodb_deadlocks")
    }
}
