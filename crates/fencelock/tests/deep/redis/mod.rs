//! The store `redis:` while servers end, clocks jump, memory is lost, and short ttls run.

#[allow(dead_code, reason = "a helper of the gate's tests that no test here needs")]
#[path = "../../redis/lab.rs"]
mod lab;
#[path = "../../redis/link.rs"]
mod link;
#[allow(dead_code, reason = "a helper of the gate's tests that no test here needs")]
#[path = "../../redis/masters.rs"]
mod masters;
#[allow(dead_code, reason = "a helper of the gate's tests that no test here needs")]
#[path = "../../redis/theirs.rs"]
mod theirs;

mod away;
mod clocks;
mod cluster;
mod cuts;
mod janitor;
mod looking;
mod memory;
mod redisson;
mod redlock;
mod refusals;
mod sentinel;
mod soak;
mod trouble;
