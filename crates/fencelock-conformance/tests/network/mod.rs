//! A network between one process and a server, with all its faults.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fencelock_conformance::{Delayed, Faults, Request};
use fencelock_testbed::{Proxy, Way, wait_until};
use futures_core::future::BoxFuture;

/// One process's way to a server.
pub(crate) struct Network(Arc<Proxy>);

impl Network {
    /// A way of its own to `server`, and the address to connect to.
    pub(crate) fn to(server: SocketAddr) -> (Arc<Self>, SocketAddr) {
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
