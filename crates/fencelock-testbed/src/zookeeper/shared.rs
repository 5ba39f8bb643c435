//! One server for all tests of a binary, or of a whole run.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::ensemble::Ensemble;
use super::settings::Settings;

/// The environment variable that names a server that is running already, as `host:port`. Its tick is that of
/// [`Settings::default`].
pub const SHARED: &str = "FENCELOCK_TEST_ZOOKEEPER";

/// A server that tests share. Nobody may break it, and each test has a parent node of its own.
#[derive(Debug)]
pub struct Shared {
    address: SocketAddr,
    /// `None` when somebody else started it.
    _started: Option<Ensemble>,
}

/// The server that [`SHARED`] names, or one that lives as long as this process.
///
/// # Panics
/// When it cannot be started.
pub fn shared() -> &'static Shared {
    static SERVER: OnceLock<Shared> = OnceLock::new();
    SERVER.get_or_init(|| match std::env::var(SHARED) {
        Ok(address) => Shared { address: address.parse().expect("an address in the environment"), _started: None },
        Err(_) => {
            let started = Ensemble::start(Settings::default()).expect("a server");
            Shared { address: started.server(0).address(), _started: Some(started) }
        }
    })
}

impl Shared {
    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A path that no other test uses, such as `/t1a2b-7`; there is no node there yet.
    #[must_use]
    pub fn parent(&self) -> String {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        format!("/t{started:x}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
    }

    /// The URL of a store under a parent of its own.
    #[must_use]
    pub fn url(&self) -> String {
        format!("zk://{}{}?tick_ms={}", self.address, self.parent(), Settings::default().tick_ms)
    }
}
