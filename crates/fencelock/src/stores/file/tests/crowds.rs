//! Many waiters, many dead, many contenders for the same short lock: the cost of each to the others.

use std::task::Poll;

use futures_util::StreamExt;

use super::super::sessions::session_name;
use super::super::ticket::{EncodedName, Key, Ticket};
use super::*;
use crate::store::Page;

fn job() -> Name {
    Name::new("job").unwrap()
}

async fn queue_up(client: &mut Client, count: usize) -> Vec<Box<dyn Place>> {
    let mut places = Vec::new();
    for _ in 0..count {
        places.push(client.enter("job", Claim::MUTEX).await);
    }
    places
}

#[tokio::test]
async fn a_waiter_that_gives_up_reads_one_ticket_however_many_wait() {
    let directory = directory();
    let (near, far) = (store(&directory), store(&directory));
    let mut client = Client::on(&near);
    let places = queue_up(&mut client, 300).await;
    let mine: Vec<RequestId> = places.iter().map(|place| place.id().request).collect();
    for store in [&near, &far] {
        let read = |store: &FileStore| store.directory().counts.contents_read.load(Ordering::SeqCst);
        let before = read(store);
        let outline = store.contention(&job(), &mine).await.unwrap();
        assert_eq!((outline.queued, outline.holders), (300, 1));
        assert_eq!(outline.holder.unwrap().id, mine[0]);
        assert!(outline.positions.into_iter().eq((1..=300).map(Some)));
        assert_eq!(read(store) - before, 1);
        let page = store.queue(&job(), Page { skip: 100, limit: 7 }).await.unwrap();
        assert_eq!((page.contenders.len(), page.queued, page.contenders[0].id), (7, 300, mine[100]));
        assert_eq!(read(store) - before, 8);
    }
}

#[tokio::test]
async fn a_dead_holder_is_not_named_to_clients_that_give_up() {
    let directory = directory();
    let (near, far) = (store(&directory), store(&directory));
    let (mut dying, mut next) = (Client::on(&near), Client::on(&far));
    let _held = dying.enter("job", Claim::MUTEX).await;
    let waiting = next.enter("job", Claim::MUTEX).await;
    dying.core.drop_session();
    let id = waiting.id().request;
    let outline = far.contention(&job(), &[id]).await.unwrap();
    assert_eq!((outline.holder.map(|holder| holder.id), outline.positions), (Some(id), vec![Some(1)]));
}

#[tokio::test]
async fn the_renewal_of_many_places_lets_others_go_on_in_between() {
    let directory = directory();
    let here = store(&directory);
    let mut client = Client::on(&here);
    let places = queue_up(&mut client, 300).await;
    let ids: Vec<_> = places.iter().map(|place| place.id()).collect();
    let mut renewal = client.session.renew(&ids);
    let mut polls = 1;
    let polled = std::future::poll_fn(|context| match renewal.as_mut().poll(context) {
        Poll::Pending => {
            polls += 1;
            Poll::Pending
        }
        ready => ready,
    });
    assert!(polled.await.unwrap().gone.is_empty());
    assert!(polls >= 4, "it looked at 300 places in {polls} goes");
}

/// The system's clock, which shows until when a task sleeps at most.
#[derive(Debug, Default)]
pub(super) struct Naps(pub(super) std::sync::Mutex<Option<Moment>>);

impl Clock for Naps {
    fn now(&self) -> Moment {
        SystemClock.now()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn sleep_until(&self, at: Moment) -> BoxFuture<'_, ()> {
        *self.0.lock().unwrap() = Some(at);
        Box::pin(SystemClock.sleep_until(at))
    }
}

#[tokio::test]
async fn a_waiter_behind_its_own_process_is_notified_and_looks_for_nothing() {
    let directory = directory();
    let (here, clock) = (store(&directory), Arc::new(Naps::default()));
    let mut client = Client::with_clock(&here, Arc::clone(&clock) as Arc<dyn Clock>);
    let mut places = queue_up(&mut client, 2).await;
    let mut waiting = places.pop().unwrap();
    let started = SystemClock.now();
    let mut next = waiting.next(Moment::NEVER);
    let polled = std::future::poll_fn(|context| Poll::Ready(next.as_mut().poll(context).is_pending())).await;
    let wakes_at = clock.0.lock().unwrap().unwrap();
    assert!(polled && wakes_at.since(started) >= Duration::from_secs(30), "thousands of them would keep a core busy");
    places[0].leave().await.unwrap();
    assert!(matches!(next.await.unwrap(), Standing::Granted(_)));
}

#[tokio::test]
async fn the_dead_are_removed_a_bounded_number_at_a_time_until_nothing_is_left() {
    removed_step_by_step(|number| format!("random/{number}")).await;
}

#[tokio::test]
async fn the_dead_of_one_name_are_removed_a_bounded_number_at_a_time_until_nothing_is_left() {
    removed_step_by_step(|_| "job".to_owned()).await;
}

async fn removed_step_by_step(name: impl Fn(usize) -> String) {
    let directory = directory();
    let (near, far) = (store(&directory), store(&directory));
    let mut dying = Client::on(&near);
    for number in 0..3000 {
        let _ = dying.enter(&name(number), Claim::MUTEX).await;
    }
    dying.core.drop_session();
    let client = Client::on(&far);
    let after_opening = tickets(&directory);
    assert!((1500..=2000).contains(&after_opening), "the opening left {after_opening} of 3000");
    let (mut left, mut renewals) = (after_opening, 0);
    while sessions(&directory) > 1 {
        client.session.renew(&[]).await.unwrap();
        let now = tickets(&directory);
        assert!(left - now <= 1000, "a renewal removed {} of them", left - now);
        (left, renewals) = (now, renewals + 1);
        assert!(renewals < 100, "{left} are left");
    }
    assert_eq!(left, 0, "tickets go before the file of their session");
}

#[tokio::test]
async fn unreadable_parts_of_a_place_are_left_out_and_the_rest_is_shown() {
    let directory = directory();
    let here = store(&directory);
    let mut client = Client::on(&here);
    let _held = client.enter("job", Claim::MUTEX).await;
    let slot = EncodedName::of(&job());
    let bucket = directory.path().join(Directory::bucket_path(slot.bucket));
    let odd = Ticket { key: Key { seq: 1, session: client.core.id, number: 999 }, claim: Claim::MUTEX };
    std::fs::write(bucket.join(odd.file_name(&slot.encoded)), "not a link").unwrap();
    std::fs::write(directory.path().join("sessions").join(session_name(client.core.id)), "\0{").unwrap();
    let queue = here.queue(&job(), Page::ALL).await.unwrap();
    assert_eq!((queue.contenders.len(), queue.queued), (2, 2));
    assert!(queue.contenders.iter().all(|contender| contender.owner.is_none()));
    assert_eq!(queue.contenders[0].purpose, None);
    assert_eq!(queue.contenders[1].purpose.as_deref(), Some("a test"));
    // A bucket that is none.
    let other = EncodedName::of(&Name::new("another").unwrap()).bucket;
    std::fs::write(directory.path().join(Directory::bucket_path(other)), "").unwrap();
    assert_eq!(names(&here, "").await, [job()]);
    let error = here.queue(&Name::new("another").unwrap(), Page::ALL).await.unwrap_err();
    assert!(error.to_string().contains(&Directory::bucket_path(other)), "{error}");
}

#[tokio::test]
async fn a_try_that_meets_a_dead_crowd_gets_the_lock_and_removes_it() {
    let directory = directory();
    let (near, far) = (store(&directory), store(&directory));
    let (mut dying, mut client) = (Client::on(&near), Client::on(&far));
    drop(queue_up(&mut dying, 300).await);
    dying.core.drop_session();
    token(&*place(client.attempt("job").await));
    assert_eq!(tickets(&directory), 1);
}

#[tokio::test]
async fn a_refused_try_passes_over_those_that_left_and_died() {
    let directory = directory();
    let stores = [store(&directory), store(&directory), store(&directory), store(&directory)];
    let [mut leaves, mut dies, mut holds, mut trying] = stores.each_ref().map(Client::on);
    let mut left = leaves.enter("job", Claim::MUTEX).await;
    let _dead = dies.enter("job", Claim::MUTEX).await;
    let mut held = holds.enter("job", Claim::MUTEX).await;
    assert!(matches!(trying.attempt("job").await, Entered::Busy));
    left.leave().await.unwrap();
    assert!(matches!(trying.attempt("job").await, Entered::Busy));
    dies.core.drop_session();
    assert!(matches!(trying.attempt("job").await, Entered::Busy));
    token(&*{
        granted(&mut held).await;
        held.leave().await.unwrap();
        place(trying.attempt("job").await)
    });
}

/// The holder of a lock, and the waiter behind it.
fn kinds() -> [(Claim, Claim); 4] {
    let permits = |count| Claim::new(count, 4).unwrap();
    let pairs = [(Claim::MUTEX, Claim::MUTEX), (Claim::WRITER, Claim::WRITER), (Claim::WRITER, Claim::READER)];
    [pairs[0], pairs[1], pairs[2], (permits(4), permits(1))]
}

#[tokio::test]
async fn a_contender_behind_a_waiter_of_its_own_process_lists_nothing_however_many_wait() {
    for (theirs, ours) in kinds() {
        let directory = directory();
        let (near, far) = (store(&directory), store(&directory));
        let (mut holding, mut waiting) = (Client::on(&near), Client::on(&far));
        let mut held = holding.enter("job", theirs).await;
        let mut places = vec![waiting.enter("job", ours).await];
        let listings = || far.directory().counts.listings.load(Ordering::SeqCst);
        let first = listings();
        for _ in 0..50 {
            places.push(waiting.enter("job", ours).await);
        }
        assert_eq!(listings(), first, "the first {ours} found the holder");
        held.leave().await.unwrap();
        places.push(waiting.enter("job", ours).await);
        for mut place in places {
            granted(&mut place).await;
            place.leave().await.unwrap();
        }
    }
}

#[tokio::test]
async fn of_the_waiters_of_one_process_one_looks_at_the_store_however_many_wait() {
    // Of readers each looks at the writer.
    for (theirs, ours) in kinds().into_iter().filter(|(_, ours)| !ours.is_reader()) {
        let directory = directory();
        let (near, far) = (store(&directory), store(&directory));
        let (mut holding, mut waiting) = (Client::on(&near), Client::on(&far));
        let mut held = holding.enter("job", theirs).await;
        let mut places = Vec::new();
        for _ in 0..50 {
            places.push(waiting.enter("job", ours).await);
        }
        let so_far = || {
            let directory = far.directory();
            let counts =
                [&directory.counts.tickets_looked_for, &directory.counts.sessions_tested, &directory.counts.listings];
            counts.map(|count| count.load(Ordering::SeqCst))
        };
        // The first looks of each begin to listen, the later ones are those of a waiter without an event.
        for looks in 0..3 {
            places[0].next(SystemClock.now()).await.unwrap();
            let before = so_far();
            for place in &mut places[1..] {
                place.next(SystemClock.now()).await.unwrap();
                assert!(waits(&**place));
            }
            assert_eq!(so_far(), before, "the others of {ours} look at nothing, after {looks} looks");
        }
        held.leave().await.unwrap();
        let mut waiting = futures_util::stream::FuturesUnordered::new();
        for mut place in places {
            waiting.push(async move {
                granted(&mut place).await;
                place.leave().await.unwrap();
            });
        }
        while waiting.next().await.is_some() {}
        assert_eq!(tickets(&directory), 0);
    }
}

#[tokio::test]
async fn a_try_sees_that_a_writer_it_knows_became_a_reader() {
    let directory = directory();
    let (near, far) = (store(&directory), store(&directory));
    let (mut client, mut trying) = (Client::on(&near), Client::on(&far));
    let mut held = client.enter("job", Claim::WRITER).await;
    let mut attempt = async |claim| {
        let entry = trying.entry("job", claim, false);
        trying.session.enter(entry).await.unwrap()
    };
    assert!(matches!(attempt(Claim::READER).await, Entered::Busy));
    held.lighten(Claim::READER).await.unwrap();
    assert!(matches!(attempt(Claim::WRITER).await, Entered::Busy), "its reader holds the lock");
    token(&*place(attempt(Claim::READER).await));
}

#[tokio::test]
async fn a_waiter_passes_over_a_dead_crowd() {
    for (theirs, mine) in [(Claim::MUTEX, Claim::MUTEX), (Claim::WRITER, Claim::READER)] {
        let directory = directory();
        let (near, far) = (store(&directory), store(&directory));
        let mut waiting = Client::on(&far);
        let mut dying: Vec<_> = (0..50).map(|_| Client::on(&near)).collect();
        for client in &mut dying {
            drop(client.enter("job", theirs).await);
        }
        let mut place = waiting.enter("job", mine).await;
        assert!(waits(&*place));
        for client in &dying {
            client.core.drop_session();
        }
        granted(&mut place).await;
        assert_eq!(tickets(&directory), 1);
    }
}

#[tokio::test]
async fn names_are_listed_however_many_of_the_dead_have_names() {
    const DEAD: usize = 5000;
    let directory = directory();
    let (near, far) = (store(&directory), store(&directory));
    let (mut dying, mut client) = (Client::on(&near), Client::on(&far));
    let _held = client.enter("job", Claim::MUTEX).await;
    for number in 0..DEAD {
        drop(dying.enter(&format!("dead {number}"), Claim::MUTEX).await);
    }
    dying.core.drop_session();
    let tested = || far.directory().counts.sessions_tested.load(Ordering::SeqCst);
    let before = tested();
    assert_eq!(names(&far, "").await, [job()]);
    assert_eq!(tested() - before, 1, "a session is tested once, however many names it has");
    let before = tested();
    assert_eq!(names(&far, "j").await, [job()]);
    assert_eq!(tickets(&directory), DEAD + 1, "who looks removes nothing");
    assert_eq!(tested(), before, "the one that may be shown is of this process");
}
