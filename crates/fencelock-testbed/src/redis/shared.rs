//! Redis, as a kind of server.

use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;

use super::hands::{Hands, Reply};
use super::server::Server;
use super::settings::Settings;
use crate::packages::REDIS;
use crate::server::{Kind, Shared};

/// Redis.
pub static KIND: Kind = Kind {
    scheme: "redis",
    other_schemes: &["rediss", "redis+unix"],
    variable: "FENCELOCK_TEST_REDIS",
    package: REDIS,
    options: "",
    start: || Ok(Box::new(Server::start(Settings::default())?)),
    namespace: database,
    shared: OnceLock::new(),
};

/// The last database that a test receives. The first one has the counter, and the last of the 4,096 is for looks by hand.
const DATABASES: i64 = 4095;

/// The server that all tests share: [`Kind::shared`].
pub fn shared() -> &'static Shared {
    KIND.shared()
}

/// A database that no other test uses, as in `/7`.
pub(super) fn database(server: SocketAddr) -> io::Result<String> {
    match Hands::connect(server)?.ask(&["INCR", "fencelock-testbed"])? {
        Reply::Int(drawn) if drawn < DATABASES => Ok(format!("/{drawn}")),
        other => Err(io::Error::other(format!("there are no more databases: {other:?}"))),
    }
}
