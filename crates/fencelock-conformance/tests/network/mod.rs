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
}

impl Namespace {
    /// `ttl` is for the laws about expiry.
    pub(crate) fn of(kind: &'static Kind, options: &'static str, ttl: Duration) -> Self {
        Self { kind, name: kind.shared().namespace(), options, ttl }
    }
}

impl Fixture for Namespace {
    fn process(&self) -> BoxFuture<'_, Result<Process>> {
        let (faults, address) = Network::to(self.kind.shared().address());
        let url = self.kind.url(address, &self.name, self.options);
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

/// One process's way to a server.
struct Network(Arc<Proxy>);

impl Network {
    /// A way of its own to `server`, and the address to connect to.
    fn to(server: SocketAddr) -> (Arc<Self>, SocketAddr) {
        let proxy = Proxy::start(server).expect("a proxy");
        let address = proxy.address();
        (Arc::new(Self(Arc::new(proxy))), address)
    }
}

impl Faults for Network {
    fn crash(&self) {
        self.0.refuse();
        self.0.reset();
    }

    fn lose_next_reply(&self, _: Request) -> bool {
        self.0.cut_after(0, Way::Down);
        true
    }

    fn traffic(&self) -> Option<(u64, u64)> {
        Some(self.0.bytes())
    }

    fn delay_next(&self, _: Request) -> Option<Box<dyn Delayed>> {
        self.0.hold_existing(Way::Up);
        Some(Box::new(Self(Arc::clone(&self.0))))
    }
}

impl Delayed for Network {
    fn release(self: Box<Self>) -> BoxFuture<'static, ()> {
        let before = self.0.bytes().0;
        self.0.release();
        // A server that has closed the connection takes no byte of it any more.
        wait_until(Duration::from_secs(1), || self.0.bytes().0 > before);
        Box::pin(async {})
    }
}
