//! Locks under failures of real servers, networks and processes.
//!
//! A store takes part by one [`Site`](fencelock_lab::Site): where its servers are and how they are broken.
//! The strategies of the harness and the scenes of `fencelock-conformance` then run over it, on servers that a [`Bed`] keeps.

mod bed;
pub mod fenced;
mod hosts;
pub mod postgres;
pub mod redis;
mod rounds;
mod takeovers;
mod ways;
pub mod writers;
pub mod zookeeper;

pub use bed::Bed;
pub use hosts::ZooKeeperHosts;
pub use rounds::{Rounds, Tally};
pub use takeovers::Takeovers;
pub use ways::Ways;
