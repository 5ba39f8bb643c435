//! The store `postgres:` keeps every law that can be tried on it.

use std::time::Duration;

use crate::network::Namespace;
use fencelock_testbed::postgres::KIND;

/// A silent connection is given up after three tenths of it, and the server of a busy machine can stand still for half a second.
const TTL: Duration = Duration::from_secs(4);

fencelock_conformance::suite!("postgres", || Namespace::of(&KIND, "", TTL));

/// The same, where a session ends with its connection.
mod bound {
    use super::{KIND, Namespace, TTL};

    fencelock_conformance::suite!(
        "postgres liveness=connection",
        || Namespace::of(&KIND, "liveness=connection", TTL).ends_with_connections(),
        only = mutexes
    );
}
