//! On the keys of other clients: no order, mutexes only.

use super::{KIND, Namespace, TTL};

fencelock_conformance::suite!("redis plain", || Namespace::of(&KIND, "layout=plain", TTL), only = mutexes);

/// Beside bsm/redislock with its `FenceKey`: with tokens.
mod counted {
    use super::{KIND, Namespace, TTL};

    fencelock_conformance::suite!(
        "redis plain with a counter",
        || Namespace::of(&KIND, "layout=plain&fence=:fence", TTL),
        only = mutexes
    );
}

/// Beside python-redis-lock: whose waiters are woken.
mod signalled {
    use super::{KIND, Namespace, TTL};

    fencelock_conformance::suite!(
        "redis plain with a signal",
        || Namespace::of(&KIND, "layout=plain&signal=python-redis-lock", TTL),
        only = mutexes
    );
}
