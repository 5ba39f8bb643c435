//! ZooKeeper, as a kind of server.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::ensemble::Ensemble;
use super::settings::Settings;
use crate::packages::ZOOKEEPER;
use crate::server::{Kind, Shared};

/// A single ZooKeeper server.
pub static KIND: Kind = Kind {
    scheme: "zk",
    other_schemes: &["zks"],
    variable: "FENCELOCK_TEST_ZOOKEEPER",
    package: ZOOKEEPER,
    // The options of `for_all`.
    options: "tick_ms=500",
    start: || Ok(Box::new(Ensemble::start(for_all())?.into_first())),
    namespace: |_| Ok(parent()),
    shared: OnceLock::new(),
};

/// The server that all tests share: [`Kind::shared`].
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_urls_say_what_the_default_server_is() {
        assert_eq!(KIND.options, format!("tick_ms={}", for_all().tick_ms));
    }
}
