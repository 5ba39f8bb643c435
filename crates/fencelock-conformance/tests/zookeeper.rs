//! The store `zk:` keeps every law that can be tried on it, by the names of both families and with both ways of handing over.

mod network;

use std::time::Duration;

use fencelock::{Result, StoreUrl, store::open_url};
use fencelock_conformance::{Fixture, Process, suite};
use fencelock_testbed::zookeeper::shared;
use futures_core::future::BoxFuture;
use network::Network;

/// A parent node that nobody else uses, and options.
struct Parent(String, &'static str);

impl Fixture for Parent {
    fn process(&self) -> BoxFuture<'_, Result<Process>> {
        let (faults, address) = Network::to(shared().address());
        let url = format!("zk://{address}{}?tick_ms=500&{}", self.0, self.1);
        Box::pin(async move { Ok(Process { store: open_url(StoreUrl::parse(&url)?).await?, faults }) })
    }

    /// A silent connection is given up after a third of it.
    fn long_ttl(&self) -> Duration {
        Duration::from_secs(15)
    }
}

suite!("zk", || Parent(shared().parent(), ""));
// Only mutexes are handed over in two ways, and both families have the same permits.
mod by_listing {
    super::suite!("zk", || super::Parent(super::shared().parent(), "handover=list"), only = mutexes);
}
mod as_kazoo {
    super::suite!("zk", || super::Parent(super::shared().parent(), "layout=kazoo"), only = mutexes_and_writers);
}
mod as_kazoo_by_listing {
    super::suite!("zk", || super::Parent(super::shared().parent(), "layout=kazoo&handover=list"), only = mutexes);
}
