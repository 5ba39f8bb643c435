//! A resource with a checker loses no write, however its writers are stopped. Without a checker, writers that look at
//! their guard right before the write lose some; the test prints how many.

use std::path::Path;

use fencelock_torture::fenced::{Kind, drill};

/// How often writers are stopped. Some of the stops hit a holder between its look and its write.
const STOPS: usize = 40;

fn no_write_is_lost_with_the_checker(kind: Kind) {
    let seed = fencelock_conformance::seed();
    let writer = Path::new(env!("CARGO_BIN_EXE_fencelock-torture-writer"));
    let [checked, bare] = [true, false].map(|checked| drill(writer, kind, checked, STOPS, seed).unwrap());
    println!("{kind:?}: with the checker {checked}; without it {bare}");
    assert!(checked.writes > 0 && checked.lost == 0, "{kind:?}: {checked} (again: FENCELOCK_SEED={seed})");
    // The number of lost writes is left to chance: the drill proves something if any write is lost.
    assert!(bare.writes > 0, "{kind:?}, without the checker: {bare}");
}

#[test]
fn a_file() {
    no_write_is_lost_with_the_checker(Kind::File);
}

#[test]
fn a_key_of_redis() {
    no_write_is_lost_with_the_checker(Kind::Redis);
}

#[test]
fn a_service_over_http() {
    no_write_is_lost_with_the_checker(Kind::Http);
}

#[test]
fn a_node_of_zookeeper() {
    no_write_is_lost_with_the_checker(Kind::ZooKeeper);
}
