//! The servers and the proxy start, serve, break and come back on command.

mod mysql;
mod postgres;
mod proxy;
mod redis;
mod zookeeper;
