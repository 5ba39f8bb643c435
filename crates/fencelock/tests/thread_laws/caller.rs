//! The work of the caller's own thread: an uncontended cycle, and nothing that has to wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::ThreadId;

use fencelock::memory::{MemoryStore, VirtualClock};
use fencelock::observe::{Event, Observer};
use fencelock::store::{Entered, Entry, Opened, Opening, Session, Store};
use fencelock::{Client, ErrorKind, GuardState, Result, blocking};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::support::{Events, World, beneath, ms, on_one_thread, secs};
use crate::{shared, until_queued};

/// The threads on which the observer saw grants and releases.
#[derive(Debug, Default)]
struct Tellers(Mutex<Vec<ThreadId>>);

impl Observer for Tellers {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Granted { .. } | Event::Released { .. } = event {
            self.0.lock().unwrap().push(std::thread::current().id());
        }
    }
}

#[test]
fn an_uncontended_cycle_is_done_at_the_first_poll_and_observed_on_the_callers_thread() {
    let (store, tellers) = (MemoryStore::new(), Arc::new(Tellers::default()));
    let options = Client::builder().observer(Arc::clone(&tellers) as Arc<dyn Observer>);
    let client = futures_executor::block_on(options.connect_store(shared(&store))).unwrap();
    let (mutex, both, permits) =
        (client.mutex("a").unwrap(), client.rwlock("b").unwrap(), client.semaphore("c", 2).unwrap());
    for _ in 0..100 {
        let held = [
            mutex.acquire().now_or_never().expect("a mutex is granted at once").unwrap().into_any(),
            both.write().now_or_never().expect("a writer is granted at once").unwrap().into_any(),
            permits.acquire().now_or_never().expect("a permit is granted at once").unwrap().into_any(),
        ];
        for guard in held {
            guard.release().now_or_never().expect("it is given back at once").unwrap();
        }
        assert_eq!(store.census().places, 0);
        drop(mutex.try_acquire().now_or_never().unwrap().unwrap());
        assert_eq!(store.census().places, 0, "a dropped guard is given back at once");
    }
    let told = tellers.0.lock().unwrap();
    assert_eq!(told.len(), 100 * 8);
    assert!(told.iter().all(|teller| *teller == std::thread::current().id()));
}

#[test]
fn a_wait_that_its_caller_began_continues_without_it_and_is_taken_back_with_it() {
    let (store, events) = (MemoryStore::new(), Events::default());
    let connect = |options: fencelock::ClientBuilder| futures_executor::block_on(options.connect_store(shared(&store)));
    let holder = connect(Client::builder()).unwrap();
    let other = connect(Client::builder().observer(Arc::new(events.clone()))).unwrap();
    let held = holder.mutex("a").unwrap().acquire().now_or_never().unwrap().unwrap();
    let lock = other.mutex("a").unwrap();
    let mut waits = Box::pin(lock.acquire());
    assert!(waits.as_mut().now_or_never().is_none());
    // The caller's own thread asked, so the place is there before another thread ran.
    assert_eq!(store.census().places, 2);
    drop(waits);
    until_queued(&store, 1);
    let mut waits = Box::pin(lock.acquire());
    assert!(waits.as_mut().now_or_never().is_none());
    held.release().now_or_never().unwrap().unwrap();
    let guard = futures_executor::block_on(waits).unwrap();
    guard.check().unwrap();
    assert_eq!(events.count("Granted"), 1, "{:?}", events.all());
}

#[test]
fn a_try_whose_caller_stands_still_delays_no_other() {
    let store = MemoryStore::new();
    let connect = || futures_executor::block_on(Client::builder().connect_store(shared(&store))).unwrap();
    let (holder, other) = (connect(), connect());
    let held = holder.mutex("a").unwrap().acquire().now_or_never().unwrap().unwrap();
    let lock = other.mutex("a").unwrap();
    let mut tries = Box::pin(lock.try_acquire()).fuse();
    let first = (&mut tries).now_or_never();
    held.release().now_or_never().unwrap().unwrap();
    // A refused try that is not polled keeps no other contender from the lock.
    drop(holder.mutex("a").unwrap().acquire().now_or_never().unwrap().unwrap());
    let tried = first.unwrap_or_else(|| futures_executor::block_on(tries));
    assert_eq!(tried.unwrap_err().kind(), ErrorKind::Busy);
}

#[test]
fn a_task_that_locks_again_and_again_lets_others_of_its_thread_go_on() {
    on_one_thread(async {
        let client = Client::connect("memory:").await.unwrap();
        let (lock, went_on) = (client.mutex("a").unwrap(), Arc::new(AtomicBool::new(false)));
        let other = Arc::clone(&went_on);
        tokio::spawn(async move { other.store(true, Ordering::SeqCst) });
        for _ in 0..10_000 {
            lock.acquire().await.unwrap().release().await.unwrap();
        }
        assert!(went_on.load(Ordering::SeqCst));
    });
}

#[test]
fn blocking_calls_inside_a_task_go_on_however_many_they_are() {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        on_one_thread(async move {
            let client = blocking::Client::connect("memory:").unwrap();
            let lock = client.mutex("a").unwrap();
            for _ in 0..1000 {
                lock.acquire().unwrap().release().unwrap();
            }
            // The I/O thread makes these requests.
            for _ in 0..1000 {
                client.queue("a").unwrap();
            }
            done.send(()).unwrap();
        });
    });
    is_done.recv_timeout(secs(180)).expect("a call waits for the task that it is in");
}

/// A memory store on which time passes between a grant and its answer, once.
#[derive(Debug)]
struct Slow {
    store: MemoryStore,
    clock: VirtualClock,
    is_slow: Arc<AtomicBool>,
}

struct SlowSession(Arc<dyn Session>, VirtualClock, Arc<AtomicBool>);

impl Session for SlowSession {
    beneath!(0: over withdraw renew close);

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        Box::pin(async move {
            let entered = self.0.enter(entry).await;
            if self.2.swap(false, Ordering::SeqCst) {
                // Past the margin, and not past the ttl: the store still has the place.
                self.1.advance(ms(9500));
            }
            entered
        })
    }

    fn answers_inline(&self) -> bool {
        self.0.answers_inline()
    }
}

impl Store for Slow {
    beneath!(store: capability clock queue names);

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        Box::pin(async move {
            let opened = self.store.open(opening).await?;
            let session = SlowSession(opened.session, self.clock.clone(), Arc::clone(&self.is_slow));
            Ok(Opened { session: Arc::new(session), ..opened })
        })
    }
}

#[test]
fn a_grant_whose_answer_comes_after_the_end_of_certainty_is_no_grant() {
    on_one_thread(async {
        let (world, is_slow, events) = (World::new(), Arc::new(AtomicBool::new(false)), Events::default());
        let store =
            Slow { store: world.store.another_process(), clock: world.clock.clone(), is_slow: Arc::clone(&is_slow) };
        let options = Client::builder().io(fencelock::Io::CurrentRuntime).observer(Arc::new(events.clone()));
        let client = options.connect_store(Arc::new(store)).await.unwrap();
        is_slow.store(true, Ordering::SeqCst);
        let lock = client.mutex("a").unwrap();
        let guard = tokio::join!(lock.acquire(), world.advance(secs(30))).0.unwrap();
        assert_eq!(guard.state(), GuardState::Held);
        assert_eq!((events.count("Requeued"), events.count("Granted")), (1, 1), "{:?}", events.all());
    });
}
