//! Real processes that take locks, and are killed and stopped while they do.
//!
//! A [`Drill`] starts workers, lets them take locks through fencelock's public interface and write to a fenced
//! [`Resource`], and hurts them as its [`Strategy`] says, on a schedule that a seed decides: the workers themselves, and
//! at a [`Site`] also the servers and the network. Then the drill heals everything: stopped workers continue, killed ones
//! are replaced. The locks must be granted again; the workers finish; the store must be empty; and the judge of
//! [`history`] decides over all logs.
//!
//! A seed repeats the schedule. A seed repeats no run exactly, since processes run as the kernel lets them.
//!
//! The crate promises no stable interface.

mod drill;
mod fleet;
pub mod history;
pub mod ledger;
mod process;
mod resource;
mod site;
mod strategy;
mod uses;
mod view;
mod worker;

pub use drill::{Drill, Fault, Verdict};
pub use process::Process;
pub use resource::Resource;
pub use site::{Outage, Site, Unbreakable};
pub use strategy::{Strategy, Toll};
pub use uses::Uses;
pub use worker::worker_main;
