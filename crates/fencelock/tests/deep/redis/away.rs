//! A server that is away for a while: calls that wait for it, and errors that report it.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencelock::inspect::Claim;
use fencelock::observe::Observer;
use fencelock::store::{Entered, Entry, Opening, Owner, RequestId, Standing, StoreUrl, open_url};
use fencelock::time::{Clock, Moment, SystemClock};
use fencelock::{Client, ErrorKind, Health, Name, Retry};
use fencelock_testbed::Proxy;
use fencelock_testbed::redis::{Server, Settings};

use super::lab::{PATIENCE, Seen, acquired, acquiring, client, server, soon, until, until_queued};

#[tokio::test]
async fn a_client_that_has_time_to_connect_waits_until_the_server_runs() {
    let server = server(Settings::default());
    server.kill();
    let url = server.url();
    let connecting = tokio::spawn(async move { Client::builder().connect_timeout(PATIENCE).connect(&url).await });
    assert_eq!(Client::connect(&server.url()).await.unwrap_err().kind(), ErrorKind::Unreachable);
    server.restart().unwrap();
    let client = soon(connecting).await.unwrap().unwrap();
    client.mutex("job").unwrap().acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_client_whose_time_to_connect_is_up_names_the_server_that_it_did_not_reach() {
    let server = server(Settings::default());
    server.kill();
    let start = Instant::now();
    let limit = Duration::from_millis(500);
    let error = Client::builder().connect_timeout(limit).connect(&server.url()).await.unwrap_err();
    assert!(start.elapsed() >= limit, "{:?}", start.elapsed());
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains(&server.address().to_string()), "{error}");
    // An error that no retry can mend is returned at once.
    let secure = server_with_password();
    let error = Client::builder().connect_timeout(PATIENCE).connect(&secure.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn a_quiet_waiter_outlives_short_outages_that_are_far_apart() {
    let server = server(Settings::default());
    let proxy = Proxy::start(server.address()).unwrap();
    let seen = Arc::new(Seen::default());
    let give_up_after = Duration::from_secs(2);
    let retry = Retry::default().give_up_after(give_up_after);
    let options = Client::builder().observer(Arc::clone(&seen) as Arc<dyn Observer>).retry(retry);
    let waiter =
        options.connect_timeout(PATIENCE).connect(&format!("redis://{}?ttl_ms=6000", proxy.address())).await.unwrap();
    let holder = Client::connect(&server.url()).await.unwrap();
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let waiting = acquiring(&waiter, "job");
    until_queued(&holder, "job", 2).await;
    for _ in 0..3 {
        let (failed, start) = (seen.retried.lock().unwrap().len(), Instant::now());
        proxy.refuse();
        proxy.reset();
        until("the waiter learns of it", async || seen.retried.lock().unwrap().len() > failed || waiting.is_finished())
            .await;
        proxy.heal();
        let certain = |client: &Client| match client.health() {
            Health::Confirmed(left) => Some(left),
            _ => None,
        };
        let before = certain(&waiter);
        until("the session is confirmed, long after the failure", async || {
            (certain(&waiter) > before && start.elapsed() > give_up_after * 2) || waiting.is_finished()
        })
        .await;
        assert!(!waiting.is_finished(), "the waiter gave up");
    }
    guard.release().await.unwrap();
    acquired(waiting).await.release().await.unwrap();
}

#[tokio::test]
async fn a_wait_for_a_server_that_is_gone_or_silent_is_an_outage() {
    let server = server(Settings::default());
    let holder = client(&server.url(), 20_000).await;
    let other = client(&format!("{}?request_deadline_ms=400", server.url()), 20_000).await;
    let _guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let lock = other.mutex("job").unwrap();
    let contended = lock.acquire_within(Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(contended.kind(), ErrorKind::TimedOut, "{contended:?}");
    for breaks in [Server::pause as fn(&Server), Server::kill] {
        breaks(&server);
        let start = Instant::now();
        let error = soon(lock.acquire_within(Duration::from_millis(500))).await.unwrap_err();
        assert!(start.elapsed() >= Duration::from_millis(500), "{:?}", start.elapsed());
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
        assert!(error.contention().is_none(), "{error:?}");
    }
}

#[tokio::test]
async fn a_wait_whose_server_goes_silent_or_away_in_its_midst_is_an_outage() {
    for breaks in [Server::pause as fn(&Server), Server::kill] {
        let server = server(Settings::default());
        // Renewals are too rare to notice the outage.
        let holder = client(&server.url(), 120_000).await;
        let other = client(&format!("{}?request_deadline_ms=3000", server.url()), 120_000).await;
        let _guard = holder.mutex("job").unwrap().acquire().await.unwrap();
        let lock = other.mutex("job").unwrap();
        let waiting = tokio::spawn(async move { lock.acquire_within(Duration::from_secs(10)).await });
        until_queued(&holder, "job", 2).await;
        breaks(&server);
        let error = soon(waiting).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
        assert!(error.contention().is_none(), "{error:?}");
    }
}

fn server_with_password() -> Server {
    server(Settings { password: Some("secret".to_owned()), ..Settings::default() })
}

#[tokio::test]
async fn a_waiter_notified_of_an_outage_is_notified_of_its_end_although_nothing_else_happened() {
    let server = server(Settings::default());
    let way = Proxy::start(server.address()).unwrap();
    let holder = client(&server.url(), 60_000).await;
    let _guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let url = StoreUrl::parse(&format!("redis://{}", way.address())).unwrap();
    let store = open_url(url).await.unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let owner = Owner::new(1, "", 0);
    let opened = store.open(Opening::here(owner, PATIENCE, clock).unwrap()).await.unwrap();
    let entry = Entry {
        name: Name::new("job").unwrap(),
        claim: Claim::MUTEX,
        id: RequestId { client: 1, number: 1 },
        wait: true,
        purpose: None,
    };
    let Entered::In(mut place) = opened.session.enter(Arc::new(entry)).await.unwrap() else { panic!("no place") };
    for _blip in 0..2 {
        way.refuse();
        way.reset();
        assert_eq!(soon(place.next(Moment::NEVER)).await.unwrap_err().kind(), ErrorKind::Unreachable);
        way.heal();
        // The keeper of the session is the first to use the new connection.
        until("the session is renewed", async || opened.session.renew(&[]).await.is_ok()).await;
        assert!(matches!(soon(place.next(Moment::NEVER)).await, Ok(Standing::Waiting(_))));
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_is_waited_for_as_long_as_a_request_may_take() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let (ttl, deadline) = (Duration::from_secs(3), Duration::from_secs(2));
    let error = Client::builder().ttl(ttl).request_deadline(deadline).connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("1.8s"), "{error}");
}
