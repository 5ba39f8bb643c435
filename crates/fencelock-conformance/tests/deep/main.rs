//! Tests that judge real time, load a server or kill processes: `cargo xtask deep`.

#[path = "../fixtures/mod.rs"]
mod fixtures;

/// The laws of time on every store, and all laws on further layouts.
mod laws {
    mod etcd;
    mod file;
    mod mysql;
    mod postgres;
    mod redis;
    mod redlock;
    mod zookeeper;
}
mod etcd;
mod faults;
#[path = "../harness/history_planted.rs"]
mod history_planted;
mod judge;
mod processes_file;
mod scenes_file;
mod simulation;

/// The deep tier allows no slack beyond the declared capability.
const SLACK: std::time::Duration = std::time::Duration::ZERO;

use judge::judge_again;
