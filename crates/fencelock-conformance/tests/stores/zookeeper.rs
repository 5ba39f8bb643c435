//! The store `zk:` keeps every law that can be tried on it, by the names of both families.

use crate::fixtures;

fencelock_conformance::suite!("zk", || fixtures::zookeeper(""), laws = untimed);

// Both families have the same permits.
mod as_kazoo {
    fencelock_conformance::suite!(
        "zk",
        || super::fixtures::zookeeper("layout=kazoo"),
        only = mutexes_and_writers,
        laws = untimed
    );
}
