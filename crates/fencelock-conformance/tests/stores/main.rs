//! The laws that judge no time, tried on every store. `tests/deep/` has the other laws, and further layouts.

mod etcd;
mod file;
#[path = "../fixtures/mod.rs"]
mod fixtures;
mod memory;
mod mysql;
mod postgres;
mod redis;
mod redlock;
mod zookeeper;

/// The gate judges no time: a wake has to come.
const SLACK: std::time::Duration = fencelock_testbed::PATIENCE;
