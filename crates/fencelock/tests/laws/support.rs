//! Helpers of the law tests: a store in memory, clients on one thread, a clock that the test owns.

#![allow(dead_code, unused_imports, unused_macros, reason = "each test file uses its own part")]

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencelock::memory::{MemoryStore, VirtualClock};
use fencelock::observe::{Event, Observer};
use fencelock::time::Clock as _;
use fencelock::{Client, Io};

/// The answer of a store.
pub(crate) type Answer<'a, T> = futures_util::future::BoxFuture<'a, fencelock::Result<T>>;

/// Methods of a test's store or session that call the same method of the wrapped `self.$beneath`.
macro_rules! beneath {
    ($beneath:tt: $($method:ident)*) => {
        $($crate::support::beneath!(@$method $beneath);)*
    };
    (@capability $beneath:tt) => {
        fn capability(&self) -> &fencelock::store::Capability {
            self.$beneath.capability()
        }
    };
    (@clock $beneath:tt) => {
        fn clock(&self) -> Option<std::sync::Arc<dyn fencelock::time::Clock>> {
            self.$beneath.clock()
        }
    };
    (@open $beneath:tt) => {
        fn open(&self, opening: fencelock::store::Opening) -> $crate::support::Answer<'_, fencelock::store::Opened> {
            self.$beneath.open(opening)
        }
    };
    (@queue $beneath:tt) => {
        fn queue<'a>(
            &'a self,
            name: &'a fencelock::Name,
            page: fencelock::store::Page,
        ) -> $crate::support::Answer<'a, fencelock::store::Queue> {
            self.$beneath.queue(name, page)
        }
    };
    (@names $beneath:tt) => {
        fn names<'a>(
            &'a self,
            prefix: &'a str,
        ) -> futures_util::stream::BoxStream<'a, fencelock::Result<Vec<fencelock::Name>>> {
            self.$beneath.names(prefix)
        }
    };
    (@over $beneath:tt) => {
        fn over(&self) -> Option<fencelock::Loss> {
            self.$beneath.over()
        }
    };
    (@withdraw $beneath:tt) => {
        fn withdraw<'a>(
            &'a self,
            name: &'a fencelock::Name,
            id: fencelock::store::RequestId,
        ) -> $crate::support::Answer<'a, ()> {
            self.$beneath.withdraw(name, id)
        }
    };
    (@renew $beneath:tt) => {
        fn renew<'a>(
            &'a self,
            places: &'a dyn fencelock::store::PlaceList,
        ) -> $crate::support::Answer<'a, fencelock::store::Renewal> {
            self.$beneath.renew(places)
        }
    };
    (@close $beneath:tt) => {
        fn close(&self) -> $crate::support::Answer<'_, ()> {
            self.$beneath.close()
        }
    };
}
pub(crate) use beneath;

/// Runs `test` on a runtime of one thread.
///
/// A test that waits for ever fails after three minutes of real time, instead of ending with the whole run.
pub(crate) fn on_one_thread(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime
        .block_on(async { tokio::time::timeout(secs(180), test).await })
        .expect("the test waits for what never comes");
}

/// Runs `test` on a runtime of one thread, in a new world with as many processes as the test takes.
pub(crate) fn in_world<const N: usize>(test: impl AsyncFnOnce(World, [Process; N])) {
    inside(World::new(), test);
}

/// Runs `test` in `world`.
pub(crate) fn inside<const N: usize>(world: World, test: impl AsyncFnOnce(World, [Process; N])) {
    on_one_thread(async {
        let mut processes = Vec::new();
        for _ in 0..N {
            processes.push(world.process().await);
        }
        test(world, processes.try_into().ok().unwrap()).await;
    });
}

/// Lets tasks run until all of them wait. Here they wait for the virtual clock alone, so that takes a few turns.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Moves `clock` on in steps of a tenth of a second. After each, tasks run until none can proceed.
pub(crate) async fn pass(clock: &VirtualClock, duration: Duration) {
    let end = clock.now().after(duration);
    settle().await;
    while clock.now() < end {
        clock.advance(ms(100));
        settle().await;
    }
}

/// A store with a virtual clock, and its clients.
pub(crate) struct World {
    pub(crate) store: MemoryStore,
    pub(crate) clock: VirtualClock,
}

impl World {
    pub(crate) fn new() -> Self {
        let (store, clock) = MemoryStore::with_virtual_clock();
        Self { store, clock }
    }

    /// A process of its own, with the default times: ttl 10 s, renewed every 2.5 s, margin 1 s.
    pub(crate) async fn process(&self) -> Process {
        let store = self.store.another_process();
        let events = Events::default();
        let client = Client::builder()
            .io(Io::CurrentRuntime)
            .observer(Arc::new(events.clone()))
            .connect_store(store.clone())
            .await
            .unwrap();
        Process { store, client, events }
    }

    /// Moves the clock on, and stops at each moment at which a task wakes.
    pub(crate) async fn advance(&self, duration: Duration) {
        let end = self.clock.now().after(duration);
        settle().await;
        while self.clock.now() < end {
            let next = self.clock.next_sleeper().unwrap_or(end).min(end);
            let step = next.since(self.clock.now()).max(Duration::from_nanos(1));
            self.clock.advance(step);
            settle().await;
        }
    }

    /// Asserts that the store has sessions only, and no place.
    pub(crate) async fn assert_no_place_is_left(&self) {
        settle().await;
        assert_eq!(self.store.census().places, 0, "{:?}", self.store.census());
    }
}

pub(crate) struct Process {
    pub(crate) store: MemoryStore,
    pub(crate) client: Client,
    pub(crate) events: Events,
}

/// The events of an observer, as text.
#[derive(Clone, Default)]
pub(crate) struct Events(Arc<Mutex<Vec<String>>>);

impl Observer for Events {
    fn observe(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push(format!("{event:?}"));
    }
}

impl Events {
    /// How many events start with `start`.
    pub(crate) fn count(&self, start: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|event| event.starts_with(start)).count()
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
