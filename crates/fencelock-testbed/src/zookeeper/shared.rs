//! ZooKeeper, as one kind of server among others.

use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::ensemble::Ensemble;
use super::server;
use super::settings::Settings;
use crate::packages::ZOOKEEPER;
use crate::server::{Kind, Server, Shared};

/// ZooKeeper: a server alone.
pub static KIND: Kind = Kind {
    scheme: "zk",
    other_schemes: &["zks"],
    variable: "FENCELOCK_TEST_ZOOKEEPER",
    package: ZOOKEEPER,
    // The options of `for_all`.
    options: "tick_ms=500",
    start: || Ok(Box::new(Ensemble::start(for_all())?)),
    namespace: |_| Ok(parent()),
    shared: OnceLock::new(),
};

/// The server that all tests share: [`Kind::shared`].
///
/// # Panics
/// When it cannot be started.
pub fn shared() -> &'static Shared {
    KIND.shared()
}

/// Settings for every test: sessions long enough to outlast a busy machine, and no wait for the disk. The kernel keeps
/// written data through a kill of the server.
fn for_all() -> Settings {
    Settings { max_session_timeout_ms: 120_000, ..Settings::default() }.with("forceSync", "no")
}

/// A path that no other test uses, such as `/t1a2b-7`; there is no node there yet.
fn parent() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("/t{started:x}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

impl Server for Ensemble {
    fn address(&self) -> SocketAddr {
        self.server(0).address()
    }

    fn processes(&self) -> Vec<u32> {
        self.servers().flat_map(Server::processes).collect()
    }

    fn kill(&self) {
        self.servers().for_each(server::Server::kill);
    }

    fn pause(&self) {
        self.servers().for_each(server::Server::pause);
    }

    fn resume(&self) {
        self.servers().for_each(server::Server::resume);
    }

    fn restart(&self) -> io::Result<()> {
        self.servers().try_for_each(server::Server::restart)?;
        self.wait_until_serving()
    }

    fn heal(&self) -> io::Result<()> {
        Self::heal(self)
    }

    fn requests(&self) -> io::Result<u64> {
        self.servers().map(|server| server.monitor("zk_packets_received")).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_urls_say_what_the_default_server_is() {
        assert_eq!(KIND.options, format!("tick_ms={}", for_all().tick_ms));
    }
}
