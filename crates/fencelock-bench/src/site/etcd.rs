//! The etcd server of the run: a single member.

use anyhow::{Context as _, Result};
use fencelock_testbed::etcd::Server;

use super::{Site, Traffic};
use crate::crew::Target;

#[derive(Debug)]
pub(crate) struct Etcd {
    server: Server,
}

impl Etcd {
    pub(crate) fn start() -> Result<Self> {
        Ok(Self { server: Server::start(&[]).context("no etcd")? })
    }
}

impl Site for Etcd {
    fn describe(&self) -> Result<Option<String>> {
        let status = self.server.control(&["endpoint", "status", "-w", "simple"])?;
        let version = status.split(", ").nth(2).with_context(|| status.clone())?;
        Ok(Some(format!("etcd {version}, a single member, which syncs each change to the disk")))
    }

    fn servers(&self) -> Vec<&dyn fencelock_testbed::Server> {
        vec![&self.server]
    }

    fn target(&self, servers: &str, number: u64) -> Target {
        let prefix = format!("bench-{number}");
        Target { url: format!("etcd://{servers}/{prefix}"), file: prefix.into() }
    }

    /// Requests of clients. The events of watches are not counted by the server.
    fn traffic(&self) -> Result<Traffic> {
        let requests = self.server.requests_for("")?;
        Ok(Traffic { requests, sent: requests })
    }
}
