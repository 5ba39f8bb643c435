//! The store `memory:` under test, on its virtual clock; also the base of the mutants.

use std::sync::Arc;
use std::time::Duration;

use fencelock::Result;
use fencelock::memory::{DelayedRequest, MemoryStore, VirtualClock};
use fencelock::time::Clock;
use futures_core::future::BoxFuture;

use crate::fixture::{Delayed, Faults, Fixture, Process, Request, let_others_run};

/// An empty memory store on a virtual clock, with all its faults.
#[derive(Debug)]
pub struct MemoryFixture {
    store: MemoryStore,
    clock: VirtualClock,
}

impl Default for MemoryFixture {
    fn default() -> Self {
        let (store, clock) = MemoryStore::with_virtual_clock();
        Self { store, clock }
    }
}

impl Fixture for MemoryFixture {
    fn process(&self) -> BoxFuture<'_, Result<Process>> {
        let store = self.store.another_process();
        Box::pin(async { Ok(Process { store: store.clone().into(), faults: Arc::new(MemoryFaults(store)) }) })
    }

    /// Moves the clock from one sleeper to the next, so that each runs at its own time.
    fn pass(&self, duration: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let end = self.clock.now().after(duration);
            loop {
                let_others_run().await;
                let now = self.clock.now();
                let next = self.clock.next_sleeper().map_or(end, |at| at.clamp(now, end));
                if now == end {
                    return;
                }
                self.clock.advance(next.since(now));
            }
        })
    }

    fn leftovers(&self) -> BoxFuture<'_, Option<Vec<String>>> {
        Box::pin(async {
            let census = self.store.census();
            let left = [("session", census.sessions), ("name", census.names), ("place", census.places)];
            Some(left.iter().flat_map(|(what, count)| vec![(*what).to_owned(); *count]).collect())
        })
    }
}

struct MemoryFaults(MemoryStore);

impl Faults for MemoryFaults {
    fn crash(&self) {
        self.0.crash();
    }

    fn lose_next_reply(&self, of: Request) -> bool {
        self.0.lose_next_reply(of);
        true
    }

    fn delay_next(&self, of: Request) -> Option<Box<dyn Delayed>> {
        Some(Box::new(self.0.delay_next(of)))
    }
}

impl Delayed for DelayedRequest {
    fn release(self: Box<Self>) -> BoxFuture<'static, ()> {
        DelayedRequest::release(*self);
        Box::pin(async {})
    }
}
