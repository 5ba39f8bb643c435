//! The routes of clients to the servers: a proxy for each client and server.

use std::io;
use std::net::SocketAddr;

use fencelock_testbed::Proxy;

/// For each client its own proxies, one before each server.
#[derive(Debug)]
pub struct Ways {
    servers: Vec<SocketAddr>,
    clients: Vec<Vec<Proxy>>,
}

impl Ways {
    /// Routes for `clients` clients to each of `servers`.
    pub fn start(clients: usize, servers: &[SocketAddr]) -> io::Result<Self> {
        let of_client = |_| servers.iter().map(|server| Proxy::start(*server)).collect();
        Ok(Self { servers: servers.to_vec(), clients: (0..clients).map(of_client).collect::<io::Result<_>>()? })
    }

    /// The proxies of one client, by server. A client without a number of its own shares the last one's.
    #[must_use]
    pub fn of(&self, client: usize) -> &[Proxy] {
        self.clients.get(client).or(self.clients.last()).map_or(&[], Vec::as_slice)
    }

    /// The addresses of the servers for this client: its proxies, or the servers themselves without proxies.
    #[must_use]
    pub fn addresses(&self, client: usize) -> Vec<SocketAddr> {
        match self.of(client) {
            [] => self.servers.clone(),
            proxies => proxies.iter().map(Proxy::address).collect(),
        }
    }

    /// All clients' proxies before this server.
    pub fn before(&self, server: usize) -> impl Iterator<Item = &Proxy> {
        self.clients.iter().map(move |proxies| &proxies[server])
    }

    /// All proxies.
    pub fn all(&self) -> impl Iterator<Item = &Proxy> {
        self.clients.iter().flatten()
    }

    /// Lets everything through again.
    pub fn heal(&self) {
        self.all().for_each(Proxy::heal);
    }
}
