//! What a crowd that gives up together asks of its store.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fencelock::memory::MemoryStore;
use fencelock::store::{Opened, Outline, Page, Queue, RequestId, Store};
use fencelock::{Capability, Client, Clock, ErrorKind, Io, Name, Owner, Result};
use futures_util::future::{BoxFuture, join_all};
use support::{World, on_one_thread, secs};

/// A store that counts how often somebody looks at a queue.
#[derive(Debug)]
struct Counting {
    store: MemoryStore,
    outlines: AtomicUsize,
    whole_queues: AtomicUsize,
}

impl Store for Counting {
    fn capability(&self) -> &Capability {
        self.store.capability()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.store.clock()
    }

    fn open<'a>(&'a self, owner: &'a Owner, ttl: Duration, clock: Arc<dyn Clock>) -> BoxFuture<'a, Result<Opened>> {
        self.store.open(owner, ttl, clock)
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        self.whole_queues.fetch_add(1, Ordering::SeqCst);
        self.store.queue(name, page)
    }

    fn contention<'a>(&'a self, name: &'a Name, mine: &'a [RequestId]) -> BoxFuture<'a, Result<Outline>> {
        self.outlines.fetch_add(1, Ordering::SeqCst);
        self.store.contention(name, mine)
    }

    fn names<'a>(&'a self, prefix: &'a str, from: Option<&'a Name>, limit: usize) -> BoxFuture<'a, Result<Vec<Name>>> {
        self.store.names(prefix, from, limit)
    }
}

#[test]
fn two_thousand_that_give_up_together_look_a_few_times_and_each_is_told_its_position() {
    const CROWD: usize = 2000;
    on_one_thread(async {
        let world = World::new();
        let holder = world.process().await;
        let held = holder.client.mutex("a").unwrap().acquire().await.unwrap();
        let store = world.store.another_process();
        let store = Arc::new(Counting { store, outlines: AtomicUsize::new(0), whole_queues: AtomicUsize::new(0) });
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
