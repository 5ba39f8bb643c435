//! The benchmarks run from end to end: each prints its rows, and leaves no files.

use std::path::Path;
use std::process::Command;

/// Runs a quick benchmark by these words, and looks for these texts.
fn quick(words: &str, rows: &[&str]) {
    let run = Command::new(env!("CARGO_BIN_EXE_fencelock-bench")).args(words.split(' ')).arg("--quick").output();
    let run = run.unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let section = String::from_utf8(run.stdout).unwrap();
    for row in rows {
        assert!(section.contains(row), "{row} is missing in\n{section}");
    }
    // A window without a single cycle, on a busy machine, gives no ratio.
    assert!(!section.contains("NaN") && !section.contains(" inf |"), "{section}");
}

fn here(words: &str, rows: &[&str]) {
    let name = format!("{}-{}", words.replace(' ', "-"), std::process::id());
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    quick(&format!("{words} --without-filelock --directory {}", parent.display()), rows);
    assert_eq!(parent.read_dir().unwrap().count(), 0, "the scratch directory is still there");
    std::fs::remove_dir(&parent).unwrap();
}

#[test]
fn the_benchmarks_of_the_file_store_run_and_clean_up() {
    here(
        "file",
        &[
            "floor: the bare system calls",
            "`flock` of an open file",
            "| 4 processes × 8 on one name |",
            "| 100 of 4 processes, µs |",
            "- cycle, loopback: `Io::CurrentRuntime` ÷ floor: ",
        ],
    );
}

#[test]
fn the_benchmarks_of_the_memory_store_run_and_clean_up() {
    here("memory", &["- cycle, loopback: `Io::CurrentRuntime`: "]);
}

#[test]
fn the_benchmarks_of_the_defaults_run_and_clean_up() {
    here(
        "defaults",
        &[
            "| `memory:`: cycle, µs ",
            "- cycle, `file:`: I/O thread ÷ floor: ",
            "- cycle, `redis:`, loopback: I/O thread ÷ floor: ",
            "- cycle, `zk:`, loopback: I/O thread ÷ floor: the bare requests, with a list: ",
            "| `zk:`, loopback: hand-over, 100 waiters of 2 processes, µs | ",
            "- cycle, `zk:`, 2 ms each way: I/O thread ÷ floor: the bare requests, with a list: ",
            "| `zk:`, loopback: 64 tasks on 64 names, /s | ",
            "- cycle, `postgres:`, loopback: I/O thread ÷ floor: ",
        ],
    );
}

#[test]
fn the_benchmarks_of_the_textbooks_run() {
    quick("stores", &["| PostgreSQL | a database: 100/s, 50 ms | ", "| a directory | nothing | – | "]);
}

#[test]
fn the_benchmarks_of_the_zookeeper_store_run() {
    quick(
        "zookeeper",
        &[
            "| floor: the bare requests, without a list |",
            "| crate `zookeeper-client` |",
            "| hand-over, p50 | loopback: 2, µs |",
            "- waiters woken per hand-over, each in a session of its own, loopback: ",
            "- notifications of a release off the way of the hand-over, each in a session of its own, loopback: ",
        ],
    );
}

/// All other families are ZooKeeper's.
#[test]
fn the_benchmarks_of_the_redis_store_run() {
    quick(
        "redis --only cycle --only redlock",
        &[
            "3 such masters for `redlock:`",
            "| floor of `layout=plain`: the bare commands |",
            "| floor of `layout=redisson`: the bare scripts |",
            "| fencelock, `Io::CurrentRuntime`, `layout=redisson` |",
            "| cycle, three masters, p50 (p99) | loopback, µs |",
            "`layout=plain` ÷ floor of `layout=plain`: ",
        ],
    );
}

#[test]
fn the_benchmarks_of_the_postgres_store_run() {
    quick(
        "postgres --only cycle --only apart --only services --only aged",
        &[
            "one PostgreSQL ",
            "| floor: the bare statements |",
            "| a table with a unique key, by hand |",
            "| ShedLock's statements, by hand |",
            "| advisory locks, by hand |",
            "- cycle beside an open transaction: old ÷ fresh, loopback: ",
            "- server's processor in a cycle, loopback: I/O thread apart ÷ floor: ",
            "- 64 tasks on 64 names, 2 ms each way: I/O thread ÷ a table with a unique key: ",
            "- 8 processes × 8 names each, loopback: I/O thread ÷ a table with a unique key: ",
        ],
    );
}

#[test]
fn the_benchmarks_of_the_mysql_store_run() {
    quick(
        "mysql --only cycle --only apart --only services --only together --only aged",
        &[
            "one MariaDB ",
            "| floor: the bare statements |",
            "| a table with a unique key, by hand |",
            "| the same, each statement prepared anew |",
            "| ShedLock's statements, by hand |",
            "| named locks (`GET_LOCK`), by hand |",
            "- server's processor in a cycle, loopback: I/O thread apart ÷ floor: ",
            "- 8 processes × 8 names each, loopback: I/O thread ÷ a table with a unique key: ",
            "- deadlocks, 32 tasks on one name, loopback: I/O thread: ",
        ],
    );
}

#[test]
fn the_benchmarks_of_the_etcd_store_run() {
    let floor = "- cycle, 2 ms each way: `Io::CurrentRuntime` ÷ floor: ";
    let peer = "- 32 tasks on one name, loopback: I/O thread ÷ clientv3's `Mutex`: ";
    quick("etcd --peers --only cycle --only together", &["; etcd 3.", "; clientv3 v3.", floor, peer]);
}

#[test]
fn a_row_is_measured_with_a_few_contestants_on_one_network() {
    let words = "postgres --only processes --with own --with sql-floor --with table --on loopback --rounds 1";
    quick(words, &["| fencelock, I/O thread |", "- 4 processes × 8 on one name, loopback: I/O thread ÷ floor: "]);
}
