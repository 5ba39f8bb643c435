//! The servers and the proxy start, serve, break and come back as they are told to.

mod mysql;
mod postgres;
mod proxy;
mod redis;
mod zookeeper;
