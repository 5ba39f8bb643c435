//! The scripted faults; the laws of a store are in the conformance suite.

use std::task::{Context, Waker};

use futures_util::{StreamExt, TryStreamExt};

use super::*;
use crate::error::Outcome;
use crate::queue::Claim;
use crate::store::{
    Entered, Entry, GrantId, Left, Loss, Opened, Opening, Owner, Place, RequestId, Session, SessionEvent, Standing,
    open_url,
};
use crate::time::Moment;

const TTL: Duration = Duration::from_secs(10);

fn entry(number: u64) -> Arc<Entry> {
    Arc::new(Entry {
        name: Name::new("job").unwrap(),
        claim: Claim::MUTEX,
        id: RequestId { client: 7, number },
        wait: true,
        purpose: None,
    })
}

async fn open(store: &MemoryStore) -> Opened {
    let owner = Owner { client: 7, host: "host".to_owned(), pid: 1 };
    let clock = store.clock().unwrap_or_else(|| Arc::new(SystemClock));
    store.open(Opening::here(owner, TTL, clock).unwrap()).await.unwrap()
}

async fn enter(session: &dyn Session, number: u64) -> Box<dyn Place> {
    match session.enter(entry(number)).await.unwrap() {
        Entered::In(place) => place,
        _ => panic!("a waiting contender is always let in"),
    }
}

fn is_pending<T>(future: &mut BoxFuture<'_, T>) -> bool {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[tokio::test]
async fn a_cut_off_client_gets_no_news_expires_and_is_notified_when_healed() {
    let (store, clock) = MemoryStore::with_virtual_clock();
    let (alice, bob) = (store.another_process(), store.another_process());
    let (mut hers, his) = (open(&alice).await, open(&bob).await);
    let held = enter(&*hers.session, 1).await;
    let mut waiting = enter(&*his.session, 2).await;
    alice.partition();
    let places = [held.id()];
    let mut renewal = hers.session.renew(&places);
    assert!(is_pending(&mut renewal));
    clock.advance(TTL / 2);
    his.session.renew(&[]).await.expect("another client notices nothing");
    assert!(matches!(waiting.next(clock.now()).await.unwrap(), Standing::Waiting(_)));
    clock.advance(TTL / 2);
    assert!(matches!(waiting.next(Moment::NEVER).await.unwrap(), Standing::Granted(_)));
    assert!(is_pending(&mut renewal));
    assert_eq!(hers.session.over(), None, "the client is not notified yet");
    alice.heal();
    assert_eq!(renewal.await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(hers.session.over(), Some(Loss::Expired));
    assert_eq!(hers.events.next().await, Some(SessionEvent::Over));
}

#[tokio::test]
async fn a_waiter_that_is_cut_off_fails_at_the_end_of_its_wait() {
    let (store, clock) = MemoryStore::with_virtual_clock();
    let opened = open(&store).await;
    let (_held, mut waiting) = (enter(&*opened.session, 1).await, enter(&*opened.session, 2).await);
    store.partition();
    let until = clock.now().after(Duration::from_secs(1));
    let mut next = waiting.next(until);
    assert!(is_pending(&mut next));
    clock.advance(Duration::from_secs(1));
    assert_eq!(next.await.unwrap_err().kind(), ErrorKind::Unreachable);
}

#[tokio::test]
async fn a_lost_reply_leaves_its_effect_and_the_same_request_finds_it() {
    let store = MemoryStore::new();
    let opened = open(&store).await;
    store.lose_next_reply(Operation::Enter);
    let error = opened.session.enter(entry(1)).await.err().unwrap();
    assert_eq!((error.outcome(), error.is_retryable()), (Outcome::Unknown, true));
    assert_eq!(store.census().places, 1);
    let mut place = enter(&*opened.session, 1).await;
    assert!(matches!(place.standing(), Standing::Granted(_)));
    assert_eq!(store.census().places, 1);
    store.lose_next_reply(Operation::Leave);
    place.leave().await.unwrap_err();
    assert_eq!(place.leave().await.unwrap(), Left::AlreadyGone);
    assert_eq!(store.census().places, 0);
}

#[tokio::test]
async fn a_delayed_request_arrives_late_unless_it_was_withdrawn() {
    let store = MemoryStore::new();
    let opened = open(&store).await;
    for withdrawn in [false, true] {
        let late = store.delay_next(Operation::Enter);
        let mut request = opened.session.enter(entry(1));
        assert!(is_pending(&mut request));
        late.caught().await;
        drop(request);
        assert_eq!(store.census().places, 0);
        if withdrawn {
            opened.session.withdraw(&entry(1).name, entry(1).id).await.unwrap();
        }
        assert_eq!(late.release(), !withdrawn);
        assert_eq!(store.census().places, usize::from(!withdrawn));
        opened.session.withdraw(&entry(1).name, entry(1).id).await.unwrap();
    }
    assert_eq!(store.census().names, 0);
}

#[tokio::test]
async fn a_delayed_open_whose_caller_gave_up_expires_and_is_forgotten() {
    let (store, clock) = MemoryStore::with_virtual_clock();
    let owner = Owner { client: 7, host: String::new(), pid: 0 };
    let late = store.delay_next(Operation::Open);
    let mut request = store.open(Opening::here(owner, TTL, store.clock().unwrap()).unwrap());
    assert!(is_pending(&mut request));
    drop(request);
    assert!(late.release());
    assert_eq!(store.census().sessions, 1);
    clock.advance(TTL);
    assert_eq!(store.census(), Census::default());
}

#[tokio::test]
async fn a_slow_renewal_counts_from_its_sending_and_reaches_the_store_late() {
    let (store, clock) = MemoryStore::with_virtual_clock();
    let opened = open(&store).await;
    let sent = clock.now();
    store.slow_renewals(Duration::from_secs(3));
    let mut renewal = opened.session.renew(&[]);
    assert!(is_pending(&mut renewal));
    clock.advance(Duration::from_secs(3));
    assert_eq!(renewal.await.unwrap().confirmed, sent);
    clock.advance(TTL - Duration::from_millis(1));
    assert_eq!(store.census().sessions, 1);
    clock.advance(Duration::from_millis(1));
    assert_eq!(store.census().sessions, 0);
}

#[tokio::test]
async fn a_crashed_client_is_never_answered_and_its_places_expire() {
    let (store, clock) = MemoryStore::with_virtual_clock();
    let alice = store.another_process();
    let opened = open(&alice).await;
    let mut place = enter(&*opened.session, 1).await;
    alice.crash();
    let mut leave = place.leave();
    assert!(is_pending(&mut leave));
    clock.advance(TTL);
    assert!(is_pending(&mut leave));
    assert_eq!(store.census(), Census::default());
}

#[tokio::test]
async fn a_test_expires_the_sessions_of_one_client_and_no_others() {
    let store = MemoryStore::new();
    let (alice, bob) = (store.another_process(), store.another_process());
    let (mut hers, his) = (open(&alice).await, open(&bob).await);
    let mut held = enter(&*hers.session, 1).await;
    let mut waiting = enter(&*his.session, 2).await;
    alice.expire_sessions();
    assert_eq!(hers.events.next().await, Some(SessionEvent::Over));
    assert_eq!(held.standing(), Standing::Lost(Loss::Expired));
    assert_eq!(held.next(Moment::NEVER).await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(matches!(waiting.next(Moment::NEVER).await.unwrap(), Standing::Granted(_)));
    assert_eq!(hers.session.enter(entry(3)).await.err().unwrap().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_place_taken_out_by_a_stranger_is_reported() {
    let store = MemoryStore::new();
    let mut opened = open(&store).await;
    let held = enter(&*opened.session, 1).await;
    let Standing::Granted(grant) = held.standing() else { panic!("{:?}", held.standing()) };
    assert!(store.remove(&held.id()));
    assert_eq!(held.standing(), Standing::Lost(Loss::Removed));
    let gone = GrantId { place: held.id(), token: grant.token };
    assert_eq!(opened.events.next().await, Some(SessionEvent::Gone(gone, Loss::Removed)));
    assert_eq!(opened.session.renew(&[held.id()]).await.unwrap().gone, [(held.id(), Loss::Removed)]);
    assert!(!store.remove(&held.id()));
}

#[tokio::test]
async fn a_url_names_a_store_that_the_process_shares_or_one_of_its_own() {
    let open_text = async |url: &str| open_url(StoreUrl::parse(url).unwrap()).await;
    let (one, same) = (open_text("memory:a").await.unwrap(), open_text("memory:a").await.unwrap());
    let owner = Owner { client: 1, host: String::new(), pid: 0 };
    let opened = one.open(Opening::here(owner, TTL, Arc::new(SystemClock)).unwrap()).await.unwrap();
    let _place = enter(&*opened.session, 1).await;
    assert_eq!(same.names("").try_concat().await.unwrap().len(), 1);
    assert_eq!(open_text("memory:").await.unwrap().names("").try_concat().await.unwrap().len(), 0);
    assert_eq!(open_text("memory:b").await.unwrap().names("").try_concat().await.unwrap().len(), 0);
    for url in ["memory://a", "memory:///a", "memory://me@/a", "memory:a?x=1"] {
        assert_eq!(open_text(url).await.unwrap_err().kind(), ErrorKind::Config, "{url}");
    }
}

#[tokio::test]
async fn a_session_whose_handles_are_dropped_lives_until_its_ttl() {
    let (store, clock) = MemoryStore::with_virtual_clock();
    let opened = open(&store).await;
    drop(enter(&*opened.session, 1).await);
    drop(opened);
    assert_eq!(store.census(), Census { sessions: 1, names: 1, places: 1 });
    clock.advance(TTL);
    assert_eq!(store.census(), Census::default());
}
