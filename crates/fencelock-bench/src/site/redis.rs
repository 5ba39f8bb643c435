//! The Redis servers of the run: a single one, or several independent masters.

use anyhow::{Context as _, Result};
use fencelock_testbed::redis::{Server, Settings};

use super::{Site, Traffic};
use crate::crew::Target;

#[derive(Debug)]
pub(crate) struct Redis {
    servers: Vec<Server>,
}

impl Redis {
    pub(crate) fn start(masters: usize) -> Result<Self> {
        let start = |_| Server::start(Settings::default()).context("no Redis");
        let servers = (0..masters).map(start).collect::<Result<Vec<_>>>()?;
        Ok(Self { servers })
    }

    /// Calls of these commands so far, on all servers.
    fn calls(&self, commands: &[&str]) -> u64 {
        let each = |server| commands.iter().map(move |command| calls(server, command));
        self.servers.iter().flat_map(each).sum()
    }
}

/// Calls of a command so far; none if it was never called.
fn calls(server: &Server, command: &str) -> u64 {
    let Ok(text) = server.info(&format!("cmdstat_{command}")) else { return 0 };
    let calls = text.split(',').find_map(|field| field.strip_prefix("calls="));
    calls.and_then(|calls| calls.parse().ok()).unwrap_or(0)
}

impl Site for Redis {
    fn describe(&self) -> Result<Option<String>> {
        let version = self.servers[0].info("redis_version").context("INFO tells no version")?;
        Ok(Some(match self.servers.len() {
            1 => format!("Redis {version}, which keeps nothing on the disk"),
            masters => format!("{masters} such masters for `redlock:`"),
        }))
    }

    fn servers(&self) -> Vec<&dyn fencelock_testbed::Server> {
        self.servers.iter().map(|server| server as &dyn fencelock_testbed::Server).collect()
    }

    fn target(&self, servers: &str, number: u64) -> Target {
        // Masters that were started a moment ago have nothing to forget here.
        let (scheme, options) = if self.servers.len() == 1 { ("redis", "") } else { ("redlock", "rejoin_ms=0&") };
        let prefix = format!("bench-{number}");
        Target { url: format!("{scheme}://{servers}?{options}prefix={prefix}"), file: prefix.into() }
    }

    /// Commands that no script can contain are the requests, and published messages the notifications: the server also counts the
    /// commands inside scripts, which say nothing here.
    fn traffic(&self) -> Result<Traffic> {
        let requests = self.calls(&["evalsha", "eval", "subscribe", "unsubscribe"]);
        Ok(Traffic { requests, sent: requests + self.calls(&["publish"]) })
    }
}
