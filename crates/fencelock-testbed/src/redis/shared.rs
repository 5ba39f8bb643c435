//! One server for all tests of a binary, or of a whole run.

use std::net::SocketAddr;
use std::sync::OnceLock;

use super::hands::{Hands, Reply};
use super::server::Server;
use super::settings::Settings;

/// The environment variable that names a server that is running already, as `host:port`.
pub const SHARED: &str = "FENCELOCK_TEST_REDIS";

/// The first database counts out those up to this one; the last one of 4,096 is for whoever looks around by hand.
const DATABASES: i64 = 4095;

/// A server that tests share. Nobody may break it, and each test has a database of its own.
#[derive(Debug)]
pub struct Shared {
    address: SocketAddr,
    /// `None` when somebody else started it.
    _started: Option<Server>,
}

/// The server that [`SHARED`] names, or one that lives as long as this process.
///
/// # Panics
/// When it cannot be started.
pub fn shared() -> &'static Shared {
    static SERVER: OnceLock<Shared> = OnceLock::new();
    SERVER.get_or_init(|| match std::env::var(SHARED) {
        Ok(address) => Shared { address: address.parse().expect("an address in the environment"), _started: None },
        Err(_) => {
            let started = Server::start(Settings::default()).expect("a server");
            Shared { address: started.address(), _started: Some(started) }
        }
    })
}

impl Shared {
    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of a database that no other test uses.
    ///
    /// # Panics
    /// When the server does not answer, or all databases are in use.
    #[must_use]
    pub fn database(&self) -> i64 {
        let drawn = Hands::connect(self.address).and_then(|mut hands| hands.ask(&["INCR", "fencelock-testbed"]));
        let Ok(Reply::Int(drawn)) = drawn else { panic!("the number of a database: {drawn:?}") };
        assert!(drawn < DATABASES, "there are no more databases");
        drawn
    }

    /// The URL of a store in a database of its own.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}/{}", self.address, self.database())
    }
}
