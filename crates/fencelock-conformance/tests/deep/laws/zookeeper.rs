//! The store `zk:` keeps the laws of time; all of them with the other way of handing over.

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

// Only mutexes are handed over in two ways.
mod by_listing {
    fencelock_conformance::suite!("zk", || super::fixtures::zookeeper("handover=list"), only = mutexes);
}

mod as_kazoo_by_listing {
    fencelock_conformance::suite!("zk", || super::fixtures::zookeeper("layout=kazoo&handover=list"), only = mutexes);
}
