//! A server that every law gets a part of, and a network between it and each process, with all its faults.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fencelock::store::open_url;
use fencelock::{Result, StoreUrl};
use fencelock_conformance::{Delayed, Faults, Fixture, Process, Request};
use fencelock_testbed::{Kind, Proxy, Way, wait_until};
use futures_core::future::BoxFuture;

/// A part of the shared server of one kind, reached by each process on a way of its own, with these options in the URL.
pub(crate) struct Namespace {
    kind: &'static Kind,
    name: String,
    options: &'static str,
    ttl: Duration,
    ends_with_connections: bool,
}

impl Namespace {
    /// `ttl` is for the laws about expiry.
    pub(crate) fn of(kind: &'static Kind, options: &'static str, ttl: Duration) -> Self {
        Self { kind, name: kind.shared().namespace(), options, ttl, ends_with_connections: false }
    }

    /// The same for a session that ends with its connection: what is lost or held back on one is the end of the other.
    pub(crate) fn ends_with_connections(self) -> Self {
        Self { ends_with_connections: true, ..self }
    }
}

impl Fixture for Namespace {
    fn process(&self) -> BoxFuture<'_, Result<Process>> {
        let (network, address) = Network::to(self.kind.shared().address());
        let faults: Arc<dyn Faults> = if self.ends_with_connections { Arc::new(Frail(network)) } else { network };
        let url = self.kind.url(address, &self.name, self.options);
        Box::pin(async move { Ok(Process { store: open_url(StoreUrl::parse(&url)?).await?, faults }) })
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }

    /// A silent connection is given up after a third of it, where a session outlives that.
    fn long_ttl(&self) -> Duration {
        Duration::from_secs(if self.ends_with_connections { 60 } else { 15 })
    }
}

/// Several servers, each reached by each process on a way of its own. What goes wrong does so on all ways at once.
pub(crate) struct Fleet {
    pub(crate) scheme: &'static str,
    pub(crate) servers: Vec<SocketAddr>,
    /// What stands in the URL behind the servers.
    pub(crate) rest: String,
    pub(crate) ttl: Duration,
}

impl Fixture for Fleet {
    fn process(&self) -> BoxFuture<'_, Result<Process>> {
        let proxies: Vec<_> =
            self.servers.iter().map(|server| Arc::new(Proxy::start(*server).expect("a proxy"))).collect();
        let addresses: Vec<_> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
        let url = format!("{}://{}{}", self.scheme, addresses.join(","), self.rest);
        let faults = Arc::new(Network(proxies));
        Box::pin(async move { Ok(Process { store: open_url(StoreUrl::parse(&url)?).await?, faults }) })
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }

    /// A silent connection is given up after a third of it.
    fn long_ttl(&self) -> Duration {
        Duration::from_secs(15)
    }
}

/// One process's ways to its servers.
struct Network(Vec<Arc<Proxy>>);

impl Network {
    /// A way of its own to `server`, and the address to connect to.
    fn to(server: SocketAddr) -> (Arc<Self>, SocketAddr) {
        let proxy = Proxy::start(server).expect("a proxy");
        let address = proxy.address();
        (Arc::new(Self(vec![Arc::new(proxy)])), address)
    }
}

impl Faults for Network {
    fn crash(&self) {
        self.0.iter().for_each(|proxy| proxy.refuse());
        self.0.iter().for_each(|proxy| proxy.reset());
    }

    fn lose_next_reply(&self, _: Request) -> bool {
        self.0.iter().for_each(|proxy| proxy.cut_after(0, Way::Down));
        true
    }

    fn traffic(&self) -> Option<(u64, u64)> {
        let bytes = self.0.iter().map(|proxy| proxy.bytes());
        Some(bytes.fold((0, 0), |(up, down), (more_up, more_down)| (up + more_up, down + more_down)))
    }

    fn delay_next(&self, _: Request) -> Option<Box<dyn Delayed>> {
        self.0.iter().for_each(|proxy| proxy.hold_existing(Way::Up));
        Some(Box::new(Self(self.0.clone())))
    }
}

/// A network to a session that ends with its connection: no answer is lost and no request held back without the end of both.
struct Frail(Arc<Network>);

impl Faults for Frail {
    fn crash(&self) {
        self.0.crash();
    }

    fn traffic(&self) -> Option<(u64, u64)> {
        self.0.traffic()
    }
}

impl Delayed for Network {
    fn release(self: Box<Self>) -> BoxFuture<'static, ()> {
        for proxy in self.0 {
            let before = proxy.bytes().0;
            proxy.release();
            // A server that has closed the connection takes no byte of it any more.
            wait_until(Duration::from_secs(1), || proxy.bytes().0 > before);
        }
        Box::pin(async {})
    }
}
