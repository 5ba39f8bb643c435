//! The store `postgres:` keeps the laws of time, and all laws under an administrator's limits.

use std::process::Command;
use std::sync::LazyLock;

use fencelock_testbed::postgres::POOLED;

use crate::fixtures;

/// The server behind the pooler, as the bell.
static BELL: LazyLock<String> = LazyLock::new(|| {
    let (pooler, mut psql) = (POOLED.shared().address(), Command::new("psql"));
    psql.args(["-XAtq", "-U", "postgres", "-h", "127.0.0.1", "-p", &pooler.port().to_string(), "postgres"]);
    let port = psql.args(["-c", "SELECT inet_server_port()"]).output().unwrap().stdout;
    format!("bell=127.0.0.1:{}", String::from_utf8(port).unwrap().trim())
});

fn belled() -> fixtures::Namespace {
    fixtures::Namespace::of(&POOLED, &BELL, std::time::Duration::from_secs(4))
}

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

mod belled {
    fencelock_conformance::suite!("postgres with a bell", super::belled);
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
