//! Locks under failures of real servers, networks and processes.
//!
//! A store takes part by one [`Bed`]: where its servers are, and how they break. [`table`] has a row for each set of servers and for each
//! fault; scenes of `fencelock-conformance` are played on the same servers.

mod bed;
pub mod fenced;
mod others;
mod postgres;
pub mod redis;
pub mod table;
mod ways;
pub mod writers;
mod zookeeper;

pub use bed::{Bed, Breakable, TTL};
pub use ways::Ways;
pub use zookeeper::ZooKeeper;
