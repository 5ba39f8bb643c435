//! The ways on which clients reach the servers: a proxy for each client and server.

use std::io;
use std::net::SocketAddr;

use fencelock_testbed::{Proxy, Way};

/// For each client its own proxies, one before each server.
#[derive(Debug)]
pub struct Ways(Vec<Vec<Proxy>>);

impl Ways {
    /// Ways for `clients` clients to each of `servers`.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn start(clients: usize, servers: &[SocketAddr]) -> io::Result<Self> {
        let of_client = |_| servers.iter().map(|server| Proxy::start(*server)).collect();
        (0..clients).map(of_client).collect::<io::Result<_>>().map(Self)
    }

    /// The proxies of one client, by server. A client without a number of its own shares the last one's.
    #[must_use]
    pub fn of(&self, client: usize) -> &[Proxy] {
        &self.0[client.min(self.0.len() - 1)]
    }

    /// Where this client finds the servers: `127.0.0.1:21001,…`.
    #[must_use]
    pub fn connect_string(&self, client: usize) -> String {
        let addresses: Vec<String> = self.of(client).iter().map(|proxy| proxy.address().to_string()).collect();
        addresses.join(",")
    }

    /// Cuts one client off: nothing passes, on connections that are open and on those to come, and nothing is lost.
    pub fn cut(&self, client: usize) {
        self.of(client).iter().for_each(|proxy| proxy.hold(Way::Both));
    }

    /// Everybody's proxy before this server.
    pub fn before(&self, server: usize) -> impl Iterator<Item = &Proxy> {
        self.0.iter().map(move |proxies| &proxies[server])
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Proxy> {
        self.0.iter().flatten()
    }

    /// Lets everything through again.
    pub fn heal(&self) {
        self.all().for_each(Proxy::heal);
    }
}
