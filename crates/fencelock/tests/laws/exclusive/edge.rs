//! Rare moments: an answer that comes too late, a caller that goes away, an observer that breaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fencelock::inspect::Owner;
use fencelock::memory::{MemoryStore, Operation};
use fencelock::observe::{Event, Observer};
use fencelock::store::{Entry, Opening, RequestId, Store};
use fencelock::{Client, ErrorKind, GuardState, Io, Loss, Name};
use futures_util::FutureExt;

use super::{OTHER_KIND, whole};
use crate::support::{beneath, in_world, ms, on_one_thread, secs, settle};

#[test]
fn max_hold_counts_from_the_grant_however_long_the_wait_was() {
    in_world(async |world, [holder, waiter]| {
        let lock = whole(&waiter.client, "a").unwrap().max_hold(secs(30));
        let held = whole(&holder.client, "a").unwrap().acquire().await.unwrap();
        let waiting = tokio::spawn(async move { lock.acquire().await });
        world.advance(secs(60)).await;
        held.release().await.unwrap();
        settle().await;
        let guard = waiting.await.unwrap().unwrap();
        guard.check().unwrap();
        world.advance(ms(29_900)).await;
        guard.check().unwrap();
        world.advance(ms(200)).await;
        assert!(guard.check().is_err());
        drop(guard);
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn max_hold_ends_a_grant_whose_release_failed_although_its_guard_is_kept() {
    in_world(async |world, [process]| {
        let guard = whole(&process.client, "a").unwrap().max_hold(secs(6)).acquire().await.unwrap();
        process.store.partition();
        let releasing = tokio::spawn(async move { guard.release().await });
        world.advance(secs(4)).await;
        let kept = releasing.await.unwrap().unwrap_err();
        process.store.heal();
        world.advance(secs(4)).await;
        world.assert_no_place_is_left().await;
        drop(kept);
    });
}

#[test]
fn a_request_refused_after_an_unanswered_one_is_still_withdrawn() {
    in_world(async |world, [process]| {
        let late = process.store.delay_next(Operation::Enter);
        let lock = whole(&process.client, "a").unwrap();
        let acquiring = tokio::spawn(async move { lock.acquire().await });
        settle().await;
        let other = world.store.another_process();
        let owner = Owner::new(7, "elsewhere", 1);
        let opened = other.open(Opening::here(owner, secs(60), Arc::new(world.clock.clone())).unwrap()).await.unwrap();
        let id = RequestId { client: 7, number: 1 };
        let (name, claim) = (Name::new("a").unwrap(), OTHER_KIND);
        let entry = Entry { name: name.clone(), claim, id, wait: true, purpose: None };
        let _place = opened.session.enter(Arc::new(entry)).await.unwrap();
        world.advance(secs(5)).await;
        assert_eq!(acquiring.await.unwrap().unwrap_err().kind(), ErrorKind::Conflict);
        settle().await;
        opened.session.withdraw(&name, id).await.unwrap();
        assert!(!late.release(), "a request that was given up took effect");
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn an_acquire_that_finds_its_session_expired_opens_another() {
    in_world(async |_, [process]| {
        let lock = whole(&process.client, "a").unwrap();
        let guard = lock.acquire().await.unwrap();
        process.store.expire_sessions();
        let again = lock.acquire().await.unwrap();
        assert_eq!(guard.state(), GuardState::Lost(Loss::Expired));
        assert!(again.token() > guard.token());
    });
}

#[test]
fn a_release_dropped_after_it_took_effect_is_no_loss() {
    in_world(async |world, [process]| {
        let guard = whole(&process.client, "a").unwrap().acquire().await.unwrap();
        let late = process.store.delay_next(Operation::Leave);
        let mut releasing = Box::pin(guard.release());
        assert!(releasing.as_mut().now_or_never().is_none());
        assert!(late.release());
        drop(releasing);
        world.assert_no_place_is_left().await;
        assert_eq!(process.events.count("Released"), 1, "{:?}", process.events.all());
        assert_eq!(process.events.count("Lost"), 0);
    });
}

#[test]
fn work_under_a_guard_is_asked_to_stop_before_the_store_lets_others_in() {
    in_world(async |world, [process]| {
        let lock = whole(&process.client, "a").unwrap();
        for in_the_open in [true, false] {
            let guard = lock.acquire().await.unwrap();
            let (last, told) = (guard.reenter().unwrap(), guard.lost_token());
            drop(guard);
            assert!(!told.is_cancelled());
            let late = process.store.delay_next(Operation::Leave);
            let give_up = async move { if in_the_open { last.release().await.unwrap() } else { drop(last) } };
            let giving_up = tokio::spawn(give_up);
            settle().await;
            assert_eq!(world.store.census().places, 1);
            assert!(told.is_cancelled());
            assert!(late.release());
            giving_up.await.unwrap();
            world.assert_no_place_is_left().await;
        }
    });
}

#[test]
fn a_body_run_under_a_reentered_guard_leaves_the_lock_to_the_outer_one() {
    in_world(async |world, [process]| {
        let outer = whole(&process.client, "a").unwrap().acquire().await.unwrap();
        outer.reenter().unwrap().run(|_| async {}).await.unwrap();
        settle().await;
        outer.check().unwrap();
        assert_eq!(world.store.census().places, 1);
        outer.release().await.unwrap();
        world.assert_no_place_is_left().await;
    });
}

/// Panics at every event.
struct Broken(AtomicU64);

impl Observer for Broken {
    fn observe(&self, event: &Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("the observer of {event:?} is broken");
    }
}

#[test]
fn an_observer_that_panics_costs_no_client_a_lock() {
    on_one_thread(async {
        let (store, clock) = MemoryStore::with_virtual_clock();
        let (broken, mine) = (Arc::new(Broken(AtomicU64::new(0))), store.another_process());
        let options = Client::builder().io(Io::CurrentRuntime).observer(Arc::clone(&broken) as Arc<dyn Observer>);
        let client = options.connect_store(mine.clone()).await.unwrap();
        let guard = whole(&client, "a").unwrap().acquire().await.unwrap();
        mine.partition();
        for _ in 0..100 {
            clock.advance(ms(100));
            settle().await;
        }
        assert_eq!(guard.lost().now_or_never(), Some(Loss::Unconfirmed));
        assert!(broken.0.load(Ordering::SeqCst) >= 3);
        mine.heal();
        client.close().await.unwrap();
        assert_eq!(store.census(), Default::default());
    });
}

#[test]
fn a_guard_is_notified_of_its_loss_although_the_runtime_that_renewed_it_is_gone() {
    let store = MemoryStore::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let guard = runtime.block_on(async {
        let mine = store.another_process();
        let client = Client::builder().io(Io::CurrentRuntime).connect_store(mine).await.unwrap();
        whole(&client, "a").unwrap().acquire().await.unwrap()
    });
    drop(runtime);
    assert_eq!(guard.lost().now_or_never(), Some(Loss::Unconfirmed), "nothing renews it any more");
    assert_eq!(guard.remaining(), Duration::ZERO);
}

#[test]
fn an_acquire_dropped_together_with_its_client_leaves_nothing_once_flushed() {
    let store = MemoryStore::new();
    on_one_thread(async {
        let holder = Client::builder().connect_store(store.another_process()).await.unwrap();
        let _held = whole(&holder, "a").unwrap().acquire().await.unwrap();
        for _ in 0..200 {
            let client = Client::builder().connect_store(store.another_process()).await.unwrap();
            let lock = whole(&client, "a").unwrap();
            let mut acquiring = Box::pin(lock.acquire());
            assert!(acquiring.as_mut().now_or_never().is_none());
            while store.census().places < 2 {
                tokio::task::yield_now().await;
            }
            drop(acquiring);
            drop((lock, client));
            assert!(fencelock::flush(secs(180)));
            let census = store.census();
            assert_eq!((census.places, census.sessions), (1, 1));
        }
    });
}

#[test]
fn a_session_granted_for_less_than_the_margin_is_refused_and_not_tried_without_end() {
    on_one_thread(async {
        let (store, clock) = MemoryStore::with_virtual_clock();
        let client = Client::builder().io(Io::CurrentRuntime);
        let brief = Arc::new(Brief(store.clone(), AtomicU64::new(0))) as Arc<dyn Store>;
        let connected = client.connect_store(brief).await;
        assert_eq!(connected.unwrap_err().kind(), ErrorKind::Config);
        settle().await;
        clock.advance(secs(1));
        settle().await;
        assert_eq!(store.census().sessions, 0);
    });
}

/// Opens every session with a tenth of the requested ttl.
#[derive(Debug)]
struct Brief(MemoryStore, AtomicU64);

impl Store for Brief {
    beneath!(0: capability clock queue names);

    fn open(
        &self,
        mut opening: Opening,
    ) -> futures_util::future::BoxFuture<'_, fencelock::Result<fencelock::store::Opened>> {
        Box::pin(async move {
            assert!(self.1.fetch_add(1, Ordering::SeqCst) < 1000, "tried without end");
            opening.ttl /= 10;
            self.0.open(opening).await
        })
    }
}
