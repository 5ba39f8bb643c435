//! What a checker guards loses no write, however its writers are stopped. Without it, writers that look at their guard right before lose some.

use std::path::Path;

use fencelock_torture::fenced::{Kind, drill};

/// How often writers are stopped. One stop in some eight hits a holder between its look and its write.
const STOPS: usize = 40;

fn a_late_write_is_refused_and_without_the_checker_it_destroys_others(kind: Kind) {
    let seed = fencelock_conformance::seed();
    let writer = Path::new(env!("CARGO_BIN_EXE_fencelock-torture-writer"));
    let [checked, bare] = [true, false].map(|checked| drill(writer, kind, checked, STOPS, seed).unwrap());
    println!("{kind:?}: with the checker {checked}; without it {bare}");
    assert!(checked.writes > 0 && checked.lost == 0, "{kind:?}: {checked} (again: FENCELOCK_SEED={seed})");
    assert!(
        bare.lost > 0,
        "{kind:?}, without the checker: {bare}; the drill shows nothing (again: FENCELOCK_SEED={seed})"
    );
}

#[test]
fn a_file() {
    a_late_write_is_refused_and_without_the_checker_it_destroys_others(Kind::File);
}

#[test]
fn a_key_of_redis() {
    a_late_write_is_refused_and_without_the_checker_it_destroys_others(Kind::Redis);
}

#[test]
fn a_service_over_http() {
    a_late_write_is_refused_and_without_the_checker_it_destroys_others(Kind::Http);
}

#[test]
fn a_node_of_zookeeper() {
    a_late_write_is_refused_and_without_the_checker_it_destroys_others(Kind::ZooKeeper);
}
