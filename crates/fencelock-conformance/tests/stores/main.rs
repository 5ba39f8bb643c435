//! The laws, tried on every store.

mod file;
mod memory;
mod network;
mod postgres;
mod redis;
mod redlock;
mod zookeeper;
