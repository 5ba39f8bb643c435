//! The laws that hold on every store: of the queue, of each kind of lock, and of the engine between them.
#![allow(
    clippy::duplicate_mod,
    reason = "the laws of exclusive locks are tried with each kind of lock that can exclude everybody"
)]

mod api;
mod connect;
mod crowd;
mod doubt;
mod election;
#[cfg(feature = "jobs")]
mod jobs;
#[cfg(feature = "metrics")]
mod metered;
mod multi;
mod mutex;
mod notes;
mod outage;
#[cfg(feature = "file")]
mod promises;
mod queue;
mod queue_random;
mod router;
mod rwlock;
mod semaphore;
mod sticky;
mod stubborn;
mod support;
mod window;
