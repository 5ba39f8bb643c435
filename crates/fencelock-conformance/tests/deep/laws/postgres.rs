//! The store `postgres:` keeps the laws of time, and all laws under an administrator's limits.

use crate::fixtures;

/// Databases in which nothing may take long, and transactions are serializable.
fn limited() -> fixtures::Namespace {
    fixtures::Namespace::of(&fencelock_testbed::postgres::LIMITED, "", std::time::Duration::from_secs(4))
}

fencelock_conformance::suite!("postgres", || fixtures::postgres(""), laws = timed);

mod limited {
    fencelock_conformance::suite!("postgres with limits", super::limited, only = mutexes);
}

mod pooled {
    fencelock_conformance::suite!("postgres pooled", super::fixtures::pooled);
}

mod distributed_lock {
    fencelock_conformance::suite!(
        "postgres distributed_lock",
        || super::fixtures::postgres("layout=distributed_lock"),
        only = mutexes,
        laws = timed
    );
}

mod advisory {
    fencelock_conformance::suite!(
        "postgres advisory",
        || super::fixtures::postgres("layout=advisory&key=.net"),
        only = mutexes,
        laws = timed
    );
}

mod shedlock {
    fencelock_conformance::suite!(
        "postgres shedlock",
        || super::fixtures::postgres("layout=shedlock"),
        only = mutexes,
        laws = timed
    );
}
