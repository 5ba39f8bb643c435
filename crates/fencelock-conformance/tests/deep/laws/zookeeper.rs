//! The store `zk:` keeps the laws of time.

use crate::fixtures;

fencelock_conformance::suite!("zk", || fixtures::zookeeper(""), laws = timed);

mod as_kazoo {
    fencelock_conformance::suite!(
        "zk",
        || super::fixtures::zookeeper("layout=kazoo"),
        only = mutexes_and_writers,
        laws = timed
    );
}
