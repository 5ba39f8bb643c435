//! A hundred workers contend for locks while servers, networks, clocks and workers fail: every fault of the table, on every topology that
//! can suffer it. `FENCELOCK_SEED=<number>` decides the schedules.
//!
//! Two workers may believe in their locks at once only where a loss of memory or a jump of the clock lies between their grants, and
//! resources refuse the older one.

use std::path::Path;

use fencelock_torture::table::{FAULTS, TOPOLOGIES};

use crate::common::{Directory, topology};

fn plays_every_fault_on(name: &str) {
    let bed = (topology(name).start)().unwrap();
    let seed = fencelock_conformance::seed();
    let worker = Path::new(env!("CARGO_BIN_EXE_fencelock-torture-worker"));
    for fault in FAULTS {
        let logs = Directory::new("drill");
        let again = format!("{name}, {}; again: FENCELOCK_SEED={seed}", fault.name());
        let played = fault.play(&bed, worker, logs.path(), seed).unwrap_or_else(|error| panic!("{error}\n{again}"));
        let Some(played) = played else { continue };
        println!("{name}: {}", played.verdict);
        assert!(played.verdict.is_clean(), "{}\n{again}", played.verdict);
        assert_eq!(played.shows_nothing(), None, "{}\n{again}", played.verdict);
    }
}

macro_rules! drills {
    ($($test:ident $topology:literal)*) => {
        const PLAYED: &[&str] = &[$($topology),*];

        $(
            #[test]
            fn $test() {
                plays_every_fault_on($topology);
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
