//! What a crowd that gives up together asks of its store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{World, on_one_thread, secs};
use fencelock::capability::Capability;
use fencelock::memory::{MemoryStore, Operation};
use fencelock::store::{Opened, Opening, Outline, Page, Queue, RequestId, Store};
use fencelock::time::Clock;
use fencelock::{Client, ErrorKind, Io, Name, Result};
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::BoxStream;

/// A store that counts how often somebody looks at a queue.
#[derive(Debug)]
struct Counting {
    store: MemoryStore,
    outlines: AtomicUsize,
    whole_queues: AtomicUsize,
    panics: AtomicBool,
}

impl Counting {
    fn new(store: MemoryStore) -> Arc<Self> {
        Arc::new(Self {
            store,
            outlines: AtomicUsize::new(0),
            whole_queues: AtomicUsize::new(0),
            panics: AtomicBool::new(false),
        })
    }
}

impl Store for Counting {
    fn capability(&self) -> &Capability {
        self.store.capability()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.store.clock()
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        self.store.open(opening)
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        self.whole_queues.fetch_add(1, Ordering::SeqCst);
        self.store.queue(name, page)
    }

    fn contention<'a>(&'a self, name: &'a Name, mine: &'a [RequestId]) -> BoxFuture<'a, Result<Outline>> {
        self.outlines.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics.load(Ordering::SeqCst), "this store panics");
        self.store.contention(name, mine)
    }

    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>> {
        self.store.names(prefix)
    }
}

#[test]
fn two_thousand_that_give_up_together_look_a_few_times_and_each_is_told_its_position() {
    const CROWD: usize = 2000;
    on_one_thread(async {
        let world = World::new();
        let holder = world.process().await;
        let held = holder.client.mutex("a").unwrap().acquire().await.unwrap();
        let store = Counting::new(world.store.another_process());
        let client = Client::builder().io(Io::CurrentRuntime).connect_store(store.clone()).await.unwrap();
        let mutex = client.mutex("a").unwrap();
        let crowd = (0..CROWD).map(|_| {
            let mutex = mutex.clone();
            tokio::spawn(async move { mutex.acquire_within(secs(30)).await })
        });
        let crowd: Vec<_> = crowd.collect();
        world.advance(secs(30)).await;
        let mut positions = Vec::new();
        for refused in join_all(crowd).await {
            let refused = refused.unwrap().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::TimedOut);
            let contention = refused.contention().unwrap();
            assert_eq!(contention.holder.as_ref().unwrap().owner.as_ref(), Some(holder.client.owner()));
            positions.push(contention.position.unwrap());
        }
        positions.sort_unstable();
        assert_eq!(positions, (2..=CROWD + 1).collect::<Vec<_>>());
        let looks = store.outlines.load(Ordering::SeqCst);
        assert!((1..=3).contains(&looks), "{looks} looks for {CROWD}");
        assert_eq!(store.whole_queues.load(Ordering::SeqCst), 0);
        held.check().unwrap();
        held.release().await.unwrap();
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_look_that_hangs_or_panics_blinds_those_who_look_later_for_a_second_at_most() {
    on_one_thread(async {
        let world = World::new();
        let holder = world.process().await;
        let _held = holder.client.mutex("a").unwrap().acquire().await.unwrap();
        let process = world.store.another_process();
        let store = Counting::new(process.clone());
        let client = Client::builder().io(Io::CurrentRuntime).connect_store(store.clone()).await.unwrap();
        let waiting = |limit| {
            let mutex = client.mutex("a").unwrap();
            tokio::spawn(async move { mutex.acquire_within(limit).await.unwrap_err() })
        };
        for panics in [false, true] {
            let (first, second) = (waiting(secs(3)), waiting(secs(5)));
            world.advance(secs(1)).await;
            let _hangs = (!panics).then(|| process.delay_next(Operation::Contention));
            store.panics.store(panics, Ordering::SeqCst);
            world.advance(secs(2) + LATEST).await;
            first.await.unwrap();
            store.panics.store(false, Ordering::SeqCst);
            world.advance(secs(2)).await;
            let told = second.await.unwrap();
            let contention = told.contention().unwrap_or_else(|| panic!("{told}"));
            assert!(contention.holder.is_some(), "after a look that panics ({panics}): {told}");
        }
    });
}

#[test]
fn who_does_not_queue_waits_a_moment_at_most_to_be_told_who_holds() {
    on_one_thread(async {
        let world = World::new();
        let holder = world.process().await;
        let _held = holder.client.mutex("a").unwrap().acquire().await.unwrap();
        let process = world.process().await;
        for is_try in [true, false] {
            let hangs = process.store.delay_next(Operation::Contention);
            let mutex = process.client.mutex("a").unwrap();
            let trying = tokio::spawn(async move {
                let tried = if is_try { mutex.try_acquire().await } else { mutex.acquire_within(Duration::ZERO).await };
                tried.unwrap_err()
            });
            world.advance(LATEST).await;
            assert!(trying.is_finished(), "a try ({is_try}) waits for a name");
            let refused = trying.await.unwrap();
            assert_eq!(refused.kind(), if is_try { ErrorKind::Busy } else { ErrorKind::TimedOut });
            assert!(refused.contention().unwrap().holder.is_none(), "{refused}");
            hangs.release();
            world.advance(secs(2)).await;
        }
    });
}

/// What a look may add to a wait.
const LATEST: Duration = Duration::from_millis(100);
