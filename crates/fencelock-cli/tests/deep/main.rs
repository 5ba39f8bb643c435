//! The command, in tests that break servers, judge time, load the machine, or need programs that the gate does not install.

#[path = "../command/common/mod.rs"]
mod common;

mod addresses;
mod container;
mod guardian;
mod hostile;
mod loss;
mod outage;
mod servers;
mod ssh;
mod sudo;
mod terminal_programs;
mod verify;
mod zookeeper;
