//! The benchmark of Redis runs from end to end, so that it does not rot.

use std::process::Command;

/// All families are those of ZooKeeper, but for that of several masters.
const ORDER: [&str; 6] = ["redis", "--quick", "--only", "cycle", "--only", "redlock"];

#[test]
fn the_benchmarks_of_the_redis_store_run() {
    let run = Command::new(env!("CARGO_BIN_EXE_fencelock-bench")).args(ORDER).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let section = String::from_utf8(run.stdout).unwrap();
    for row in [
        "3 such masters for `redlock:`",
        "| floor of `layout=plain`: the bare commands |",
        "| floor of `layout=redisson`: the bare scripts |",
        "| fencelock, `Io::CurrentRuntime`, `layout=redisson` |",
        "| cycle, three masters, p50 (p99) | loopback, µs |",
        "`layout=plain` ÷ floor of `layout=plain`: the bare commands: ",
    ] {
        assert!(section.contains(row), "{row} is missing in\n{section}");
    }
    // Of a window without a single cycle, on a busy machine, there is no ratio.
    assert!(!section.contains("NaN") && !section.contains(" inf |"), "{section}");
}
