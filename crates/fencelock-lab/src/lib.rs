//! Real processes that take locks, and are killed and stopped while they do.
//!
//! A [`Drill`] starts workers, which take locks through fencelock's public interface and write to a fenced [`Resource`].
//! The drill stops and kills workers as its [`Strategy`] says; at a [`Site`] it also breaks servers and the network. Then
//! the drill heals everything: stopped workers continue, killed ones are replaced. The locks must be granted again, the
//! workers finish, and the store must be empty. The judge of [`history`] decides over all logs.
//!
//! A seed decides the schedule of faults. The run itself does not repeat: the kernel schedules the processes.
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
