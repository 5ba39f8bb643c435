//! Distributed locks: one API for every store, first come first served, fenced, and told before it is too late.
//!
//! Holding a guard means: nobody else was granted before [`Guard::remaining`] runs out. After a pause, check
//! [`Guard::check`]; pass [`Guard::token`] to whatever you write to.

pub mod blocking;
mod client;
mod engine;
mod error;
mod kit;
mod name;
mod primitives;
pub mod queue;
pub mod store;
mod stores;
mod token;

pub use client::{Client, ClientBuilder, Health};
pub use engine::clock::{Clock, Moment, SystemClock};
pub use engine::hold::GuardState;
pub use engine::io::Io;
pub use engine::observe::{Event, Observer};
pub use engine::options::{Retry, Timing};
pub use engine::pending::flush;
pub use error::{Error, ErrorKind, Outcome, Result};
pub use name::Name;
pub use primitives::{AnyGuard, Guard, GuardError, Mutex, PermitGuard, ReadGuard, RwLock, Semaphore, WriteGuard, kind};
pub use queue::Claim;
pub use store::{Beside, Break, Capability, Contender, Contention, Foreign, Loss, Owner, Page, Queue, StoreUrl, Waits};
#[cfg(feature = "file")]
pub use stores::file;
#[cfg(feature = "memory")]
pub use stores::memory;
pub use token::FencingToken;
