//! The command, where servers are broken, time is judged, the machine is loaded, or programs are met that the gate does not install.

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
