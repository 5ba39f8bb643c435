//! Locks of others in databases: which waits for which there, and how long.

pub(crate) mod cells;
mod play;

pub(crate) use play::{OPTIONS, Stage, TTL};

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use fencelock_testbed::{Kind, mysql, postgres};

/// A server on which cells are played.
pub(crate) struct Place {
    kind: &'static Kind,
    /// As tutorials, and as ShedLock's documentation, make them; on MariaDB also ShedLock's as `fencelock migrate` makes it.
    tables: &'static str,
}

pub(crate) static POSTGRES: Place = Place {
    kind: &postgres::KIND,
    tables: "CREATE TABLE distributed_lock (lock_key varchar(64) PRIMARY KEY, lock_value varchar(64) NOT NULL, expire_time timestamptz NOT NULL); \
             CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)",
};

pub(crate) static MARIADB: Place = Place {
    kind: &mysql::KIND,
    tables: "CREATE TABLE distributed_lock (id BIGINT AUTO_INCREMENT PRIMARY KEY, lock_key VARCHAR(64) NOT NULL UNIQUE, lock_value VARCHAR(64) NOT NULL, expire_time DATETIME NOT NULL); \
             CREATE TABLE shedlock (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name)); \
             CREATE TABLE shedlock_datetime (name VARCHAR(64) NOT NULL, lock_until DATETIME(3) NOT NULL, locked_at DATETIME(3) NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))",
};

impl Place {
    /// A database of its own with these tables: its URL.
    pub(crate) fn database(&self) -> Result<String> {
        let shared = self.kind.shared();
        let (address, path) = (shared.address(), shared.namespace());
        let url = format!("{}://fencelock:secret@{address}{path}", self.kind.scheme);
        let mut command = match self.kind.scheme {
            "postgres" => {
                let mut psql = Command::new("psql");
                psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", self.tables, &url]);
                psql
            }
            _ => {
                let mut mariadb = Command::new("mariadb");
                mariadb.args(["--no-defaults", "-u", "fencelock", "-psecret", "-h", &address.ip().to_string(), "-P"]);
                mariadb.args([&address.port().to_string(), "-e", self.tables, path.trim_start_matches('/')]);
                mariadb
            }
        };
        let made = command.output().with_context(|| format!("{:?}", command.get_program()))?;
        if !made.status.success() {
            bail!("no tables: {}", String::from_utf8_lossy(&made.stderr));
        }
        Ok(url)
    }
}
