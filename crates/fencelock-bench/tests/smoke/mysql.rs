//! The benchmark of MariaDB runs from end to end, so that it does not rot.

use std::process::Command;

/// The other families are those of PostgreSQL.
const ORDER: [&str; 8] = ["mysql", "--quick", "--only", "cycle", "--only", "together", "--only", "aged"];

#[test]
fn the_benchmarks_of_the_mysql_store_run() {
    let run = Command::new(env!("CARGO_BIN_EXE_fencelock-bench")).args(ORDER).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let section = String::from_utf8(run.stdout).unwrap();
    for row in [
        "one MariaDB ",
        "| floor: the bare statements |",
        "| the table of tutorials, by hand |",
        "| the same, each statement prepared anew |",
        "| ShedLock's statements, by hand |",
        "| named locks (`GET_LOCK`), by hand |",
        "deadlocks, 32 waiters of one process, loopback: ",
    ] {
        assert!(section.contains(row), "{row} is missing in\n{section}");
    }
    assert!(!section.contains("NaN") && !section.contains(" inf |"), "{section}");
}
