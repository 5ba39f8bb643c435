//! The store `postgres:` keeps every law that can be tried on it.

use crate::fixtures;

fencelock_conformance::suite!("postgres", || fixtures::postgres(""), laws = untimed);

/// Through PgBouncer in transaction mode.
mod pooled {
    fencelock_conformance::suite!("postgres pooled", super::fixtures::pooled, only = mutexes, laws = untimed);
}

/// On the lock table of tutorials: no order, no token, mutexes only.
mod distributed_lock {
    fencelock_conformance::suite!(
        "postgres distributed_lock",
        || super::fixtures::postgres("layout=distributed_lock"),
        only = mutexes,
        laws = untimed
    );
}

/// By the keys of others in the server's memory: no order, no token, mutexes only, and the end of a connection ends the locks.
mod advisory {
    fencelock_conformance::suite!(
        "postgres advisory",
        || super::fixtures::postgres("layout=advisory&key=.net"),
        only = mutexes,
        laws = untimed
    );
}

/// On ShedLock's table, whose rows stay.
mod shedlock {
    fencelock_conformance::suite!(
        "postgres shedlock",
        || super::fixtures::postgres("layout=shedlock"),
        only = mutexes,
        laws = untimed
    );
}
