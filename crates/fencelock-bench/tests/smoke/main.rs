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
    for row in ["floor: the bare system calls", "`flock` of an open file", "| 1 × 32 |", "| 4 × 8 |", "| 100 | 4 |"] {
        assert!(section.contains(row), "{row} is missing in\n{section}");
    }
    assert!(section.contains("cycle p50 ÷ bare system calls") && !section.contains("NaN"), "{section}");
}

#[test]
fn the_benchmarks_of_the_defaults_run_and_clean_up() {
    let section = quick("defaults");
    for row in [
        "`memory:`: cycle, p50 µs ",
        "`file:`: cycle, p50 µs ÷ the bare system calls | ≤ 1.5 |",
        "÷ the bare scripts",
        "`zk:`, loopback: cycle, p50 µs ÷ the bare requests, with a list | ≤ 1.1 |",
        "`zk:`, loopback: hand-over between two clients, 100 waiters, p50 µs | floor: the bare requests, without a list |",
        "`zk:`, 2 ms each way: cycle, p50 µs ÷ the bare requests, with a list | ≤ 1.05 |",
        "`zk:`, loopback: 64 tasks on 64 names, µs per cycle of them all | fencelock, nothing set |",
        "`postgres:`, loopback: cycle, p50 µs ÷ the bare statements | ≤ 1.3 |",
    ] {
        assert!(section.contains(row), "{row} is missing in\n{section}");
    }
    assert!(!section.contains("NaN"), "{section}");
}

#[test]
fn the_benchmarks_of_the_memory_store_run_and_clean_up() {
    let section = quick("memory");
    assert!(section.contains("cycle p50, µs, `Io::CurrentRuntime` | ≤ 5 |"), "{section}");
}
