//! Servers that fall silent and keep their connections, while locks are held.

#[path = "../common/mod.rs"]
mod common;
mod zookeeper_leader;
mod zookeeper_servers;
