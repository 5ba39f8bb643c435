//! The laws of a lock as code, for every store, and scenes of faults.
//!
//! A store's own conformance test is a [`Fixture`] and one line: [`suite!`].

mod counted;
mod fixture;
pub mod laws;
mod memory;
pub mod scenes;
mod suite;
mod world;

pub use fixture::{Delayed, Faults, Fixture, NoFaults, Process, Request, let_others_run};
pub use laws::{Law, Tier, laws};
pub use memory::MemoryFixture;
pub use suite::{EXCUSED, Excuse, judge, judge_by, read_excuses, run_by, seed, wholes};
pub use world::{Fault, Verdict, World};
