//! The scripts on a real server.
//!
//! What went wrong in Redisson's locks, and which of these would notice it, is told in `tests/redis/main.rs`.

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
