//! Real servers on this machine, and ways to break them and the network before them. For tests and measurements only.
//!
//! All calls block: async tests make them on threads that may block. A server here listens on 127.0.0.1 alone, below
//! the ephemeral ports, and keeps its data in a scratch directory. The server is stopped by its process id when its
//! value is dropped, or by the kernel when this process dies.

mod clock;
mod daemon;
pub mod etcd;
pub mod install;
pub mod mysql;
mod network;
mod packages;
mod ports;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod redis;
mod runner;
mod scratch;
mod server;
pub mod versions;
mod wait;
pub mod zookeeper;

pub use clock::CLOCK_SHIM;
pub use daemon::{Daemon, Program};
pub use network::Network;
pub use packages::{
    CHROMIUM, ETCD, MARIADB, PGBOUNCER, POSTGRESQL, PROMETHEUS, PROXIES, Package, REDIS, SSH, SUDO, TERMINAL_PROGRAMS,
    ZOOKEEPER,
};
pub use ports::Port;
pub use proxy::{Proxy, Way};
pub use server::{KINDS, Kind, Server, Shared};
pub use wait::{PATIENCE, wait_for, wait_until, within};
