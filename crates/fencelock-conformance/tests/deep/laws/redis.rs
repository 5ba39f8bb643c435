//! The store `redis:` keeps the laws of time; all of them on the keys of other clients that the gate leaves out.

use crate::fixtures;

fencelock_conformance::suite!("redis", || fixtures::redis(""), laws = timed);

mod redisson {
    fencelock_conformance::suite!(
        "redis redisson",
        || super::fixtures::redis("layout=redisson"),
        only = mutexes_and_writers,
        laws = timed
    );
}

mod plain {
    fencelock_conformance::suite!(
        "redis plain",
        || super::fixtures::redis("layout=plain"),
        only = mutexes,
        laws = timed
    );
}

/// The layout of Redisson's fenced lock: with tokens.
mod fenced {
    fencelock_conformance::suite!("redis fenced", || super::fixtures::redis("layout=redisson-fenced"), only = mutexes);
}

/// The keys of bsm/redislock with its `FenceKey`: with tokens.
mod counted {
    fencelock_conformance::suite!(
        "redis plain with a counter",
        || super::fixtures::redis("layout=plain&fence=:fence"),
        only = mutexes
    );
}

/// The keys of python-redis-lock: its waiters are woken.
mod signalled {
    fencelock_conformance::suite!(
        "redis plain with a signal",
        || super::fixtures::redis("layout=plain&signal=python-redis-lock"),
        only = mutexes
    );
}

/// By way of Sentinels, with grants that a replica has acknowledged.
mod watched {
    fencelock_conformance::suite!("redis by way of Sentinels", super::fixtures::watched);
}

/// In a Cluster, and with the acknowledgement of a replica.
mod clustered {
    fencelock_conformance::suite!("redis in a Cluster", || super::fixtures::clustered(""));

    mod plain {
        fencelock_conformance::suite!(
            "redis plain in a Cluster",
            || crate::fixtures::clustered("&layout=plain"),
            only = mutexes
        );
    }

    mod fenced {
        fencelock_conformance::suite!(
            "redis fenced in a Cluster",
            || crate::fixtures::clustered("&layout=redisson-fenced"),
            only = mutexes
        );
    }

    mod shared {
        fencelock_conformance::suite!(
            "redis redisson in a Cluster",
            || crate::fixtures::clustered("&layout=redisson"),
            only = mutexes_and_writers
        );
    }
}
