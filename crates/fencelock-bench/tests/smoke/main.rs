//! The benchmarks run from end to end, so that they do not rot: what they print is there, what they leave is nothing.

mod mysql;
mod postgres;
mod redis;
mod zookeeper;

use std::path::Path;
use std::process::Command;

fn quick(store: &str) -> String {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{store}-{}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_fencelock-bench"))
        .args([store, "--quick", "--without-filelock", "--directory"])
        .arg(&parent)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(parent.read_dir().unwrap().count(), 0, "the scratch directory is still there");
    std::fs::remove_dir(&parent).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_benchmarks_of_the_file_store_run_and_clean_up() {
    let section = quick("file");
    for row in
        ["floor: the bare system calls", "`flock` of an open file", "| 4 processes × 8 |", "| 100 of 4 processes, µs |"]
    {
        assert!(section.contains(row), "{row} is missing in\n{section}");
    }
    assert!(section.contains("cycle p50 ÷ bare system calls") && !section.contains("NaN"), "{section}");
}

#[test]
fn the_benchmarks_of_the_defaults_run_and_clean_up() {
    let section = quick("defaults");
    for row in [
        "`memory:`: cycle, µs ",
        "`file:`: cycle, µs ÷ the bare system calls: ",
        "÷ the bare scripts",
        "`zk:`, loopback: cycle, µs ÷ the bare requests, with a list: ",
        "`zk:`, loopback: hand-over between two clients, µs | ",
        "`zk:`, 2 ms each way: cycle, µs ÷ the bare requests, with a list: ",
        "`zk:`, loopback: 64 tasks on 64 names, µs each | ",
        "`postgres:`, loopback: cycle, µs ÷ the bare statements: ",
    ] {
        assert!(section.contains(row), "{row} is missing in\n{section}");
    }
    assert!(!section.contains("NaN"), "{section}");
}

#[test]
fn the_benchmarks_of_the_memory_store_run_and_clean_up() {
    let section = quick("memory");
    assert!(section.contains("cycle p50, µs, `Io::CurrentRuntime`: "), "{section}");
}
