//! The shared server behind a network of the test's own.

use fencelock_testbed::Proxy;
use fencelock_testbed::redis::shared;

/// A way to the shared server, and a database of one's own behind it.
pub(crate) struct Link {
    pub(crate) proxy: Proxy,
    /// As in `/7`.
    pub(crate) database: String,
}

impl Link {
    pub(crate) fn new() -> Self {
        Self { proxy: Proxy::start(shared().address()).unwrap(), database: shared().namespace() }
    }

    /// The URL through the proxy.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}{}", self.proxy.address(), self.database)
    }

    /// The URL past it.
    pub(crate) fn past(&self) -> String {
        format!("redis://{}{}", shared().address(), self.database)
    }
}

/// How far into an answer it is cut: before it, inside of it, and after it or inside of the next.
pub(crate) const CUTS: [u64; 6] = [0, 1, 3, 9, 24, 60];
