//! The requests of a crowd that gives up together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{beneath, in_world, secs, settle};
use fencelock::memory::{MemoryStore, Operation, VirtualClock};
use fencelock::store::{Entered, Entry, Opened, Opening, Outline, Page, Queue, RequestId, Session, Store};
use fencelock::time::Clock;
use fencelock::{Client, ErrorKind, Io, Name, Result};
use futures_util::future::{BoxFuture, join_all};

/// A store that counts the reads of queues.
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
    beneath!(store: capability clock open names);

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        self.whole_queues.fetch_add(1, Ordering::SeqCst);
        self.store.queue(name, page)
    }

    fn contention<'a>(&'a self, name: &'a Name, mine: &'a [RequestId]) -> BoxFuture<'a, Result<Outline>> {
        self.outlines.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics.load(Ordering::SeqCst), "this store panics");
        self.store.contention(name, mine)
    }
}

#[test]
fn two_thousand_that_give_up_together_look_a_few_times_and_each_gets_its_position() {
    const CROWD: usize = 2000;
    in_world(async |world, [holder]| {
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

/// A store each of whose requests to join keeps the thread for a while.
#[derive(Debug)]
struct Laborious {
    store: MemoryStore,
    clock: VirtualClock,
    entered: Arc<AtomicUsize>,
    /// The time that a read of a queue takes.
    look: Duration,
}

struct LaboriousSession(Arc<dyn Session>, VirtualClock, Arc<AtomicUsize>);

const LABOUR: Duration = Duration::from_millis(20);

impl Session for LaboriousSession {
    beneath!(0: over withdraw renew close);

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        Box::pin(async move {
            self.2.fetch_add(1, Ordering::SeqCst);
            self.1.advance(LABOUR);
            self.0.enter(entry).await
        })
    }
}

impl Store for Laborious {
    beneath!(store: capability clock queue names);

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(async move {
            let opened = self.store.open(opening).await?;
            let session = LaboriousSession(opened.session, self.clock.clone(), Arc::clone(&self.entered));
            Ok(Opened { session: Arc::new(session), ..opened })
        })
    }

    fn contention<'a>(&'a self, name: &'a Name, mine: &'a [RequestId]) -> BoxFuture<'a, Result<Outline>> {
        Box::pin(async move {
            self.clock.sleep_until(self.clock.now().after(self.look)).await;
            self.store.contention(name, mine).await
        })
    }
}

/// The members of a crowd join a held lock in turn, and reach its limit. A look at the queue takes `look`.
fn joins_until_its_limit(look: Duration) {
    const CROWD: usize = 200;
    in_world(async |world, [holder]| {
        let held = holder.client.mutex("a").unwrap().acquire().await.unwrap();
        let (store, entered) = (world.store.another_process(), Arc::default());
        let (clock, counted) = (world.clock.clone(), Arc::clone(&entered));
        let laborious = Laborious { store: store.clone(), clock, entered: counted, look };
        let client = Client::builder().io(Io::CurrentRuntime).connect_store(Arc::new(laborious)).await.unwrap();
        // All of them wait for the next session, and then join in turn.
        store.expire_sessions();
        settle().await;
        let opening = store.delay_next(Operation::Open);
        let end = world.clock.now().after(secs(1));
        let crowd = (0..CROWD).map(|_| {
            let mutex = client.mutex("a").unwrap();
            tokio::spawn(async move { mutex.acquire_within(secs(1)).await })
        });
        let crowd: Vec<_> = crowd.collect();
        settle().await;
        assert!(opening.release(), "they wait for a session");
        settle().await;
        let joined = entered.load(Ordering::SeqCst);
        let in_time = (secs(1) + LATEST).div_duration_f32(LABOUR) as usize;
        assert!((1..=in_time + 1).contains(&joined), "{joined} of {CROWD} joined, each for {LABOUR:?}");
        assert!(world.clock.now() <= end.after(LATEST + LABOUR));
        world.advance(LATEST).await;
        for (number, refused) in crowd.into_iter().enumerate() {
            assert!(refused.is_finished(), "a wait overruns its limit");
            let refused = refused.await.unwrap().unwrap_err();
            if number >= joined || look > LATEST {
                assert_eq!(refused.kind(), ErrorKind::TimedOut, "{number}: {refused}");
                assert_eq!(refused.contention().unwrap().holder.is_some(), look < LATEST, "{number}: {refused}");
            }
        }
        held.release().await.unwrap();
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_crowd_that_is_still_joining_at_its_limit_stops_joining() {
    joins_until_its_limit(Duration::ZERO);
}

#[test]
fn a_look_that_is_late_is_no_outage_while_others_of_the_same_session_are_answered() {
    joins_until_its_limit(LATEST * 3);
}

#[test]
fn a_look_that_hangs_or_panics_blinds_later_looks_for_a_second_at_most() {
    in_world(async |world, [holder]| {
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
fn a_try_waits_a_moment_at_most_for_the_name_of_the_holder() {
    in_world(async |world, [holder]| {
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

/// The longest time that a look may add to a wait.
const LATEST: Duration = Duration::from_millis(100);
