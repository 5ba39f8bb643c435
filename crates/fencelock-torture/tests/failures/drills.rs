//! A hundred workers contend for locks while servers, networks, clocks and workers fail: on every topology some faults of the table that it
//! can suffer. `FENCELOCK_SEED=<number>` decides the faults and the schedules; `cargo xtask ledger` plays the whole table.
//!
//! Two workers may believe in their locks at once only where a loss of memory or a jump of the clock lies between their grants, and
//! resources refuse the older one.

use std::io::Write as _;
use std::path::Path;

use fencelock_torture::table::{FAULTS, TOPOLOGIES};

use crate::common::{Directory, topology};
use crate::judge::is_possible;

/// How many faults a run plays on each topology: all of them take a quarter of an hour on some.
const PLAYED_FAULTS: usize = 5;

fn plays_faults_on(name: &str) {
    let bed = (topology(name).start)().unwrap();
    let seed = fencelock_conformance::seed();
    let worker = Path::new(env!("CARGO_BIN_EXE_fencelock-torture-worker"));
    let mut faults: Vec<_> = FAULTS.iter().collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut faults);
    let mut played_faults = 0;
    for fault in faults {
        let logs = Directory::new("drill");
        let again = format!("{name}, {}; again: FENCELOCK_SEED={seed}", fault.name());
        let played = fault.play(&bed, worker, logs.path(), seed).unwrap_or_else(|error| panic!("{error}\n{again}"));
        let Some(played) = played else { continue };
        // The test runner shows captured output only when all topologies have ended: a run that is killed before shows these lines.
        std::io::stderr().write_all(format!("{name}: {}\n", played.verdict).as_bytes()).unwrap();
        assert!(played.verdict.is_clean(), "{}\n{again}", played.verdict);
        assert_eq!(played.shows_nothing(), None, "{}\n{again}", played.verdict);
        assert!(is_possible(logs.path(), played.verdict.laws), "the judges disagree: {}\n{again}", played.verdict);
        played_faults += 1;
        if played_faults == PLAYED_FAULTS {
            break;
        }
    }
}

macro_rules! drills {
    ($($test:ident $topology:literal)*) => {
        const PLAYED: &[&str] = &[$($topology),*];

        $(
            #[test]
            fn $test() {
                plays_faults_on($topology);
            }
        )*
    };
}

drills! {
    file "file"
    redis "redis"
    redis_forgetful "redis-forgetful"
    redis_sentinel "redis-sentinel"
    redis_cluster "redis-cluster"
    redlock "redlock"
    postgres "postgres"
    mysql "mysql"
    etcd "etcd"
    etcd_three "etcd-three"
    zookeeper "zookeeper"
    zookeeper_three "zookeeper-three"
    zookeeper_hosts "zookeeper-hosts"
}

#[test]
fn every_topology_of_the_table_is_played() {
    assert_eq!(TOPOLOGIES.iter().map(|topology| topology.name).collect::<Vec<_>>(), PLAYED);
}
