//! The purpose of the I/O thread, on the real clock: blocking code costs no client its lock, and no place outlives its
//! owner.

#[path = "thread_laws/caller.rs"]
mod caller;
#[cfg(all(feature = "file", feature = "jobs"))]
#[path = "thread_laws/recipes.rs"]
mod recipes;
#[path = "laws/support.rs"]
mod support;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fencelock::blocking;
use fencelock::memory::{MemoryStore, Operation};
use fencelock::observe::{Event, Observer};
use fencelock::store::{Page, Store};
use fencelock::{Breaker, BreakerState, Client, ErrorKind, Guard, Io, Loss, Name};
use futures_util::{FutureExt, StreamExt};
use support::{Events, ms, on_one_thread, secs};

fn shared(store: &MemoryStore) -> Arc<dyn Store> {
    store.another_process().into()
}

#[test]
fn flush_waits_for_guards_that_are_dropped_at_the_end_of_a_program() {
    for _ in 0..200 {
        let store = MemoryStore::new();
        on_one_thread(async {
            let client = Client::builder().connect_store(shared(&store)).await.unwrap();
            let _guard = client.mutex("a").unwrap().acquire().await.unwrap();
        });
        assert!(fencelock::flush(secs(180)));
        assert_eq!(store.census(), Default::default());
    }
}

#[test]
fn the_drop_of_a_client_does_not_wait_for_what_it_started() {
    let store = MemoryStore::new().another_process();
    let client = blocking::Client::connect_store(Client::builder(), store.clone()).unwrap();
    let guard = client.mutex("a").unwrap().acquire().unwrap();
    let late = store.delay_next(Operation::Leave);
    drop((guard, client));
    assert!(!fencelock::flush(Duration::ZERO), "the release is under way");
    assert_eq!(store.census().places, 1);
    late.release();
    assert!(fencelock::flush(secs(180)));
    assert_eq!(store.census(), Default::default());
}

#[test]
fn a_sticky_lock_needs_no_runtime_of_its_callers() {
    let client = blocking::Client::connect("memory:").unwrap();
    let lock = client.mutex("a").unwrap().sticky(secs(5));
    let held = lock.acquire().unwrap();
    let token = held.token();
    assert_eq!(lock.acquire_within(ms(20)).unwrap_err().kind(), ErrorKind::TimedOut);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| lock.acquire_within(secs(180)).unwrap().token());
        held.release().unwrap();
        assert!(waits.join().unwrap() >= token);
    });
    assert!(lock.try_acquire().is_ok());
}

/// Waits for a condition, without ever yielding to the runtime.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + secs(180);
    while !is_so() {
        assert!(Instant::now() < end, "it never came that {what}");
        std::thread::yield_now();
    }
}

/// Waits until the queue has `count` contenders, without ever yielding to the runtime.
fn until_queued(store: &MemoryStore, count: usize) {
    let name = Name::new("a").unwrap();
    let queued = || futures_executor::block_on(store.queue(&name, Page::ALL)).unwrap().contenders.len();
    until(&format!("{count} queue"), || queued() == count);
}

#[test]
fn a_wait_with_a_limit_leaves_the_queue_in_time_although_its_caller_stands_still() {
    on_one_thread(async {
        let store = MemoryStore::new();
        let holder = Client::builder().connect_store(shared(&store)).await.unwrap();
        let events = Events::default();
        let options = Client::builder().observer(Arc::new(events.clone()));
        let other = options.connect_store(shared(&store)).await.unwrap();
        let _held = holder.mutex("a").unwrap().acquire().await.unwrap();
        let lock = other.mutex("a").unwrap().timeout(ms(500));
        let mut waiting = std::pin::pin!(lock.acquire());
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        // The wait may have ended before this thread looks at the queue, so what it was is an event.
        until("the client waits", || events.count("Waiting") == 1);
        until_queued(&store, 1);
        assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn a_lock_with_a_longest_hold_is_given_back_although_its_caller_stands_still() {
    on_one_thread(async {
        let store = MemoryStore::new();
        let holder = Client::builder().connect_store(shared(&store)).await.unwrap();
        let other = Client::builder().connect_store(shared(&store)).await.unwrap();
        let held = holder.mutex("a").unwrap().acquire().await.unwrap();
        let lock = other.mutex("a").unwrap().max_hold(ms(100));
        let mut waiting = std::pin::pin!(lock.acquire());
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        until_queued(&store, 2);
        held.release().await.unwrap();
        until_queued(&store, 0);
    });
}

#[test]
fn the_last_release_of_a_client_that_is_never_dropped_can_be_waited_for() {
    for _ in 0..50 {
        let store = MemoryStore::new();
        let client = blocking::Client::connect_store(Client::builder(), shared(&store)).unwrap();
        drop(client.mutex("a").unwrap().acquire().unwrap());
        assert!(fencelock::flush(secs(180)));
        assert_eq!(store.census().places, 0);
        // The client is never dropped, like a static.
        std::mem::forget(client);
    }
}

#[test]
fn flush_waits_for_no_longer_than_its_limit() {
    let store = MemoryStore::new().another_process();
    let client = blocking::Client::connect_store(Client::builder(), store.clone()).unwrap();
    let guard = client.mutex("a").unwrap().acquire().unwrap();
    store.partition();
    drop(guard);
    assert!(!fencelock::flush(ms(20)));
    store.heal();
    assert!(fencelock::flush(secs(180)));
}

/// Calls `flush` on each event of a release.
#[derive(Debug, Default)]
struct Flushes(std::sync::Mutex<Vec<bool>>);

impl Observer for Flushes {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Released { .. } = event {
            self.0.lock().unwrap().push(fencelock::flush(secs(180)));
        }
    }
}

#[test]
fn an_observer_that_flushes_delays_no_caller() {
    // With a fault scripted, releases run on the I/O thread: the release has not ended yet when the observer sees its
    // event.
    for (is_scripted, flushed) in [(false, true), (true, false)] {
        let (store, flushes) = (MemoryStore::new().another_process(), Arc::new(Flushes::default()));
        let options = Client::builder().observer(Arc::clone(&flushes) as Arc<dyn Observer>);
        let client = blocking::Client::connect_store(options, store.clone()).unwrap();
        store.slow_renewals(if is_scripted { ms(1) } else { Duration::ZERO });
        let started = Instant::now();
        drop(client.mutex("a").unwrap().acquire().unwrap());
        client.mutex("a").unwrap().acquire().unwrap().release().unwrap();
        assert!(fencelock::flush(secs(180)));
        assert!(started.elapsed() < secs(180), "an observer's flush blocked the thread that called it");
        assert_eq!(*flushes.0.lock().unwrap(), [flushed, flushed]);
    }
}

#[test]
fn run_gives_the_lock_back_before_it_returns_wherever_requests_run() {
    for io in [Io::OwnThread, Io::CurrentRuntime] {
        on_one_thread(async {
            let store = MemoryStore::new();
            let client = Client::builder().io(io).connect_store(shared(&store)).await.unwrap();
            for _ in 0..50 {
                client.mutex("a").unwrap().run(async |_| ()).await.unwrap();
                assert_eq!(store.census().places, 0, "{io:?}");
            }
        });
    }
    let store = MemoryStore::new();
    let client = blocking::Client::connect_store(Client::builder(), shared(&store)).unwrap();
    for _ in 0..50 {
        client.mutex("a").unwrap().run(|_| ()).unwrap();
        assert_eq!(store.census().places, 0);
    }
}

#[test]
fn a_client_of_one_runtime_says_so_on_another() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (home, other) = (runtime(), runtime());
    let store = MemoryStore::new();
    let options = Client::builder().io(Io::CurrentRuntime);
    let client = home.block_on(options.connect_store(shared(&store))).unwrap();
    let guard = home.block_on(client.mutex("a").unwrap().acquire()).unwrap();
    let [one, another] = ["c", "d"].map(|name| home.block_on(client.mutex(name).unwrap().acquire()).unwrap());
    let ran = Cell::new(false);
    let elsewhere = async |guard: Guard, spare: Guard| {
        let name = Name::new("a").unwrap();
        let failed = guard.release_or_keep().await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Config, "{failed}");
        let errors = [
            client.mutex("b").unwrap().acquire().await.unwrap_err(),
            client.queue(&name).await.unwrap_err(),
            spare.run(async |_| ran.set(true)).await.unwrap_err(),
            client.close().await.unwrap_err(),
        ];
        assert!(!ran.get(), "a body ran under a lock that no caller could release");
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            assert!(error.to_string().contains("Io::CurrentRuntime"), "{error}");
        }
        failed.into_guard()
    };
    let guard = other.block_on(elsewhere(guard, one));
    let guard = futures_executor::block_on(elsewhere(guard, another));
    home.block_on(async {
        guard.release().await.unwrap();
        client.mutex("b").unwrap().acquire().await.unwrap().release().await.unwrap();
        client.close().await.unwrap();
    });
    assert_eq!(store.census().places, 0);
}

#[test]
fn any_executor_will_do() {
    futures_executor::block_on(async {
        let client = Client::connect("memory:").await.unwrap();
        let lock = client.mutex("a").unwrap();
        let guard = lock.acquire().await.unwrap();
        assert_eq!(lock.acquire_within(ms(20)).await.unwrap_err().kind(), ErrorKind::TimedOut);
        guard.release().await.unwrap();
        client.close().await.unwrap();
    });
}

/// Runs `task` where no timers are: on a plain executor, and on a runtime without time.
fn without_timers<T: Future<Output = ()>>(task: impl Fn() -> T) {
    futures_executor::block_on(task());
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(task());
}

/// A client whose requests are made on the I/O thread, because a fault is scripted, and its store.
async fn asks_the_io_thread() -> (Client, MemoryStore) {
    let store = MemoryStore::new().another_process();
    store.slow_renewals(ms(1));
    (Client::builder().connect_store(store.clone()).await.unwrap(), store)
}

#[test]
fn several_locks_are_waited_for_with_a_limit_on_any_executor() {
    without_timers(|| async {
        let (client, store) = asks_the_io_thread().await;
        let patient = client.multi_lock(["a", "b"]).unwrap().timeout(secs(180));
        patient.acquire().await.unwrap().release().await.unwrap();
        patient.run(async |_| ()).await.unwrap();
        let both = client.multi_lock(["a", "b"]).unwrap().timeout(ms(50));
        let held = client.mutex("b").unwrap().acquire().await.unwrap();
        assert_eq!(both.acquire().await.unwrap_err().kind(), ErrorKind::TimedOut);
        drop(held);
        store.partition();
        assert_eq!(both.acquire().await.unwrap_err().kind(), ErrorKind::TimedOut);
        store.heal();
        client.close().await.unwrap();
    });
}

#[test]
fn an_election_is_led_and_watched_on_any_executor() {
    without_timers(|| async {
        let (client, store) = asks_the_io_thread().await;
        let election = client.election("chief").unwrap();
        let mut leaders = std::pin::pin!(election.leaders(ms(1)));
        assert_eq!(leaders.next().await.unwrap().unwrap(), None);
        let leader = election.campaign().await.unwrap();
        assert_eq!(leaders.next().await.unwrap().unwrap().unwrap().term, leader.term());
        let body = async |term| {
            // No event wakes the stream at once. Meanwhile the leader waits until it must step down.
            assert_eq!(leaders.next().now_or_never().map(|_| ()), None);
            client.mutex("other").unwrap().acquire().await.unwrap().release().await.unwrap();
            term
        };
        assert!(leader.run(body).await.unwrap().is_some());
        assert_eq!(leaders.next().await.unwrap().unwrap(), None);
        let leader = election.campaign().await.unwrap();
        store.expire_sessions();
        assert_eq!(leader.must_step_down().await, Some(Loss::Expired));
    });
}

#[cfg(feature = "jobs")]
#[test]
fn the_end_of_a_job_is_noted_again_on_any_executor() {
    without_timers(|| async {
        let (client, store) = asks_the_io_thread().await;
        let job = client.job("report", fencelock::jobs::Slot::named("today").unwrap()).unwrap();
        let done = job.run(async |_| {
            store.lose_next_reply(Operation::WriteNote);
            Ok::<_, fencelock::Error>(7)
        });
        assert_eq!(done.await.unwrap(), Some(7));
        assert_eq!(
            client.job_status("report").await.unwrap().unwrap().last.state,
            fencelock::jobs::RunState::Succeeded
        );
    });
}

#[test]
fn a_probe_that_its_caller_does_not_poll_closes_the_breaker_wherever_requests_run() {
    for io in [Io::OwnThread, Io::CurrentRuntime] {
        on_one_thread(async {
            let store = MemoryStore::new().another_process();
            let breaker = Breaker::default().failures(1).open_for(ms(1));
            // The deadline is far longer than the time from the poll of the probe until the store is back.
            let options = Client::builder().io(io).breaker(breaker).request_deadline(secs(2));
            let client = options.connect_store(store.clone()).await.unwrap();
            let lock = client.mutex("a").unwrap();
            store.partition();
            assert!(lock.try_acquire().await.unwrap_err().is_outage());
            let mut probe = Box::pin(lock.acquire());
            // Until it is time for a probe, the breaker refuses at the first poll.
            while futures_util::poll!(probe.as_mut()).is_ready() {
                probe = Box::pin(lock.acquire());
                tokio::task::yield_now().await;
            }
            store.heal();
            while client.breaker() != Some(BreakerState::Closed) {
                tokio::task::yield_now().await;
            }
            client.mutex("b").unwrap().acquire().await.unwrap().release().await.unwrap();
            probe.await.unwrap().release().await.unwrap();
        });
    }
}

#[test]
fn the_callers_runtime_is_asked_for_only_when_wanted() {
    let connecting = Client::builder().io(Io::CurrentRuntime).connect("memory:");
    assert_eq!(futures_executor::block_on(connecting).unwrap_err().kind(), ErrorKind::Config);
}

#[test]
fn blocking_threads_exclude_each_other() {
    let store = MemoryStore::new();
    let mut counter = Box::new(0_u32);
    let inside = Arc::new(std::sync::atomic::AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (store, inside) = (shared(&store), Arc::clone(&inside));
            scope.spawn(move || {
                let client = blocking::Client::connect_store(Client::builder(), store).unwrap();
                let lock = client.mutex("a").unwrap();
                for _ in 0..50 {
                    lock.run(|guard| {
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0, "two are inside");
                        guard.check().unwrap();
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    })
                    .unwrap();
                }
            });
        }
    });
    *counter += 1;
    assert!(fencelock::flush(secs(180)));
    assert_eq!(store.census(), Default::default());
}

#[test]
fn a_reentrant_mutex_lets_its_thread_in_again_and_no_other() {
    let client = blocking::Client::connect("memory:").unwrap();
    let lock = client.mutex("a").unwrap().reentrant();
    let outer = lock.acquire().unwrap();
    let inner = lock.clone().acquire().unwrap();
    assert_eq!(inner.token(), outer.token());
    let other = lock.clone();
    let busy = std::thread::spawn(move || other.try_acquire().map(|_| ()).unwrap_err().kind()).join().unwrap();
    assert_eq!(busy, ErrorKind::Busy);
    drop(outer);
    inner.check().unwrap();
    let token = inner.token();
    inner.release().unwrap();
    let other = lock.clone();
    std::thread::spawn(move || other.try_acquire().unwrap().release().unwrap()).join().unwrap();
    let again = lock.acquire().unwrap();
    assert!(again.token() > token);
}

#[test]
fn a_thread_that_still_has_a_lost_guard_gets_an_error_instead_of_the_lock() {
    let store = MemoryStore::new().another_process();
    let client = blocking::Client::connect_store(Client::builder(), store.clone()).unwrap();
    let lock = client.mutex("a").unwrap().reentrant();
    let outer = lock.acquire().unwrap();
    store.expire_sessions();
    futures_executor::block_on(outer.lost_token().cancelled_owned());
    assert_eq!(lock.acquire().map(|_| ()).unwrap_err().kind(), ErrorKind::Lost);
    drop(outer);
    lock.acquire().unwrap().check().unwrap();
}

#[test]
fn a_blocking_call_from_the_io_thread_is_an_error_and_not_a_deadlock() {
    struct Caller(std::sync::Mutex<Option<blocking::Client>>, mpsc::Sender<ErrorKind>);
    impl fencelock::observe::Observer for Caller {
        fn observe(&self, event: &fencelock::observe::Event<'_>) {
            if let (fencelock::observe::Event::Waiting { .. }, Some(client)) = (event, &*self.0.lock().unwrap()) {
                let _ = self.1.send(client.mutex("b").unwrap().acquire().unwrap_err().kind());
            }
        }
    }
    let (kinds, told) = mpsc::channel();
    let caller = Arc::new(Caller(std::sync::Mutex::default(), kinds));
    let store = MemoryStore::new();
    let options = Client::builder().observer(Arc::clone(&caller) as Arc<dyn fencelock::observe::Observer>);
    let client = blocking::Client::connect_store(options, shared(&store)).unwrap();
    let holder = blocking::Client::connect_store(Client::builder(), shared(&store)).unwrap();
    *caller.0.lock().unwrap() = Some(client.clone());
    let _held = holder.mutex("a").unwrap().acquire().unwrap();
    // The observer sees `Waiting` on the I/O thread.
    assert_eq!(client.mutex("a").unwrap().acquire_within(ms(20)).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(told.recv().unwrap(), ErrorKind::Config);
    *caller.0.lock().unwrap() = None;
}
