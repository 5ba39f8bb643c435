//! What becomes of locks while servers, networks and workers fail, on each store.

#[path = "../common/mod.rs"]
mod common;
mod redis_drills;
mod redis_experiments;
mod redis_scenes;
mod zookeeper_drills;
mod zookeeper_edges;
mod zookeeper_limits;
mod zookeeper_scenes;
