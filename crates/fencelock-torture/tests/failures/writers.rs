//! Writers whose grant is part of their transaction write nothing late under any fault. How the same goes with a look at the guard
//! instead is counted by `cargo xtask torture postgres --writers look`, and the same of `mysql`.

use std::path::Path;

use fencelock_torture::writers::{Check, Database, Drill};

fn hold(database: Database, levels: &[&str]) {
    let seed = fencelock_conformance::seed();
    let program = Path::new(env!("CARGO_BIN_EXE_fencelock-torture-writer"));
    for level in levels {
        let drill = Drill { program, database, check: Check::Hold, level, writers: 4, faults: 40, seed };
        let outcome = drill.run().unwrap();
        assert!(outcome.is_clean() && outcome.sections > 0, "{level}: {outcome} (again: FENCELOCK_SEED={seed})");
    }
}

#[test]
fn a_writer_that_holds_its_grant_in_postgresql_writes_nothing_late_and_nothing_is_lost() {
    hold(Database::Postgres, &["READ COMMITTED", "SERIALIZABLE"]);
}

#[test]
fn a_writer_that_holds_its_grant_in_mariadb_writes_nothing_late_and_nothing_is_lost() {
    hold(Database::Mysql, Database::Mysql.levels());
}
