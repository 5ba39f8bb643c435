//! The scripts on a real server.
//!
//! What went wrong in Redisson's locks, and which of these would notice it, is told in `tests/redis/main.rs`.

mod bed;
mod costs;
mod crowds;
mod deaths;
mod differential;
mod edges;
mod leases;
mod losses;
mod numbers;
mod sessions;
