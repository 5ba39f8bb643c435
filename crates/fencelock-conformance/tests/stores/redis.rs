//! The store `redis:` keeps every law that can be tried on it.

mod plain;

use std::time::Duration;

use crate::network::Namespace;
use fencelock_testbed::redis::KIND;

/// A silent connection is given up after three tenths of it, and the server of a busy machine can stand still for half a second.
const TTL: Duration = Duration::from_secs(4);

fencelock_conformance::suite!("redis", || Namespace::of(&KIND, "", TTL));

/// Beside Redisson: no order and no token, and a channel; readers and writers, too.
mod redisson {
    use super::{KIND, Namespace, TTL};

    fencelock_conformance::suite!(
        "redis redisson",
        || Namespace::of(&KIND, "layout=redisson", TTL),
        only = mutexes_and_writers
    );
}

/// Beside Redisson's fenced lock: with tokens.
mod fenced {
    use super::{KIND, Namespace, TTL};

    fencelock_conformance::suite!(
        "redis fenced",
        || Namespace::of(&KIND, "layout=redisson-fenced", TTL),
        only = mutexes
    );
}
