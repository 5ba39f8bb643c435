//! The store `postgres:` keeps every law that can be tried on it.

use crate::fixtures;

fencelock_conformance::suite!("postgres", || fixtures::postgres(""), laws = untimed);

/// On the lock table of tutorials: no order, no token, mutexes only.
mod distributed_lock {
    fencelock_conformance::suite!(
        "postgres distributed_lock",
        || super::fixtures::postgres("layout=distributed_lock"),
        only = mutexes,
        laws = untimed
    );
}
