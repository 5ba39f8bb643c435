//! The store `redis:` keeps every law that can be tried on it; on other clients' keys, of the two families that differ most.

use crate::fixtures;

fencelock_conformance::suite!("redis", || fixtures::redis(""), laws = untimed);

/// The layout of Redisson: no order and no token, and a channel; readers and writers, too.
mod redisson {
    fencelock_conformance::suite!(
        "redis redisson",
        || super::fixtures::redis("layout=redisson"),
        only = mutexes_and_writers,
        laws = untimed
    );
}

/// On the keys of other clients: no order, mutexes only.
mod plain {
    fencelock_conformance::suite!(
        "redis plain",
        || super::fixtures::redis("layout=plain"),
        only = mutexes,
        laws = untimed
    );
}

/// By way of Sentinels, with grants that a replica has acknowledged.
mod watched {
    fencelock_conformance::suite!(
        "redis by way of Sentinels",
        super::fixtures::watched,
        only = mutexes,
        laws = untimed
    );
}

/// In a Cluster, and with the acknowledgement of a replica.
mod clustered {
    fencelock_conformance::suite!(
        "redis in a Cluster",
        || super::fixtures::clustered(""),
        only = mutexes,
        laws = untimed
    );
}
