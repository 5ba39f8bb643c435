//! A Redis server of the run.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use fencelock_testbed::Proxy;
use fencelock_testbed::redis::{Server, Settings};

use super::site::{Kept, Network, Site, Traffic};
use crate::crew::Target;
use crate::machine::{self, Cores};

#[derive(Debug)]
pub(crate) struct Redis {
    server: Server,
    proxy: Proxy,
    cores: Cores,
    made: AtomicU64,
}

impl Redis {
    pub(crate) fn start(cores: Cores) -> Result<Self> {
        let server = Server::start(Settings::default()).context("no Redis")?;
        let proxy = machine::pinned(&[cores.second], || Ok(Proxy::start(server.address())?))?;
        let site = Self { server, proxy, cores, made: AtomicU64::new(0) };
        site.keep(Kept::Second)?;
        Ok(site)
    }

    fn number(&self, key: &str) -> Result<u64> {
        let text = self.server.info(key).with_context(|| key.to_owned())?;
        text.parse().with_context(|| format!("{key}: {text}"))
    }

    /// Calls of a command so far; none if it was never called.
    fn calls(&self, command: &str) -> u64 {
        let Ok(text) = self.server.info(&format!("cmdstat_{command}")) else { return 0 };
        let calls = text.split(',').find_map(|field| field.strip_prefix("calls="));
        calls.and_then(|calls| calls.parse().ok()).unwrap_or(0)
    }
}

impl Site for Redis {
    fn describe(&self) -> Result<String> {
        let version = self.server.info("redis_version").context("INFO tells no version")?;
        Ok(format!("one Redis {version} that keeps nothing on the disk"))
    }

    fn proxy(&self) -> Option<&Proxy> {
        Some(&self.proxy)
    }

    fn target(&self, network: Network) -> Target {
        let address = match network {
            Network::OneCore | Network::Loopback => self.server.address(),
            Network::Delay => self.proxy.address(),
        };
        let prefix = format!("bench-{}", self.made.fetch_add(1, Ordering::Relaxed));
        Target { url: format!("redis://{address}?prefix={prefix}"), file: prefix.into() }
    }

    fn keep(&self, to: Kept) -> Result<()> {
        let id = u32::try_from(self.number("process_id")?)?;
        machine::pin_process(id, &to.among(self.cores))
    }

    /// Scripts are the requests, and what they publish the notifications: commands inside of scripts are counted by the
    /// server like others, and tell nothing.
    fn traffic(&self) -> Result<Traffic> {
        let requests = self.calls("evalsha") + self.calls("eval");
        Ok(Traffic { requests, sent: requests + self.calls("publish") })
    }

    fn memory(&self) -> Result<Option<u64>> {
        self.number("used_memory").map(Some)
    }
}
