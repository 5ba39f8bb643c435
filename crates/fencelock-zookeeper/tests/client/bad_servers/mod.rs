//! Absent servers, other services, and servers that break ZooKeeper's protocol.

mod answers;
mod connecting;
mod several;

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::common::fake::Fake;
use crate::common::soon;
use fencelock_testbed::Port;
use fencelock_zookeeper::{Client, Config, Error};

/// An address without a listener for as long as this process lasts.
pub(crate) fn closed_port() -> SocketAddr {
    static RESERVED: Mutex<Vec<Port>> = Mutex::new(Vec::new());
    let port = Port::reserve().unwrap();
    let address = port.address();
    RESERVED.lock().unwrap().push(port);
    address
}

pub(crate) async fn refused(config: Config) -> Error {
    let deadline = Duration::from_secs(3);
    let start = Instant::now();
    let error = soon(Client::connect(config.connect_deadline(deadline))).await.unwrap_err();
    assert!(start.elapsed() >= deadline, "it was tried for as long as it was to be");
    error
}

/// Servers that accept connections and never reply, like stopped ones.
pub(crate) async fn silent(count: usize) -> Vec<Fake> {
    let mut fakes = Vec::new();
    for _ in 0..count {
        fakes.push(Fake::new().await);
    }
    fakes
}

pub(crate) fn connect_string(servers: impl IntoIterator<Item = SocketAddr>) -> String {
    servers.into_iter().map(|address| address.to_string()).collect::<Vec<_>>().join(",")
}
