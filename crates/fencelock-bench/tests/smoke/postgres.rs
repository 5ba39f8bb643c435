//! The benchmark of PostgreSQL runs from end to end, so that it does not rot.

use std::process::Command;

/// All families are those of ZooKeeper, but for the one beside an open transaction.
const ORDER: [&str; 6] = ["postgres", "--quick", "--only", "cycle", "--only", "aged"];

#[test]
fn the_benchmarks_of_the_postgres_store_run() {
    let run = Command::new(env!("CARGO_BIN_EXE_fencelock-bench")).args(ORDER).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let section = String::from_utf8(run.stdout).unwrap();
    for row in [
        "one PostgreSQL ",
        "| floor: the bare statements |",
        "| a table with a unique key, by hand |",
        "| ShedLock's statements, by hand |",
        "| advisory locks, by hand |",
        "cycle beside an open transaction: old ÷ fresh: ",
    ] {
        assert!(section.contains(row), "{row} is missing in\n{section}");
    }
    assert!(!section.contains("NaN") && !section.contains(" inf |"), "{section}");
}
