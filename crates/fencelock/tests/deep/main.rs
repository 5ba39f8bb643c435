//! What breaks servers, judges real time or loads the machine: `cargo xtask deep`.

mod mysql;
mod policies;
mod postgres;
mod redis;
mod sticky;
mod thread_laws;
mod zookeeper;
