//! Stores that break by the common outages alone: MariaDB, etcd, and a directory.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use fencelock::mysql::Schema;
use fencelock_testbed::mysql::{self, OWNER};
use fencelock_testbed::{PATIENCE, Server, etcd, wait_until};

use crate::bed::{Bed, TTL};

/// MariaDB, with a database for each site.
#[derive(Debug)]
pub(crate) struct Mysql(mysql::Server);

impl Mysql {
    /// Starts the server.
    pub(crate) fn start() -> io::Result<Arc<dyn Bed>> {
        // No drill cuts the power.
        let settings = mysql::Settings::default().with("--innodb-flush-log-at-trx-commit=0");
        Ok(Arc::new(Self(mysql::Server::start(settings)?)))
    }
}

impl Bed for Mysql {
    fn servers(&self) -> Vec<&dyn Server> {
        vec![&self.0]
    }

    fn url(&self, ways: &[SocketAddr], name: &str) -> String {
        format!("mysql://{OWNER}:secret@{}/{name}?ttl_ms={}", ways[0], TTL.as_millis())
    }

    /// Makes the tables before the drill: that lasts longer than the ttl of its sessions.
    fn prepare(&self, name: &str) -> io::Result<()> {
        self.0.sql(&format!("CREATE DATABASE {name}; GRANT ALL ON {name}.* TO {OWNER}@'%'"))?;
        let schema = Schema::of(&self.url(&[self.0.address()], name)).map_err(io::Error::other)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(schema.migrate(&[])).map(drop).map_err(io::Error::other)
    }
}

/// A member of etcd, or several that are a cluster, with a prefix for each site.
#[derive(Debug)]
pub(crate) struct Etcd(Vec<etcd::Server>);

impl Etcd {
    /// Starts this number of members.
    pub(crate) fn start(members: usize) -> io::Result<Arc<dyn Bed>> {
        Ok(Arc::new(Self(etcd::Server::cluster(members, &[])?)))
    }
}

impl Bed for Etcd {
    fn servers(&self) -> Vec<&dyn Server> {
        self.0.iter().map(|member| member as &dyn Server).collect()
    }

    fn url(&self, ways: &[SocketAddr], name: &str) -> String {
        let ways: Vec<_> = ways.iter().map(SocketAddr::to_string).collect();
        format!("etcd://{}/{name}?ttl_ms={}", ways.join(","), TTL.as_millis())
    }

    fn leader(&self) -> usize {
        let mut leader = None;
        wait_until(PATIENCE, || {
            leader = self.0.iter().position(etcd::Server::is_leader);
            leader.is_some()
        });
        leader.unwrap_or(0)
    }
}

/// A directory. Faults can only hit the processes that use it.
#[derive(Debug)]
pub(crate) struct Directory(tempfile::TempDir);

impl Directory {
    /// Makes the directory.
    pub(crate) fn start() -> io::Result<Arc<dyn Bed>> {
        Ok(Arc::new(Self(tempfile::Builder::new().prefix("fencelock-torture-").tempdir()?)))
    }
}

impl Bed for Directory {
    fn servers(&self) -> Vec<&dyn Server> {
        Vec::new()
    }

    fn url(&self, _ways: &[SocketAddr], name: &str) -> String {
        format!("file://{}/{name}", self.0.path().display())
    }
}
