//! Clients of Redis on the same keys: which waits for which there, and how long.

pub(crate) mod cells;
mod clients;
mod play;

pub(crate) use play::{Stage, TTL};
