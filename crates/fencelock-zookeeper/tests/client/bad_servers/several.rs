//! Several servers, of which some are silent, or owe an answer: which one is asked next.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fencelock_testbed::zookeeper::shared;
use fencelock_zookeeper::{Acl, BoxFuture, Client, Config, CreateMode, Event, Net, Stream, Tcp};

use super::{closed_port, connect_string, refused, silent};
use crate::common::fake::{Fake, welcome};
use crate::common::{LASTING, PATIENCE, event, soon};

/// Longer than a test waits; so is a twelfth of it.
const HOUR: Duration = Duration::from_secs(3600);
const HOUR_MS: i32 = 3_600_000;

#[tokio::test]
async fn silent_servers_keep_no_client_from_the_one_that_answers() {
    let silent = silent(4).await;
    let servers = connect_string(silent.iter().map(|fake| fake.address).chain([shared().address()]));
    // An attempt may take longer than the test waits.
    let config = Config::new(&servers).unwrap().session_timeout(HOUR).attempt(HOUR);
    for _ in 0..5 {
        let (client, _) = soon(Client::connect(config.clone())).await.unwrap();
        assert_eq!(client.session().server, shared().address().to_string());
    }
}

#[tokio::test]
async fn the_error_names_every_server_that_was_tried_the_silent_ones_too() {
    let silent = silent(3).await;
    let closed = closed_port();
    let servers = connect_string(silent.iter().map(|fake| fake.address).chain([closed]));
    let error = refused(Config::new(&servers).unwrap()).await;
    for address in silent.iter().map(|fake| fake.address).chain([closed]) {
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

/// Resolves a name to several addresses.
#[derive(Debug)]
struct Several(Vec<SocketAddr>);

impl Net for Several {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async { Ok(self.0.clone()) })
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        Tcp.connect(address)
    }
}

#[tokio::test]
async fn of_the_addresses_of_one_name_the_one_that_was_left_is_dialled_last() {
    let fakes = [Fake::new().await, Fake::new().await];
    let net = Several(fakes.iter().map(|fake| fake.address).collect());
    let config = Config::new("name").unwrap().net(Arc::new(net)).session_timeout(PATIENCE);
    let connecting = tokio::spawn(Client::connect(config));
    let next = async || {
        tokio::select! {
            peer = fakes[0].accept() => (0, peer),
            peer = fakes[1].accept() => (1, peer),
        }
    };
    let (mut at, mut peer) = soon(next()).await;
    peer.read().await;
    peer.write(&welcome(7, 60_000, false)).await;
    let (client, mut events) = soon(connecting).await.unwrap().unwrap();
    for round in 0..10 {
        drop(peer);
        let last = at;
        (at, peer) = soon(next()).await;
        assert_ne!(at, last, "in round {round}");
        peer.read().await;
        peer.write(&welcome(7, 60_000, false)).await;
        event(&mut events, |event| matches!(event, Event::Reconnected { .. })).await;
    }
    drop((peer, fakes));
    drop(client);
}

#[tokio::test]
async fn a_session_is_continued_on_one_server_and_never_closed_on_another() {
    let (first, second) = (Fake::new().await, Fake::new().await);
    let servers = connect_string([first.address, second.address]);
    let connecting = tokio::spawn(Client::connect(Config::new(&servers).unwrap().session_timeout(LASTING)));
    let mut begun = tokio::select! {
        peer = first.accept() => peer,
        peer = second.accept() => peer,
    };
    begun.read().await;
    begun.write(&welcome(7, 60_000, false)).await;
    let (client, _events) = soon(connecting).await.unwrap().unwrap();
    drop(begun);
    let (mut one, mut two) = (soon(first.accept()).await, soon(second.accept()).await);
    one.read().await;
    two.read().await;
    one.write(&welcome(7, 60_000, false)).await;
    soon(two.hung_up()).await;
    assert_eq!(client.session().id, 7);
}

/// A client that left its server while a write was unanswered. Returns the client, that server, and the other one.
async fn left_owing_a_write(timeout_ms: i32, attempt: Duration) -> (Client, Fake, Fake) {
    let (first, second) = (Fake::new().await, Fake::new().await);
    let config = Config::new(&connect_string([first.address, second.address])).unwrap();
    let timeout = Duration::from_millis(timeout_ms.unsigned_abs().into());
    let connecting = tokio::spawn(Client::connect(config.session_timeout(timeout).attempt(attempt)));
    let (mut peer, is_first) = soon(async {
        tokio::select! {
            peer = first.accept() => (peer, true),
            peer = second.accept() => (peer, false),
        }
    })
    .await;
    let (left, other) = if is_first { (first, second) } else { (second, first) };
    soon(peer.read()).await;
    peer.write(&welcome(7, timeout_ms, false)).await;
    let (client, _events) = soon(connecting).await.unwrap().unwrap();
    let created = client.create("/a", b"", CreateMode::Persistent, &[Acl::open()]);
    soon(peer.read()).await;
    drop(peer);
    assert!(soon(created).await.unwrap_err().outcome_unknown());
    (client, left, other)
}

#[tokio::test]
async fn a_server_that_owes_the_answer_to_a_write_is_not_asked_while_another_one_may_answer() {
    let (client, left, other) = left_owing_a_write(HOUR_MS, HOUR).await;
    let mut slow = soon(other.accept()).await;
    soon(slow.read()).await;
    // A server that owes no reply would be asked after a fifth of that time.
    let asked = tokio::time::timeout(Duration::from_secs(1), left.accept()).await;
    assert!(asked.is_err(), "it would take the session back, and the write would take effect");
    slow.write(&welcome(7, HOUR_MS, false)).await;
    let goes_on = client.exists("/");
    assert_eq!(soon(slow.read()).await[4..8], 3_i32.to_be_bytes(), "nothing is doubted");
    drop((goes_on, left));
}

#[tokio::test]
async fn a_server_that_owes_the_answer_to_a_write_is_asked_at_once_when_the_others_fail() {
    let (_client, left, other) = left_owing_a_write(HOUR_MS, HOUR).await;
    drop(soon(other.accept()).await);
    drop(other);
    soon(soon(left.accept()).await.read()).await;
}

#[tokio::test]
async fn a_server_that_owes_the_answer_to_a_write_is_asked_in_time_when_the_others_are_silent() {
    // The attempt at the silent server lasts for 23 s, and the other server is asked after 2 s.
    let (_client, left, other) = left_owing_a_write(24_000, Duration::from_secs(23)).await;
    let mut silent = soon(other.accept()).await;
    soon(silent.read()).await;
    soon(soon(left.accept()).await.read()).await;
    // From then on both servers are asked concurrently.
    let ended = tokio::time::timeout(Duration::from_millis(100), silent.try_read()).await;
    assert!(ended.is_err(), "the silent one was given up: {ended:?}");
}
