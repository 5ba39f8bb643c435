//! The store `mysql:` keeps every law that can be tried on it.

use crate::fixtures;

fencelock_conformance::suite!("mysql", || fixtures::mysql(""), laws = untimed);

/// On the lock table of tutorials: no order, no token, mutexes only.
mod distributed_lock {
    fencelock_conformance::suite!(
        "mysql distributed_lock",
        || super::fixtures::mysql("layout=distributed_lock"),
        only = mutexes,
        laws = untimed
    );
}

/// On ShedLock's table, whose rows stay.
mod shedlock {
    fencelock_conformance::suite!(
        "mysql shedlock",
        || super::fixtures::mysql("layout=shedlock"),
        only = mutexes,
        laws = untimed
    );
}

/// By the names of others in the server's memory: mutexes only, no queue to look at, and the end of a connection ends the locks.
mod get_lock {
    fencelock_conformance::suite!(
        "mysql get_lock",
        || super::fixtures::mysql("layout=get_lock&key=.net&prefix={name}"),
        only = mutexes,
        laws = untimed
    );
}
