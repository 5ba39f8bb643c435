//! What becomes of locks while servers, networks and workers fail, on each store.

#[path = "../common/mod.rs"]
mod common;
mod fenced;
mod postgres_drills;
mod postgres_scenes;
mod redis_drills;
mod redis_experiments;
mod redis_scenes;
mod writers;
mod zookeeper_drills;
mod zookeeper_edges;
mod zookeeper_limits;
mod zookeeper_scenes;
