//! Tests that break servers, judge real time or load the machine: `cargo xtask deep`.

mod mysql;
#[path = "../patience/mod.rs"]
mod patience;
mod policies;
mod postgres;
mod redis;
mod sticky;
mod thread_laws;
mod zookeeper;
