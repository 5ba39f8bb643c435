//! The scripts on a real server.
//!
//! `tests/redis/main.rs` lists bugs of Redisson's locks, and the tests here that would find them.

mod bed;
mod costs;
mod crowds;
mod deaths;
#[cfg(all(test, feature = "deep"))]
mod deep;
mod differential;
mod edges;
mod losses;
mod numbers;
mod sessions;
