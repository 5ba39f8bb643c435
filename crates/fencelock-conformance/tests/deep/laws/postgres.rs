//! The store `postgres:` keeps the laws of time; all of them where a session ends with its connection.

use crate::fixtures;

fencelock_conformance::suite!("postgres", || fixtures::postgres(""), laws = timed);

mod bound {
    fencelock_conformance::suite!(
        "postgres liveness=connection",
        || super::fixtures::postgres("liveness=connection"),
        only = mutexes
    );
}
