//! The store `redis:` on real servers: who refuses us and how, servers in trouble, memory that is lost, clocks that jump,
//! answers and messages that never come.

mod clocks;
mod cuts;
mod lab;
mod memory;
mod refusals;
mod trouble;
mod ways;
