//! Locks of other programs in databases and in etcd: which waits for which there, and how long.

mod cells;
mod play;

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use fencelock_interop::Built;
use fencelock_testbed::{Kind, etcd, mysql, postgres};
pub(crate) use play::{Stage, TTL};

use crate::cells::{Among, Cell, On, Pair, both_ways, chosen};

/// A server on which cells are played.
pub(crate) struct Place {
    pub(crate) title: &'static str,
    pub(crate) on: On,
    kind: &'static Kind,
    pub(crate) build: fn() -> Result<Built>,
    pairs: &'static [Pair],
    /// As tutorials, and as ShedLock's documentation, make them; on MariaDB also ShedLock's as `fencelock migrate` makes it.
    tables: &'static str,
}

pub(crate) static PLACES: [Place; 3] = [
    Place {
        title: "postgresql",
        on: On::Sql,
        kind: &postgres::KIND,
        build: Built::for_sql,
        pairs: &cells::ON_POSTGRES,
        tables: "CREATE TABLE distributed_lock (lock_key varchar(64) PRIMARY KEY, lock_value varchar(64) NOT NULL, expire_time timestamptz NOT NULL); \
                 CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)",
    },
    Place {
        title: "mariadb",
        on: On::Sql,
        kind: &mysql::KIND,
        build: Built::for_sql,
        pairs: &cells::ON_MARIADB,
        tables: "CREATE TABLE distributed_lock (id BIGINT AUTO_INCREMENT PRIMARY KEY, lock_key VARCHAR(64) NOT NULL UNIQUE, lock_value VARCHAR(64) NOT NULL, expire_time DATETIME NOT NULL); \
                 CREATE TABLE shedlock (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name)); \
                 CREATE TABLE shedlock_datetime (name VARCHAR(64) NOT NULL, lock_until DATETIME(3) NOT NULL, locked_at DATETIME(3) NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))",
    },
    Place {
        title: "etcd",
        on: On::Etcd,
        kind: &etcd::KIND,
        build: Built::for_etcd,
        pairs: &cells::ON_ETCD,
        tables: "",
    },
];

impl Place {
    /// Every cell, both ways.
    pub(crate) fn cells(&self, among: Among) -> Vec<Cell> {
        chosen(among, self.pairs.iter().flat_map(both_ways).collect())
    }

    /// A database of its own with these tables, or a prefix of its own: its URL.
    pub(crate) fn database(&self) -> Result<String> {
        let shared = self.kind.shared();
        let (address, path) = (shared.address(), shared.namespace());
        if self.tables.is_empty() {
            return Ok(format!("{}://{address}{path}", self.kind.scheme));
        }
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
