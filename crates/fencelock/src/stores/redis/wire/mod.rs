//! The wire to a Redis server, for all layouts: addresses, TLS, connections, the server's errors and its INFO. The module imports nothing
//! of a layout: layouts implement [`LinkUser`].

mod config;
mod connection;
mod driver;
mod fault;
mod handshake;
mod link;
mod restart;
mod script;
mod server;
mod user;

pub(super) use self::config::{Address, Config, Naming, bad, credentials, take_min_replicas};
pub(super) use self::connection::Connection;
#[cfg(test)]
pub(super) use self::fault::is_of_a_replica;
pub(super) use self::fault::{fault, is_denied, is_unknown_command};
pub(super) use self::handshake::{Pushed, shake_hands};
pub(super) use self::link::{Dialler, Link, begin, link};
pub(super) use self::restart::{Era, RestartWatch, is_same_era, without_info};
pub(super) use self::script::{Call, Script};
pub(crate) use self::server::Server;
pub(super) use self::user::{Chores, Greeting, LinkUser, Subscription};
