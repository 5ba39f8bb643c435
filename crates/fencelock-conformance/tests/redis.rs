//! The store `redis:` keeps every law that can be tried on it.

mod network;

use std::time::Duration;

use fencelock::{Result, StoreUrl, store::open_url};
use fencelock_conformance::{Fixture, Process};
use fencelock_testbed::redis::shared;
use futures_core::future::BoxFuture;
use network::Network;

/// The number of a database that nobody else uses.
struct Database(i64);

impl Fixture for Database {
    fn process(&self) -> BoxFuture<'_, Result<Process>> {
        let (faults, address) = Network::to(shared().address());
        let url = format!("redis://{address}/{}", self.0);
        Box::pin(async move { Ok(Process { store: open_url(StoreUrl::parse(&url)?).await?, faults }) })
    }

    /// A silent connection is given up after three tenths of it, and the server of a busy machine can stand still for half a second.
    fn ttl(&self) -> Duration {
        Duration::from_secs(4)
    }

    /// A silent connection is given up after a third of it.
    fn long_ttl(&self) -> Duration {
        Duration::from_secs(15)
    }
}

fencelock_conformance::suite!("redis", || Database(shared().database()));
