//! The command from outside: one module for each verb, and for what is around it.

mod bench;
mod break_;
mod common;
mod container;
mod documents;
mod guardian;
mod hostile;
mod ls;
mod outage;
mod postgres;
mod redis;
mod run;
mod servers;
mod show;
mod ssh;
mod store;
mod stores;
mod sudo;
mod terminal;
mod terminal_programs;
mod zookeeper;
mod zookeeper_by_hand;
mod zookeeper_others;
