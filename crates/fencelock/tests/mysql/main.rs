//! The store `mysql:` on real servers: transactions that hold a lock, rights, servers in trouble, bad input. Tests that kill servers or
//! load the machine are in `tests/deep/mysql`.
//!
//! Laws are in `fencelock-conformance`.

mod batch;
mod edges;
mod get_lock;
mod hold;
mod kills;
mod lab;
mod limits;
mod looks;
mod notes;
#[path = "../patience/mod.rs"]
mod patience;
#[path = "../refused/mod.rs"]
mod refused;
mod rights;
mod shedlock;
mod sticky;
mod tables;
mod together;
mod trouble;
