//! Several real servers, each behind a network of its own.

use fencelock::{Client, ErrorKind};
use fencelock_testbed::Proxy;
use fencelock_testbed::redis::{Reply, Server, Settings};

use super::lab::{server, until};
pub(crate) use super::theirs::{refused, takes_ours};

/// Masters of the test's own, each behind a network of its own.
pub(crate) struct Masters {
    pub(crate) servers: Vec<Server>,
    pub(crate) proxies: Vec<Proxy>,
}

impl Masters {
    pub(crate) fn of(settings: &Settings, number: usize) -> Self {
        let servers: Vec<Server> = (0..number).map(|_| server(settings.clone())).collect();
        let proxies = servers.iter().map(|server| Proxy::start(server.address()).unwrap()).collect();
        Self { servers, proxies }
    }

    pub(crate) fn new(number: usize) -> Self {
        Self::of(&Settings::default(), number)
    }

    /// The URL of the masters, with `options`.
    pub(crate) fn url(&self, options: &str) -> String {
        let addresses: Vec<_> = self.proxies.iter().map(|proxy| proxy.address().to_string()).collect();
        format!("redlock://{}?{options}", addresses.join(","))
    }

    /// A client that lets masters vote that were started just now.
    pub(crate) async fn client(&self, ttl_ms: u64) -> Client {
        super::lab::client(&self.url("rejoin_ms=0"), ttl_ms).await
    }

    /// The number of masters that have `key`.
    pub(crate) fn having(&self, key: &str) -> usize {
        let has = |server: &&Server| matches!(server.ask(&["EXISTS", key]), Ok(Reply::Int(1)));
        self.servers.iter().filter(has).count()
    }

    /// Takes the lock as another client does at those masters.
    pub(crate) fn taken_by_another(&self, key: &str, at: impl IntoIterator<Item = usize>) {
        for index in at {
            let taken = self.servers[index].ask(&["SET", key, "theirs", "NX", "PX", "600000"]).unwrap();
            assert_eq!(taken, Reply::Status("OK".to_owned()), "{key} is not free at master {index}");
        }
    }

    pub(crate) fn freed_by_another(&self, key: &str) {
        for server in &self.servers {
            if server.ask(&["GET", key]).unwrap().to_string() == "theirs" {
                server.ask(&["DEL", key]).unwrap();
            }
        }
    }

    pub(crate) async fn until_free(&self, key: &str) {
        until(&format!("{key} is at no master"), async || self.having(key) == 0).await;
    }
}

/// A try that is refused because the lock is held.
pub(crate) async fn busy(client: &Client, name: &str) -> fencelock::Error {
    let error = refused(client, name).await;
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    error
}
