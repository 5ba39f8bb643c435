//! The benchmark of ZooKeeper runs from end to end, so that it does not rot.

use std::process::Command;

#[test]
fn the_benchmarks_of_the_zookeeper_store_run() {
    let run = Command::new(env!("CARGO_BIN_EXE_fencelock-bench")).args(["zookeeper", "--quick"]).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let section = String::from_utf8(run.stdout).unwrap();
    for row in [
        "| floor: the bare requests, without a list |",
        "| crate `zookeeper-client` |",
        "| hand-over, p50 | loopback: 2, µs |",
        "- waiters woken per hand-over, each in a session of its own: ",
        "- others told of a release, off the way of the hand-over, each in a session of its own: ",
    ] {
        assert!(section.contains(row), "{row} is missing in\n{section}");
    }
    // Of a window without a single cycle, on a busy machine, there is no ratio.
    assert!(!section.contains("NaN") && !section.contains(" inf |"), "{section}");
}
