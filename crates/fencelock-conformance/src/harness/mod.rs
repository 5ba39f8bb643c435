//! Real processes that take locks, and are killed and stopped while they do.
//!
//! A [`Drill`] starts workers (processes of the worker binary of this crate), lets them take locks through fencelock's
//! public interface and write to a fenced [`Resource`], and hurts them as its [`Strategy`] says, on a schedule that a
//! seed decides: the workers themselves, and at a [`Site`] also the servers and the network. Then it heals everything:
//! stopped workers go on, killed ones are replaced. The locks must
//! go on being granted; the workers finish; nothing may be left in the store; and the checker of
//! [`history`](crate::history) decides over what everybody logged.
//!
//! A run is not repeated exactly by its seed, since processes run as the kernel lets them; but the schedule is.

mod drill;
mod fleet;
mod resource;
mod rng;
mod site;
mod strategy;
mod uses;
mod view;
mod worker;

pub use drill::{Drill, Verdict};
pub use resource::Resource;
pub(crate) use rng::Rng;
pub use site::{Outage, Site};
pub use strategy::{Strategy, Toll};
pub use uses::Uses;
pub use worker::worker_main;
