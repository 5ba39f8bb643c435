//! The store `redis:` keeps every law that can be tried on it.

mod network;

use std::time::Duration;

use fencelock_testbed::redis::KIND;
use network::Namespace;

/// A silent connection is given up after three tenths of it, and the server of a busy machine can stand still for half a second.
const TTL: Duration = Duration::from_secs(4);

fencelock_conformance::suite!("redis", || Namespace::of(&KIND, "", TTL));
