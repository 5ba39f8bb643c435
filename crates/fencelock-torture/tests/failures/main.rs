//! The fate of locks while servers, networks and workers fail, on each store.

#[path = "../common/mod.rs"]
mod common;
mod drills;
mod fenced;
#[allow(dead_code, reason = "the rest judges planted histories")]
#[path = "../../../fencelock-conformance/tests/deep/judge.rs"]
mod judge;
mod redis_experiments;
mod scenes;
mod writers;
mod zookeeper_edges;
mod zookeeper_limits;
