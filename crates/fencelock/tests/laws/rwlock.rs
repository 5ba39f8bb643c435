//! The laws of the read-write lock: its own laws, and the laws of every exclusive claim, kept by a writer.

#[path = "exclusive/acquire.rs"]
mod acquire;
#[path = "exclusive/edge.rs"]
mod edge;
#[path = "exclusive/guard.rs"]
mod guard;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{in_world, ms, on_one_thread, secs, settle};
use fencelock::inspect::Claim;
use fencelock::memory::Operation;
use fencelock::store::{Capability, Contender, Opened, Opening, Page, Queue, RequestId, Store};
use fencelock::{Client, ErrorKind, Io, Loss, Name, Result, RwLock, WriteGuard};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// The writer of a read-write lock, called as a mutex is.
#[derive(Debug, Clone)]
struct Writer(RwLock);

/// The exclusive form of this primitive, for the laws.
fn whole(client: &Client, name: &str) -> Result<Writer> {
    client.rwlock(name).map(Writer)
}

/// A claim that cannot share a queue with it.
const OTHER_KIND: Claim = Claim::MUTEX;

impl Writer {
    fn purpose(self, purpose: impl AsRef<str>) -> Self {
        Self(self.0.purpose(purpose))
    }

    fn timeout(self, limit: Duration) -> Self {
        Self(self.0.timeout(limit))
    }

    fn max_hold(self, most: Duration) -> Self {
        Self(self.0.max_hold(most))
    }

    fn max_waiters(self, most: u32) -> Self {
        Self(self.0.max_waiters(most))
    }

    async fn acquire(&self) -> Result<WriteGuard> {
        self.0.write().await
    }

    async fn acquire_within(&self, limit: Duration) -> Result<WriteGuard> {
        self.0.write_within(limit).await
    }

    async fn try_acquire(&self) -> Result<WriteGuard> {
        self.0.try_write().await
    }

    async fn run<T, F, Fut>(&self, body: F) -> Result<T>
    where
        F: FnOnce(WriteGuard) -> Fut,
        Fut: Future<Output = T>,
    {
        self.0.write().await?.run(body).await
    }
}

#[test]
fn readers_hold_together_and_a_writer_alone() {
    in_world(async |world, [a, b]| {
        let (hers, his) = (a.client.rwlock("page").unwrap(), b.client.rwlock("page").unwrap());
        let readers = [hers.read().await.unwrap(), his.try_read().await.unwrap(), his.read().await.unwrap()];
        assert_eq!(hers.try_write().await.unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(readers.iter().filter(|reader| reader.check().is_ok()).count(), 3);
        drop(readers);
        settle().await;
        let writer = his.try_write().await.unwrap();
        assert_eq!(hers.try_read().await.unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(hers.try_write().await.unwrap_err().kind(), ErrorKind::Busy);
        writer.release().await.unwrap();
        assert!(hers.read().await.unwrap().run(async |guard| guard.check().is_ok()).await.unwrap());
        assert!(hers.write().await.unwrap().run(async |guard| guard.check().is_ok()).await.unwrap());
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_reader_that_comes_behind_a_waiting_writer_waits_for_it() {
    in_world(async |_, [process]| {
        let page = process.client.rwlock("page").unwrap();
        let (order, mut served) = tokio::sync::mpsc::unbounded_channel();
        let first = page.read().await.unwrap();
        for number in 0..12 {
            let (page, order) = (page.clone(), order.clone());
            tokio::spawn(async move {
                if number % 3 == 0 {
                    let guard = page.write().await.unwrap();
                    order.send(number).unwrap();
                    guard.release().await.unwrap();
                } else {
                    let guard = page.read().await.unwrap();
                    order.send(number).unwrap();
                    guard.release().await.unwrap();
                }
            });
            settle().await;
        }
        assert_eq!(page.try_read().await.unwrap_err().kind(), ErrorKind::Busy, "a writer waits");
        first.release().await.unwrap();
        for round in 0..4 {
            assert_eq!(served.recv().await, Some(3 * round), "the writer first");
            let mut readers = [served.recv().await.unwrap(), served.recv().await.unwrap()];
            readers.sort_unstable();
            assert_eq!(readers, [3 * round + 1, 3 * round + 2], "then the readers behind it");
        }
    });
}

#[test]
fn a_reader_that_never_leaves_keeps_writers_waiting_until_they_give_up() {
    in_world(async |world, [process]| {
        let page = process.client.rwlock("page").unwrap();
        let _stays = page.read().await.unwrap();
        let impatient = page.clone().timeout(secs(5));
        let writing = tokio::spawn(async move { impatient.write().await });
        settle().await;
        let patient = page.clone();
        let reading = tokio::spawn(async move { patient.read().await });
        world.advance(secs(4)).await;
        assert!(!reading.is_finished());
        world.advance(secs(1) + ms(1)).await;
        assert_eq!(writing.await.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
        reading.await.unwrap().unwrap().check().unwrap();
    });
}

#[test]
fn the_limit_of_a_hold_frees_writers_of_a_reader_that_never_leaves() {
    in_world(async |world, [process]| {
        let page = process.client.rwlock("page").unwrap().max_hold(secs(60));
        let stays = page.read().await.unwrap();
        let writing = tokio::spawn(async move { page.write().await });
        world.advance(secs(60) + ms(1)).await;
        assert_eq!(stays.lost().await, Loss::HeldTooLong);
        // The reader never releases: its place ends by the margin.
        world.advance(secs(1)).await;
        writing.await.unwrap().unwrap().check().unwrap();
    });
}

#[test]
fn a_downgrade_keeps_the_place_lets_in_the_readers_behind_and_not_the_writer() {
    in_world(async |_, [a, b]| {
        let (hers, his) = (a.client.rwlock("page").unwrap(), b.client.rwlock("page").unwrap());
        let writing = hers.write().await.unwrap();
        let (page, token) = (his.clone(), writing.token());
        let reader = tokio::spawn(async move { page.read().await });
        settle().await;
        let page = his.clone();
        let writer = tokio::spawn(async move { page.write().await });
        settle().await;
        let reading = writing.downgrade().await.unwrap();
        settle().await;
        assert!(reader.is_finished() && !writer.is_finished());
        assert_eq!(reading.token(), token);
        let front = a.client.queue(reading.name()).await.unwrap().contenders[0].clone();
        assert_eq!((front.claim, front.grant.unwrap().token), (Claim::READER, token));
        assert_eq!((a.events.count("Downgraded"), a.events.count("Lost")), (1, 0));
        drop(reader.await.unwrap().unwrap());
        settle().await;
        assert!(!writer.is_finished());
        reading.release().await.unwrap();
        let writing = writer.await.unwrap().unwrap();
        assert!(writing.token() > token);
    });
}

#[test]
fn a_downgrade_whose_answers_are_lost_continues_until_it_is_certain() {
    in_world(async |world, [process, other]| {
        let writing = process.client.rwlock("page").unwrap().write().await.unwrap();
        process.store.lose_next_reply(Operation::Lighten);
        process.store.lose_next_reply(Operation::Lighten);
        let downgrading = tokio::spawn(async move { writing.downgrade().await });
        world.advance(secs(2)).await;
        let reading = downgrading.await.unwrap().unwrap();
        reading.check().unwrap();
        assert_eq!(process.events.count("Retried"), 2);
        drop(other.client.rwlock("page").unwrap().try_read().await.unwrap());
        reading.release().await.unwrap();
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_downgrade_dropped_half_way_releases_the_lock() {
    in_world(async |world, [process]| {
        let writing = process.client.rwlock("page").unwrap().write().await.unwrap();
        let late = process.store.delay_next(Operation::Lighten);
        assert!(writing.downgrade().now_or_never().is_none());
        world.assert_no_place_is_left().await;
        late.release();
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_downgrade_after_a_loss_says_so() {
    in_world(async |world, [process]| {
        let writing = process.client.rwlock("page").unwrap().write().await.unwrap();
        process.store.expire_sessions();
        settle().await;
        let failed = writing.downgrade_or_keep().await.unwrap_err();
        assert_eq!(failed.error().kind(), ErrorKind::Lost);
        assert_eq!(failed.into_guard().lost().await, Loss::Expired);
        let writing = process.client.rwlock("page").unwrap().write().await.unwrap();
        process.store.expire_sessions();
        let failed = writing.downgrade_or_keep().await.unwrap_err();
        assert_eq!(failed.error().kind(), ErrorKind::Lost, "although no event was sent yet");
        assert!(failed.into_guard().check().is_err());
        let writing = process.client.rwlock("page").unwrap().write().await.unwrap();
        process.store.partition();
        let downgrading = tokio::spawn(async move { writing.downgrade().await });
        world.advance(secs(10)).await;
        assert_eq!(downgrading.await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
        process.store.heal();
        world.advance(secs(2)).await;
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_writer_that_was_entered_again_is_not_downgraded_behind_its_back() {
    in_world(async |world, [process, other]| {
        let writing = process.client.rwlock("page").unwrap().write().await.unwrap();
        let again = writing.reenter().unwrap();
        let failed = writing.downgrade_or_keep().await.unwrap_err();
        assert_eq!(failed.error().kind(), ErrorKind::Config);
        let page = other.client.rwlock("page").unwrap();
        assert_eq!(page.try_read().await.unwrap_err().kind(), ErrorKind::Busy);
        again.check().unwrap();
        failed.into_guard().release().await.unwrap();
        let reading = again.downgrade().await.unwrap();
        drop(page.try_read().await.unwrap());
        reading.release().await.unwrap();
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_body_may_downgrade_the_guard_that_it_was_lent() {
    in_world(async |world, [process, other]| {
        let page = other.client.rwlock("page").unwrap();
        let body = |writing: WriteGuard| async move {
            let reading = writing.downgrade().await.unwrap();
            page.try_read().await.unwrap().release().await.unwrap();
            reading.check().is_ok()
        };
        assert!(process.client.rwlock("page").unwrap().write().await.unwrap().run(body).await.unwrap());
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_departure_wakes_the_newly_granted_and_one_more_at_most() {
    in_world(async |_, [process]| {
        let page = process.client.rwlock("page").unwrap();
        let first = page.write().await.unwrap();
        for number in 0..20 {
            let page = page.clone();
            tokio::spawn(async move {
                let held = match number {
                    5 => page.write().await.map(drop),
                    _ => page.read().await.map(std::mem::forget),
                };
                held.unwrap();
            });
            settle().await;
        }
        first.release().await.unwrap();
        settle().await;
        let granted = process.events.count("Granted") - 1;
        assert_eq!(granted, 5, "the readers before the next writer");
        assert!(process.events.count("Woken") <= granted + 1, "{:?}", process.events.all());
    });
}

#[test]
fn code_that_blocks_reads_and_writes_too() {
    let client = fencelock::blocking::Client::connect("memory:").unwrap();
    let page = client.rwlock("page").unwrap();
    let (one, two) = (page.read().unwrap(), page.try_read().unwrap());
    assert_eq!(page.try_write().unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(page.write_within(ms(10)).unwrap_err().kind(), ErrorKind::TimedOut);
    drop(two);
    one.release().unwrap();
    let reading = page.write().unwrap().downgrade().unwrap();
    assert!(page.read().unwrap().run(|guard| guard.check().is_ok()).unwrap());
    drop(reading);
    assert!(page.write().unwrap().run(|guard| guard.check().is_ok()).unwrap());
    client.close().unwrap();
}

/// A store that understands mutexes only, and fails the test when it is asked for anything else.
#[derive(Debug)]
pub(crate) struct MutexesOnly(pub(crate) fencelock::memory::MemoryStore, pub(crate) Capability);

impl Store for MutexesOnly {
    fn capability(&self) -> &Capability {
        &self.1
    }

    fn open(&self, opening: Opening) -> BoxFuture<'_, Result<Opened>> {
        self.0.open(opening)
    }

    fn queue<'a>(&'a self, name: &'a Name, page: Page) -> BoxFuture<'a, Result<Queue>> {
        assert_eq!(name.as_str(), "shown");
        let one = Contender::new(RequestId { client: 1, number: 1 }, Claim::MUTEX);
        Box::pin(async move { Ok(Queue::page_of(name.clone(), vec![one], page)) })
    }

    fn names<'a>(&'a self, prefix: &'a str) -> futures_util::stream::BoxStream<'a, Result<Vec<Name>>> {
        panic!("{prefix} was asked for")
    }
}

#[test]
fn a_store_without_shared_claims_refuses_before_anything_is_sent() {
    on_one_thread(async {
        let memory = fencelock::memory::MemoryStore::new();
        let store = Arc::new(MutexesOnly(memory, Capability::least("mutexes", "mutexes 1")));
        let client = Client::builder().io(Io::CurrentRuntime).connect_store(store).await.unwrap();
        for error in [client.rwlock("a").unwrap_err(), client.semaphore("a", 3).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("store mutexes"), "{error}");
        }
        client.mutex("a").unwrap().acquire().await.unwrap().check().unwrap();
        client.semaphore("b", 1).unwrap().acquire().await.unwrap().check().unwrap();
        let shown = client.queue("shown").await.unwrap();
        assert!(shown.contenders[0].claim == Claim::MUTEX && shown.contenders[0].grant.is_none(), "{shown:?}");
    });
}
