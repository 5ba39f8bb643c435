//! The store `postgres:` on real servers: transactions that hold a lock, set-up and rights, servers in trouble, limits.
//! Tests that kill servers or judge time are in `tests/deep/postgres`.
//!
//! Laws are in `fencelock-conformance`; drills are played by `failures::drills` of `fencelock-torture`.

mod advisory;
mod batch;
mod bell;
mod hold;
mod lab;
mod looks;
mod memory;
mod model;
mod notes;
#[path = "../patience/mod.rs"]
mod patience;
mod planted;
mod pooled;
#[path = "../refused/mod.rs"]
mod refused;
mod rights;
mod schema;
mod shedlock;
mod side;
mod sticky;
mod tables;
mod together;
mod trouble;
mod undone;
mod ways;
