//! The store `zk:` keeps every law that can be tried on it, by the names of both families and with both ways of handing over.

use std::time::Duration;

use crate::network::Namespace;
use fencelock_conformance::suite;
use fencelock_testbed::zookeeper::KIND;

/// The least that servers grant with ticks of half a second is 2 s.
const TTL: Duration = Duration::from_secs(2);

fn with(options: &'static str) -> Namespace {
    Namespace::of(&KIND, options, TTL)
}

suite!("zk", || with(""));
// Only mutexes are handed over in two ways, and both families have the same permits.
mod by_listing {
    super::suite!("zk", || super::with("handover=list"), only = mutexes);
}
mod as_kazoo {
    super::suite!("zk", || super::with("layout=kazoo"), only = mutexes_and_writers);
}
mod as_kazoo_by_listing {
    super::suite!("zk", || super::with("layout=kazoo&handover=list"), only = mutexes);
}
