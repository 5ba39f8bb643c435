//! The store `redlock:` keeps every law that can be tried on it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fencelock_testbed::redis::{Server, Settings};

use crate::network::Fleet;

/// A silent connection is given up after three tenths of it, and the servers of a busy machine can stand still for half a second.
const TTL: Duration = Duration::from_secs(4);

/// The masters of this process, a database of each for every law. They were started a moment ago, and count all the same.
fn masters() -> Fleet {
    static MASTERS: OnceLock<Vec<Server>> = OnceLock::new();
    static DATABASE: AtomicU32 = AtomicU32::new(0);
    let masters = MASTERS.get_or_init(|| (0..3).map(|_| Server::start(Settings::default()).unwrap()).collect());
    let servers = masters.iter().map(Server::address).collect();
    let rest = format!("/{}?rejoin_ms=0", DATABASE.fetch_add(1, Ordering::Relaxed));
    Fleet { scheme: "redlock", servers, rest, ttl: TTL }
}

fencelock_conformance::suite!("redlock", masters, only = mutexes);
