//! Distributed locks: one API for every store, first come first served, fenced, and told before it is too late.
//!
//! Holding a guard means: nobody else was granted before [`Guard::remaining`] runs out. After a pause, check
//! [`Guard::check`]; pass [`Guard::token`] to whatever you write to.

mod engine;
mod error;
mod name;
pub mod queue;
pub mod store;
mod stores;
mod token;

pub use engine::clock::{Clock, Moment, SystemClock};
pub use error::{Error, ErrorKind, Outcome, Result};
pub use name::Name;
pub use queue::Claim;
pub use store::{Capability, Contender, Contention, Loss, Owner, Queue, StoreUrl};
pub use token::FencingToken;
