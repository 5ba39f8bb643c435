//! The store `mysql:` keeps the laws of time.

use crate::fixtures;

fencelock_conformance::suite!("mysql", || fixtures::mysql(""), laws = timed);

mod distributed_lock {
    fencelock_conformance::suite!(
        "mysql distributed_lock",
        || super::fixtures::mysql("layout=distributed_lock"),
        only = mutexes,
        laws = timed
    );
}

mod shedlock {
    fencelock_conformance::suite!(
        "mysql shedlock",
        || super::fixtures::mysql("layout=shedlock"),
        only = mutexes,
        laws = timed
    );
}

mod get_lock {
    fencelock_conformance::suite!(
        "mysql get_lock",
        || super::fixtures::mysql("layout=get_lock&key=.net&prefix={name}"),
        only = mutexes,
        laws = timed
    );
}
