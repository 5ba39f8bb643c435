//! Writers whose grant is part of their transaction write nothing late, whatever befalls them. How the same goes with a look at the guard
//! instead is counted by `cargo xtask torture postgres --writers look`.

use std::path::Path;

use fencelock_torture::postgres::writers::{Check, drill};

#[test]
fn a_writer_that_holds_its_grant_writes_nothing_late_and_nothing_is_lost() {
    let seed = fencelock_conformance::seed();
    for level in ["READ COMMITTED", "SERIALIZABLE"] {
        let writer = Path::new(env!("CARGO_BIN_EXE_fencelock-torture-writer"));
        let outcome = drill(writer, Check::Hold, level, 4, 40, seed).unwrap();
        assert!(outcome.is_clean() && outcome.sections > 0, "{level}: {outcome} (again: FENCELOCK_SEED={seed})");
    }
}
