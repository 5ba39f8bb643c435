//! Peers that are no server, refuse, or answer too late: the error of a client that connects, and the state that it
//! leaves.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fencelock_testbed::zookeeper::shared;
use fencelock_zookeeper::{BoxFuture, Client, Config, ErrorKind, Event, Net, Stream, Tcp};
use tokio::net::TcpStream;

use super::{closed_port, connect_string, refused};
use crate::common::fake::{Fake, header, welcome};
use crate::common::{LASTING, PATIENCE, event, soon};

#[tokio::test]
async fn where_no_server_is_the_error_names_each_address_and_why() {
    let (one, two) = (closed_port(), closed_port());
    let error = refused(Config::new(&format!("{one},{two}")).unwrap()).await;
    assert_eq!((error.kind(), error.outcome_unknown()), (ErrorKind::Unreachable, false));
    for told in [one.to_string(), two.to_string(), "refused".to_owned()] {
        assert!(error.to_string().contains(&told), "{error}");
    }
}

#[tokio::test]
async fn another_service_on_the_port_is_recognised_by_its_answer() {
    let services: [(&[u8], &str); 3] = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        (b"-ERR unknown command\r\n", "-ERR"),
        (b"\x00\x00\x00\x0cno zookeeper", "no ZooKeeper server"),
    ];
    for (said, shown) in services {
        let fake = Fake::new().await;
        let config = fake.config();
        let task = tokio::spawn(fake.say(said));
        let error = refused(config).await;
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert!(error.to_string().contains(shown), "{error}");
        task.abort();
    }
}

#[tokio::test]
async fn a_service_that_waits_for_more_is_recognised_by_its_silence() {
    let fake = Fake::new().await;
    let error = refused(fake.config()).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("did not answer"), "{error}");
}

#[tokio::test]
async fn a_server_that_stops_in_the_middle_of_its_first_frame_is_left() {
    let fake = Fake::new().await;
    let config = fake.config();
    let task = tokio::spawn(fake.say(b"\x00\x00\x00\x25\x00\x00"));
    let error = refused(config).await;
    assert!(error.to_string().contains("did not answer"), "{error}");
    task.abort();
}

#[tokio::test]
async fn servers_that_only_read_are_refused_and_named_so() {
    let fake = Fake::new().await;
    let config = fake.config();
    let task = tokio::spawn(async move {
        loop {
            let mut peer = fake.accept().await;
            peer.read().await;
            peer.write(&welcome(7, 1500, true)).await;
            peer.hung_up().await;
        }
    });
    let error = refused(config).await;
    assert_eq!(error.kind(), ErrorKind::ReadOnlyServer, "{error}");
    task.abort();
}

#[tokio::test]
async fn three_wrong_hosts_do_not_keep_a_client_from_the_right_one() {
    let http = Fake::new().await;
    let silent = Fake::new().await;
    let servers = format!("{},{},{},{}", closed_port(), http.address, silent.address, shared().address());
    let task = tokio::spawn(http.say(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    let (client, _) =
        soon(Client::connect(Config::new(&servers).unwrap().session_timeout(LASTING).connect_deadline(PATIENCE)))
            .await
            .unwrap();
    assert_eq!(client.session().server, shared().address().to_string());
    task.abort();
}

/// Resolves every name to addresses without a server and one with a server.
#[derive(Debug)]
struct Names;

impl Net for Names {
    fn resolve<'a>(&'a self, host: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            match host {
                "many" => Ok(vec![closed_port(), shared().address(), closed_port()]),
                "none" => Ok(Vec::new()),
                _ => Err(io::Error::other("there is no such name")),
            }
        })
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        Tcp.connect(address)
    }
}

#[tokio::test]
async fn all_addresses_of_a_name_are_tried() {
    let config = |servers: &str| Config::new(servers).unwrap().net(Arc::new(Names)).connect_deadline(PATIENCE);
    for _ in 0..5 {
        let (client, _) = soon(Client::connect(config("many"))).await.unwrap();
        assert_eq!(client.session().server, format!("many:2181 ({})", shared().address()));
    }
    let error = refused(config("none,wrong")).await;
    assert!(error.to_string().contains("has no address"), "{error}");
    assert!(error.to_string().contains("there is no such name"), "{error}");
}

#[tokio::test]
async fn a_server_is_reached_by_ipv6() {
    let fake = Fake::on("[::1]:0").await;
    let config = fake.lasting().connect_deadline(PATIENCE);
    let bridge = tokio::spawn(async move {
        loop {
            let mut near = fake.accept().await.0;
            let mut far = TcpStream::connect(shared().address()).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        }
    });
    let (client, _) = soon(Client::connect(config)).await.unwrap();
    assert!(client.exists("/").await.unwrap().is_some());
    client.close().await.unwrap();
    bridge.abort();
}

#[tokio::test]
async fn a_session_that_is_given_too_late_is_closed() {
    let (late, other) = (Fake::new().await, Fake::new().await);
    let servers = connect_string([late.address, other.address]);
    // The client waits for the late server as long as an attempt may take: longer than any test waits.
    let config = Config::new(&servers).unwrap().session_timeout(Duration::from_secs(3600));
    let connecting = tokio::spawn(Client::connect(config));
    let mut peers = Vec::new();
    for fake in [&late, &other] {
        let mut peer = fake.accept().await;
        peer.read().await;
        peers.push(peer);
    }
    let (mut winner, mut loser) = (peers.pop().unwrap(), peers.pop().unwrap());
    winner.write(&welcome(7, 3_600_000, false)).await;
    let (client, _events) = soon(connecting).await.unwrap().unwrap();
    assert_eq!(client.session().id, 7);
    loser.write(&welcome(8, 3_600_000, false)).await;
    // Its operation is -11, "close".
    assert_eq!(soon(loser.read()).await[4..8], (-11_i32).to_be_bytes());
    let waits = client.exists("/");
    assert_eq!(soon(winner.read()).await[4..8], 3_i32.to_be_bytes(), "the session that was taken continues");
    drop(waits);
}

#[tokio::test]
async fn a_session_that_comes_after_the_attempt_was_given_up_is_closed() {
    let fake = Fake::new().await;
    let config = fake.config().session_timeout(PATIENCE).attempt(Duration::from_millis(100));
    let connecting = tokio::spawn(Client::connect(config));
    let mut slow = fake.accept().await;
    slow.read().await;
    // Another attempt proves that the first one was given up.
    let _next = soon(fake.accept()).await;
    slow.write(&welcome(8, 10_000, false)).await;
    assert_eq!(soon(slow.read()).await[4..8], (-11_i32).to_be_bytes());
    connecting.abort();
}

#[test]
fn a_connect_that_is_dropped_outside_its_runtime_leaves_no_session_behind() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let fake = runtime.block_on(Fake::new());
    let mut connecting = Box::pin(Client::connect(fake.config().session_timeout(PATIENCE)));
    let mut peer = runtime.block_on(async {
        tokio::select! {
            connected = &mut connecting => panic!("{:?}", connected.map(|(client, _)| client)),
            peer = async { let mut peer = fake.accept().await; peer.read().await; peer } => peer,
        }
    });
    drop(connecting);
    runtime.block_on(async {
        peer.write(&welcome(8, 10_000, false)).await;
        assert_eq!(soon(peer.read()).await[4..8], (-11_i32).to_be_bytes());
    });
}

#[tokio::test]
async fn the_code_of_a_server_that_refuses_a_session_or_credentials_is_in_the_error() {
    let fake = Fake::new().await;
    let config = fake.config();
    let task = tokio::spawn(async move {
        loop {
            let mut peer = fake.accept().await;
            peer.read().await;
            peer.write(&[&[0; 4][..], &header(1, -119)].concat()).await;
            peer.hung_up().await;
        }
    });
    let error = refused(config).await;
    assert_eq!((error.kind(), error.code()), (ErrorKind::ReadOnlyServer, Some(-119)), "{error}");
    task.abort();
    let fake = Fake::new().await;
    let connecting = tokio::spawn(Client::connect(fake.lasting().auth("digest", "a:b")));
    let mut peer = fake.welcome(7, 60_000).await;
    let auth = peer.read().await;
    peer.write(&[&auth[..4], &header(7, -124)].concat()).await;
    let error = soon(connecting).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::AuthFailed, Some(-124)), "{error}");
}

/// Resolves a name once. Later it reports that there is no such name, or never answers.
#[derive(Debug, Default)]
struct Once {
    was_asked: std::sync::atomic::AtomicBool,
    is_silent: bool,
}

impl Net for Once {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            match self.was_asked.swap(true, std::sync::atomic::Ordering::Relaxed) {
                false => Ok(vec![shared().address()]),
                true if self.is_silent => std::future::pending().await,
                true => Err(io::Error::other("there is no such name")),
            }
        })
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        Tcp.connect(address)
    }
}

#[tokio::test]
async fn addresses_that_were_known_do_when_a_name_cannot_be_resolved_any_more() {
    for is_silent in [false, true] {
        let names = Once { is_silent, ..Once::default() };
        let config = Config::new("name").unwrap().net(Arc::new(names)).connect_deadline(PATIENCE);
        for _ in 0..2 {
            // Without a known address, the client waits for a name server as long as an attempt may take.
            let config = config.clone().session_timeout(2 * PATIENCE).attempt(2 * PATIENCE);
            let (client, _) = soon(Client::connect(config)).await.unwrap();
            client.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_server_that_grants_a_month_makes_no_client_wait_longer() {
    let fake = Fake::new().await;
    let connecting = tokio::spawn(Client::connect(fake.config()));
    let mut peer = fake.welcome(7, i32::MAX).await;
    let (client, mut events) = soon(connecting).await.unwrap().unwrap();
    let unanswered = client.exists("/");
    peer.read().await;
    assert!(soon(unanswered).await.unwrap_err().outcome_unknown());
    event(&mut events, |event| matches!(event, Event::Disconnected { .. })).await;
    drop((peer, fake));
    soon(client.close()).await.unwrap_err();
}
