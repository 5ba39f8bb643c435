//! Masters that are away or silent while the session asks the other masters.

use std::sync::Arc;
use std::time::Duration;

use fencelock::Name;
use fencelock::inspect::Claim;
use fencelock::memory::VirtualClock;
use fencelock::store::{Entered, Entry, Opening, Owner, Place, RequestId, Session, Standing, StoreUrl, open_url};
use fencelock::time::{Clock, SystemClock};
use fencelock_testbed::Way;

use crate::lab::{soon, until};
use crate::masters::Masters;

async fn session(masters: &Masters, clock: Arc<dyn Clock>) -> Arc<dyn Session> {
    let opening = Opening::here(Owner::new(7, "host", 1), Duration::from_secs(600), clock).unwrap();
    let store = open_url(StoreUrl::parse(&masters.url("rejoin_ms=0")).unwrap()).await.unwrap();
    soon(store.open(opening)).await.unwrap().session
}

async fn enters(session: &Arc<dyn Session>, number: u64, name: &str) -> Box<dyn Place> {
    let (name, id) = (Name::new(name).unwrap(), RequestId { client: 7, number });
    let entry = Entry { name, claim: Claim::MUTEX, id, wait: true, purpose: None };
    let Entered::In(place) = soon(session.enter(Arc::new(entry))).await.unwrap() else { panic!("it waits") };
    place
}

/// Asks for renewals until the session connects to that master once more: the session has then noticed that the master
/// is away.
async fn until_missed(masters: &Masters, index: usize, session: &Arc<dyn Session>) {
    let before = masters.proxies[index].connections();
    masters.proxies[index].reset();
    until("it is missed", async || {
        let _ = tokio::time::timeout(Duration::from_millis(20), session.renew(&Vec::new())).await;
        masters.proxies[index].connections() > before
    })
    .await;
}

#[tokio::test]
async fn a_release_without_a_majority_deletes_the_lock_where_it_can() {
    let masters = Masters::new(3);
    let session = session(&masters, Arc::new(SystemClock)).await;
    let mut place = enters(&session, 1, "job").await;
    until("all have it", async || masters.having("job") == 3).await;
    for index in [1, 2] {
        masters.proxies[index].refuse();
        until_missed(&masters, index, &session).await;
    }
    let error = soon(place.leave()).await.expect_err("too few answer");
    assert!(error.is_retryable(), "{error}");
    until("it is deleted where it can be", async || masters.having("job") == 2).await;
    masters.proxies.iter().for_each(|proxy| proxy.heal());
    until("it is left", async || place.leave().await.is_ok()).await;
    masters.until_free("job").await;
}

/// As the engine leaves a session that was not renewed in time: the request is dropped, and so is what closes the session.
#[tokio::test]
async fn a_request_that_outlives_its_session_takes_no_effect() {
    let masters = Masters::new(3);
    let session = session(&masters, Arc::new(SystemClock)).await;
    // The last one is being connected to, and the one before says nothing.
    masters.proxies[2].hold(Way::Both);
    until_missed(&masters, 2, &session).await;
    masters.proxies[1].hold(Way::Up);
    let enters = tokio::spawn({
        let session = Arc::clone(&session);
        async move { enters(&session, 1, "job").await }
    });
    until("one grants it", async || masters.having("job") == 1).await;
    enters.abort();
    masters.proxies[1].refuse();
    until_missed(&masters, 1, &session).await;
    let closed = tokio::time::timeout(Duration::from_millis(100), session.close()).await;
    assert!(!matches!(closed, Ok(Ok(()))), "too few answer");
    masters.proxies[2].release();
    masters.until_free("job").await;
    masters.proxies[1].heal();
    until("it is closed", async || session.close().await.is_ok()).await;
    let stats = masters.servers[2].ask(&["INFO", "commandstats"]).unwrap().to_string();
    assert!(!stats.contains("cmdstat_set:"), "{stats}");
}

#[tokio::test]
async fn a_vote_that_is_undecided_holds_up_no_other_lock() {
    let masters = Masters::new(3);
    let clock = VirtualClock::new();
    let session = session(&masters, Arc::new(clock.clone())).await;
    masters.taken_by_another("split", [0, 1]);
    masters.taken_by_another("free", [0, 1, 2]);
    let split = enters(&session, 1, "split").await;
    let mut free = enters(&session, 2, "free").await;
    let next = enters(&session, 3, "free").await;
    until("no other client has it", async || masters.having("split") == 2).await;
    // The first master has another holder, the second grants the lock, and the third is silent, for the clock of its
    // deadline is stopped.
    masters.servers[1].ask(&["DEL", "split"]).unwrap();
    masters.freed_by_another("free");
    masters.proxies[2].hold(Way::Both);
    let is_granted = |place: &dyn Place| matches!(place.standing(), Standing::Granted(_));
    let is_undecided = || matches!(split.standing(), Standing::Waiting(_)) && masters.having("split") == 2;
    clock.advance(Duration::from_secs(2));
    // A pause that begins only now is waited for, too. All of it is far less than the time of a vote.
    let pass = || clock.advance(Duration::from_millis(1));
    let after = async |what: &str, is_so: &dyn Fn() -> bool| {
        until(what, async || {
            pass();
            is_so()
        })
        .await;
    };
    after("the free one is granted", &|| is_granted(&*free)).await;
    after("the other one is asked for", &is_undecided).await;
    soon(free.leave()).await.unwrap();
    after("the next of its line has it", &|| is_granted(&*next)).await;
    assert!(is_undecided());
}
