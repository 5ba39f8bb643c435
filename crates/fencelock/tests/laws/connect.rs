//! Sessions that are opened: by connecting to a store that is not there yet, and again when one was lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{World, beneath, in_world, ms, on_one_thread, secs, settle};
use fencelock::memory::{MemoryStore, Operation};
use fencelock::store::{Opened, Opening, Store};
use fencelock::{Client, Error, ErrorKind, Health, Io, Name, Result};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::task::JoinHandle;

/// Connects in the background to a store in `world`, through a handle that `breaks` has changed.
fn connecting(
    world: &World,
    limit: Duration,
    breaks: impl FnOnce(&fencelock::memory::MemoryStore),
) -> (fencelock::memory::MemoryStore, JoinHandle<Result<Client>>) {
    let store = world.store.another_process();
    breaks(&store);
    let options = Client::builder().io(Io::CurrentRuntime).connect_timeout(limit);
    let client = options.connect_store(store.clone());
    (store, tokio::spawn(client))
}

#[test]
fn a_client_that_has_time_to_connect_waits_for_its_store() {
    in_world(async |world, []| {
        let (store, client) = connecting(&world, secs(120), |store| store.partition());
        // Longer than a request may take, and longer than an acquire repeats its requests.
        world.advance(secs(90)).await;
        assert!(!client.is_finished());
        store.heal();
        // The longest pause between two openings.
        world.advance(secs(5)).await;
        client.await.unwrap().unwrap();
    });
}

#[test]
fn a_client_whose_time_to_connect_is_up_says_what_failed_last() {
    in_world(async |world, []| {
        let (_store, client) = connecting(&world, secs(20), |store| store.partition());
        world.advance(secs(20)).await;
        let error = client.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!(error.to_string().contains("connect_timeout 20s"), "{error}");
        assert!(error.to_string().contains("request deadline"), "{error}");
    });
}

#[test]
fn a_store_that_is_silent_until_the_time_to_connect_is_up_is_named() {
    in_world(async |world, []| {
        let (_store, client) = connecting(&world, secs(1), |store| store.partition());
        world.advance(secs(1)).await;
        let error = client.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!(error.to_string().contains("connect timeout (store memory"), "{error}");
    });
}

#[test]
fn a_client_without_time_to_connect_tries_once() {
    in_world(async |world, []| {
        for limit in [None, Some(Duration::ZERO)] {
            let store = world.store.another_process();
            store.lose_next_reply(Operation::Open);
            let builder = Client::builder().io(Io::CurrentRuntime);
            let builder = limit.into_iter().fold(builder, |builder, limit| builder.connect_timeout(limit));
            let error = builder.connect_store(store).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unreachable);
        }
        let (_store, client) = connecting(&world, secs(5), |store| store.lose_next_reply(Operation::Open));
        world.advance(secs(1)).await;
        settle().await;
        client.await.unwrap().unwrap();
    });
}

#[test]
fn callers_that_wait_for_less_than_opening_takes_still_get_a_session() {
    in_world(async |world, [process]| {
        let mutex = process.client.mutex("a").unwrap();
        let slow = process.store.delay_next(Operation::Open);
        process.store.expire_sessions();
        for _ in 0..5 {
            let mutex = mutex.clone();
            let impatient = tokio::spawn(async move { mutex.acquire_within(ms(100)).await });
            world.advance(ms(100)).await;
            assert_eq!(impatient.await.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
        }
        assert!(slow.release(), "the first opening was given up");
        mutex.acquire_within(ms(100)).await.unwrap().release().await.unwrap();
        assert_eq!(process.events.count("SessionOpened"), 2);
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn an_opening_continues_wherever_its_callers_are_dropped() {
    in_world(async |world, [process]| {
        let mutex = process.client.mutex("a").unwrap();
        for polls in 0..4 {
            let slow = process.store.delay_next(Operation::Open);
            process.store.expire_sessions();
            let mut acquiring = Box::pin(mutex.acquire());
            for _ in 0..polls {
                assert!(futures_util::poll!(acquiring.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
            drop(acquiring);
            world.advance(ms(50)).await;
            assert!(slow.release(), "after {polls} polls");
            settle().await;
            assert!(matches!(process.client.health(), Health::Confirmed(_)), "after {polls} polls");
            mutex.acquire().await.unwrap().release().await.unwrap();
            world.assert_no_place_is_left().await;
        }
    });
}

#[test]
fn a_client_that_is_closed_or_dropped_while_a_session_is_opened_leaves_none() {
    on_one_thread(async {
        for is_closed in [true, false] {
            let world = World::new();
            let process = world.process().await;
            let slow = process.store.delay_next(Operation::Open);
            process.store.expire_sessions();
            world.advance(ms(50)).await;
            if is_closed {
                process.client.close().await.unwrap();
                assert_eq!(process.client.mutex("a").unwrap().acquire().await.unwrap_err().kind(), ErrorKind::Closed);
            } else {
                drop(process.client);
            }
            settle().await;
            slow.release();
            // A session whose request was on its way at the close lives as long as any session without renewals.
            world.advance(secs(11)).await;
            assert_eq!(world.store.census(), Default::default());
        }
    });
}

/// A store that counts the requests for a session, and panics or refuses them when a test says so.
#[derive(Debug)]
struct Opens {
    store: MemoryStore,
    asked: AtomicUsize,
    panics: AtomicBool,
    refuses: AtomicBool,
}

impl Opens {
    fn new(store: MemoryStore) -> Arc<Self> {
        let (asked, panics, refuses) = Default::default();
        Arc::new(Self { store, asked, panics, refuses })
    }
}

impl Store for Opens {
    beneath!(store: capability clock queue);

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics.load(Ordering::SeqCst), "this store panics");
        if self.refuses.load(Ordering::SeqCst) {
            let error = Error::new(ErrorKind::Unreachable, "open", "this store takes no connections").retryable();
            return Box::pin(async { Err(error) });
        }
        self.store.open(opening)
    }

    /// Every name twice, and in between nothing.
    fn names<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<Vec<Name>>> {
        let nothing = stream::iter([Ok(Vec::new())]);
        Box::pin(self.store.names(prefix).chain(nothing).chain(self.store.names(prefix)))
    }
}

#[test]
fn a_store_that_panics_is_not_reported_as_a_closed_client() {
    in_world(async |world, []| {
        let process = world.store.another_process();
        let store = Opens::new(process.clone());
        let client = Client::builder().io(Io::CurrentRuntime).connect_store(store.clone()).await.unwrap();
        store.panics.store(true, Ordering::SeqCst);
        process.expire_sessions();
        settle().await;
        let error = client.mutex("a").unwrap().acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
        store.panics.store(false, Ordering::SeqCst);
        world.advance(secs(2)).await;
        client.mutex("a").unwrap().acquire().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_store_that_fails_at_once_is_asked_for_a_session_as_seldom_by_a_thousand_as_by_one() {
    on_one_thread(async {
        for waiters in [1, 1000] {
            let world = World::new();
            let process = world.store.another_process();
            let store = Opens::new(process.clone());
            let client = Client::builder().io(Io::CurrentRuntime).connect_store(store.clone()).await.unwrap();
            store.refuses.store(true, Ordering::SeqCst);
            process.expire_sessions();
            settle().await;
            store.asked.store(0, Ordering::SeqCst);
            let waiting: Vec<_> = (0..waiters)
                .map(|_| {
                    let mutex = client.mutex("a").unwrap();
                    tokio::spawn(async move { mutex.acquire().await.unwrap().release().await.unwrap() })
                })
                .collect();
            world.advance(secs(10)).await;
            // Pauses that double from 100 ms to 5 s.
            let asked = store.asked.load(Ordering::SeqCst);
            assert!((5..=20).contains(&asked), "{waiters} asked {asked} times");
            store.refuses.store(false, Ordering::SeqCst);
            world.advance(secs(5)).await;
            assert!(waiting.iter().all(JoinHandle::is_finished), "{waiters} are served when the store is back");
        }
    });
}

#[test]
fn a_client_without_a_session_asks_for_one_soon_and_then_ever_more_seldom() {
    in_world(async |world, []| {
        let store = Opens::new(world.store.another_process());
        store.refuses.store(true, Ordering::SeqCst);
        let builder = Client::builder().io(Io::CurrentRuntime).connect_timeout(secs(60));
        let connecting = tokio::spawn(builder.connect_store(store.clone()));
        let (mut asked, mut since, mut pauses) = (0, ms(0), Vec::new());
        while pauses.len() < 8 {
            world.advance(ms(5)).await;
            since += ms(5);
            if asked != store.asked.load(Ordering::SeqCst) {
                asked = store.asked.load(Ordering::SeqCst);
                pauses.push(std::mem::take(&mut since));
            }
        }
        for (pause, longest) in pauses[1..].iter().zip([100, 200, 400, 800, 1600, 3200, 5000].map(ms)) {
            assert!((longest * 3 / 4..=longest + ms(10)).contains(pause), "{pauses:?}");
        }
        store.refuses.store(false, Ordering::SeqCst);
        world.advance(secs(5)).await;
        connecting.await.unwrap().unwrap();
    });
}

#[test]
fn tries_one_after_the_other_ask_a_store_that_fails_no_oftener_than_its_pauses_allow() {
    in_world(async |world, []| {
        let process = world.store.another_process();
        let store = Opens::new(process.clone());
        let client = Client::builder().io(Io::CurrentRuntime).connect_store(store.clone()).await.unwrap();
        store.refuses.store(true, Ordering::SeqCst);
        process.expire_sessions();
        settle().await;
        store.asked.store(0, Ordering::SeqCst);
        let mutex = client.mutex("a").unwrap();
        let trying = tokio::spawn(async move {
            loop {
                let error = mutex.acquire_within(ms(300)).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
                assert!(chain(&error).contains("takes no connections"), "why is said: {}", chain(&error));
            }
        });
        world.advance(secs(10)).await;
        assert!(!trying.is_finished());
        trying.abort();
        let asked = store.asked.load(Ordering::SeqCst);
        assert!((5..=20).contains(&asked), "asked {asked} times");
    });
}

#[test]
fn a_store_that_ends_every_session_at_once_is_asked_for_one_as_seldom_by_a_thousand_as_by_one() {
    on_one_thread(async {
        for waiters in [1, 1000] {
            let world = World::new();
            let holder = world.process().await;
            let _held = holder.client.mutex("a").unwrap().acquire().await.unwrap();
            let process = world.store.another_process();
            let store = Opens::new(process.clone());
            let client = Client::builder().io(Io::CurrentRuntime).connect_store(store.clone()).await.unwrap();
            let waiting = (0..waiters).map(|_| {
                let mutex = client.mutex("a").unwrap();
                tokio::spawn(async move { mutex.acquire().await.map(drop) })
            });
            let waiting: Vec<_> = waiting.collect();
            for _ in 0..500 {
                world.advance(ms(10)).await;
                process.expire_sessions();
            }
            let asked = store.asked.load(Ordering::SeqCst);
            assert!((5..=16).contains(&asked), "{waiters} asked {asked} times");
            waiting.iter().for_each(JoinHandle::abort);
        }
    });
}

/// An error and everything underneath it.
fn chain(error: &dyn std::error::Error) -> String {
    let source = error.source().map(chain).unwrap_or_default();
    format!("{error}: {source}")
}

#[test]
fn a_lost_session_is_opened_again_without_an_acquire() {
    in_world(async |world, [process]| {
        process.store.partition();
        world.advance(secs(60)).await;
        assert_eq!(process.client.health(), Health::NoSession);
        process.store.heal();
        world.advance(secs(10)).await;
        assert!(matches!(process.client.health(), Health::Confirmed(_)), "{:?}", process.client.health());
        assert_eq!(world.store.census().sessions, 1);
        process.client.close().await.unwrap();
        world.advance(secs(60)).await;
        assert_eq!(world.store.census().sessions, 0, "a closed client opens nothing");
    });
}

#[test]
fn a_client_whose_session_is_opened_when_needed_opens_none_to_look_and_one_to_acquire() {
    in_world(async |world, []| {
        let store = Opens::new(world.store.another_process());
        let builder = Client::builder().io(Io::CurrentRuntime).session_when_needed(true);
        let client = builder.connect_store(store.clone()).await.unwrap();
        assert!(client.queue("a").await.unwrap().contenders.is_empty());
        assert!(client.names("", None, 9).await.unwrap().is_empty());
        assert_eq!(client.contention("a").await.unwrap().queued, 0);
        settle().await;
        assert_eq!((store.asked.load(Ordering::SeqCst), client.health()), (0, Health::NoSession));
        let held = client.mutex("a").unwrap().acquire().await.unwrap();
        assert_eq!(store.asked.load(Ordering::SeqCst), 1);
        held.release().await.unwrap();
        client.close().await.unwrap();
    });
}

#[test]
fn names_are_given_once_each_in_byte_order_behind_the_one_before() {
    in_world(async |world, []| {
        let store = Opens::new(world.store.another_process());
        let client = Client::builder().io(Io::CurrentRuntime).connect_store(store).await.unwrap();
        let mut held = Vec::new();
        for name in ["job/b", "job", "job/a", "jobs", "other", "job/é"] {
            held.push(client.mutex(name).unwrap().acquire().await.unwrap());
        }
        for (prefix, from, limit, expected) in [
            ("", None, usize::MAX, &["job", "job/a", "job/b", "job/é", "jobs", "other"][..]),
            ("", Some("job/a"), 2, &["job/b", "job/é"]),
            ("job/", Some("job/é"), 9, &[]),
            ("", None, 0, &[]),
        ] {
            let from = from.map(|from| Name::new(from).unwrap());
            let names = client.names(prefix, from.as_ref(), limit).await.unwrap();
            assert_eq!(names.iter().map(Name::as_str).collect::<Vec<_>>(), expected, "{prefix} {from:?} {limit}");
        }
    });
}
