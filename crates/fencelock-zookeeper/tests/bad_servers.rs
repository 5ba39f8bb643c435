//! Servers that are not there, are something else, or do what no ZooKeeper server does.

mod common;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::fake::{Fake, header, welcome};
use common::{event, soon};
use fencelock_testbed::Port;
use fencelock_testbed::zookeeper::shared;
use fencelock_zookeeper::{
    Acl, BoxFuture, Client, Config, CreateMode, Error, ErrorKind, Event, Net, Operation, Stream, Tcp, WatchEvent,
};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// An address where nobody listens as long as this process lasts.
fn nobody() -> SocketAddr {
    static RESERVED: Mutex<Vec<Port>> = Mutex::new(Vec::new());
    let port = Port::reserve().unwrap();
    let address = port.address();
    RESERVED.lock().unwrap().push(port);
    address
}

async fn refused(config: Config) -> Error {
    let deadline = Duration::from_millis(900);
    let start = Instant::now();
    let error = soon(Client::connect(config.connect_deadline(deadline))).await.unwrap_err();
    assert!(start.elapsed() >= deadline, "it was tried for as long as it was to be");
    error
}

#[tokio::test]
async fn where_no_server_is_the_error_names_each_address_and_why() {
    let (one, two) = (nobody(), nobody());
    let error = refused(Config::new(&format!("{one},{two}")).unwrap()).await;
    assert_eq!((error.kind(), error.outcome_unknown()), (ErrorKind::Unreachable, false));
    for told in [one.to_string(), two.to_string(), "refused".to_owned()] {
        assert!(error.to_string().contains(&told), "{error}");
    }
}

#[tokio::test]
async fn another_service_on_the_port_is_told_by_how_it_answers() {
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
async fn a_service_that_waits_for_more_is_told_by_its_silence() {
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
    let servers = format!("{},{},{},{}", nobody(), http.address, silent.address, shared().address());
    let task = tokio::spawn(http.say(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    let (client, _) =
        soon(Client::connect(Config::new(&servers).unwrap().connect_deadline(common::PATIENCE))).await.unwrap();
    assert_eq!(client.session().server, shared().address().to_string());
    task.abort();
}

/// Resolves every name to some addresses that nobody has and one that somebody has.
#[derive(Debug)]
struct Names;

impl Net for Names {
    fn resolve<'a>(&'a self, host: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            match host {
                "many" => Ok(vec![nobody(), shared().address(), nobody()]),
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
    let config = |servers: &str| Config::new(servers).unwrap().net(Arc::new(Names)).connect_deadline(common::PATIENCE);
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
    let config = Config::new(&format!("[::1]:{}", fake.address.port())).unwrap().connect_deadline(common::PATIENCE);
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

/// What a server says on a connection with a session, and what is told of it.
async fn ends_the_connection(said: &[u8], told: &str) {
    let fake = Fake::new().await;
    let connecting = tokio::spawn(Client::connect(fake.config()));
    let mut peer = fake.welcome(7, 1500).await;
    let (client, mut events) = soon(connecting).await.unwrap().unwrap();
    let answer = client.exists("/a");
    peer.read().await;
    peer.0.write_all(said).await.unwrap();
    let error = soon(answer).await.unwrap_err();
    assert!(error.outcome_unknown(), "{error}");
    let event = event(&mut events, |event| matches!(event, Event::Disconnected { .. })).await;
    assert!(format!("{event:?}").contains(told), "{event:?}");
    // The session goes on with the next connection.
    let _peer = soon(fake.welcome(7, 1500)).await;
    common::event(&mut events, |event| matches!(event, Event::Reconnected { .. })).await;
}

#[tokio::test]
async fn garbage_ends_the_connection_and_not_the_session() {
    ends_the_connection(&[0xff; 64], "negative").await;
    ends_the_connection(&[0; 64], "shorter than its header").await;
    ends_the_connection(b"HTTP/1.1 400 Bad Request\r\n\r\n", "out of turn").await;
    let frame = |xid: i32| [&20_u32.to_be_bytes()[..], &xid.to_be_bytes(), &header(7, 0), &[0; 4]].concat();
    ends_the_connection(&frame(99), "out of turn").await;
    ends_the_connection(&frame(-2), "ping").await;
    ends_the_connection(&frame(-4), "credentials").await;
    ends_the_connection(&frame(-8), "watches").await;
    ends_the_connection(&frame(-1), "ends too early").await;
}

#[tokio::test]
async fn a_frame_that_stops_in_the_middle_ends_the_connection_in_time() {
    ends_the_connection(b"\x00\x00\x00\x54\x00\x00", "silent").await;
}

#[tokio::test]
async fn a_malformed_answer_is_told_and_harms_nothing_else() {
    let fake = Fake::new().await;
    let connecting = tokio::spawn(Client::connect(fake.config()));
    let mut peer = fake.welcome(7, 30_000).await;
    let (client, _events) = soon(connecting).await.unwrap().unwrap();
    let (listed, synced) = (client.get_children("/"), client.sync("/"));
    peer.answer(&i32::MAX.to_be_bytes()).await;
    peer.answer(&[]).await;
    let error = soon(listed).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    soon(synced).await.unwrap();
}

#[tokio::test]
async fn another_session_in_place_of_ours_is_expiry() {
    let fake = Fake::new().await;
    let connecting = tokio::spawn(Client::connect(fake.config()));
    let mut peer = fake.welcome(7, 1500).await;
    let (client, mut events) = soon(connecting).await.unwrap().unwrap();
    let watched = client.exists_watched("/a");
    let request = peer.read().await;
    peer.write(&[&request[..4], &header(7, -101)].concat()).await;
    let (_, mut watch) = soon(watched).await.unwrap();
    drop(peer);
    let _peer = soon(fake.welcome(8, 1500)).await;
    event(&mut events, |event| *event == Event::Expired).await;
    assert_eq!(soon(watch.fired()).await, WatchEvent::SessionOver);
    assert_eq!(client.exists("/").await.unwrap_err().kind(), ErrorKind::SessionExpired);
}

#[tokio::test]
async fn a_session_that_expires_while_connected_is_over() {
    let fake = Fake::new().await;
    let connecting = tokio::spawn(Client::connect(fake.config()));
    let mut peer = fake.welcome(7, 30_000).await;
    let (client, mut events) = soon(connecting).await.unwrap().unwrap();
    let (first, second) = (client.sync("/"), client.sync("/"));
    let request = peer.read().await;
    peer.write(&[&request[..4], &header(7, -112)].concat()).await;
    let (first, second) = (soon(first).await.unwrap_err(), soon(second).await.unwrap_err());
    assert_eq!((first.kind(), first.outcome_unknown()), (ErrorKind::SessionExpired, false));
    assert_eq!((second.kind(), second.outcome_unknown()), (ErrorKind::SessionExpired, true));
    event(&mut events, |event| *event == Event::Expired).await;
}

#[tokio::test]
async fn credentials_refused_on_a_reconnect_end_the_client() {
    let fake = Fake::new().await;
    let connecting = tokio::spawn(Client::connect(fake.config().auth("digest", "a:b")));
    let mut peer = fake.welcome(7, 1500).await;
    peer.answer(&[]).await;
    let (client, mut events) = soon(connecting).await.unwrap().unwrap();
    drop(peer);
    let mut peer = soon(fake.welcome(7, 1500)).await;
    let auth = peer.read().await;
    peer.write(&[&auth[..4], &header(7, -115)].concat()).await;
    event(&mut events, |event| *event == Event::AuthFailed).await;
    assert_eq!(soon(client.exists("/")).await.unwrap_err().kind(), ErrorKind::AuthFailed);
}

#[tokio::test]
async fn watches_that_a_server_does_not_set_anew_are_set_on_the_next_connection() {
    let fake = Fake::new().await;
    let connecting = tokio::spawn(Client::connect(fake.config()));
    let mut peer = fake.welcome(7, 1500).await;
    let (client, mut events) = soon(connecting).await.unwrap().unwrap();
    let watched = client.get_data_watched("/a");
    peer.answer(&[&[0; 4][..], &[0; 68]].concat()).await;
    let (_, _, mut watch) = soon(watched).await.unwrap();
    drop(peer);
    let mut peer = soon(fake.welcome(7, 1500)).await;
    let set = peer.read().await;
    peer.write(&[&set[..4], &header(7, -1)].concat()).await;
    event(&mut events, |event| matches!(event, Event::Disconnected { why } if why.contains("watches"))).await;
    let mut peer = soon(fake.welcome(7, 1500)).await;
    let set_again = soon(peer.read()).await;
    assert_eq!((&set_again[..4], &set_again[16..]), (&(-8_i32).to_be_bytes()[..], &set[16..]));
    let deleted = [&2_i32.to_be_bytes()[..], &3_i32.to_be_bytes(), &2_u32.to_be_bytes(), b"/a"].concat();
    peer.write(&[&(-1_i32).to_be_bytes(), &header(-1, 0)[..], &deleted].concat()).await;
    assert_eq!(soon(watch.fired()).await, WatchEvent::Deleted);
}

#[tokio::test]
async fn a_sequence_number_at_its_end_is_handed_on_as_it_is() {
    let fake = Fake::new().await;
    let connecting = tokio::spawn(Client::connect(fake.config()));
    let mut peer = fake.welcome(7, 30_000).await;
    let (client, _events) = soon(connecting).await.unwrap().unwrap();
    for number in ["2147483646", "2147483647", "-2147483648"] {
        let created = client.create("/l/lock-", b"", CreateMode::EphemeralSequential, &[Acl::open()]);
        let path = format!("/l/lock-{number}");
        let length = u32::try_from(path.len()).unwrap().to_be_bytes();
        peer.answer(&[&length[..], path.as_bytes(), &[0; 68]].concat()).await;
        assert_eq!(soon(created).await.unwrap().path, path);
    }
}

/// Takes connections and says nothing, as a server does that was stopped.
async fn silent(count: usize) -> Vec<Fake> {
    let mut fakes = Vec::new();
    for _ in 0..count {
        fakes.push(Fake::new().await);
    }
    fakes
}

fn connect_string(servers: impl IntoIterator<Item = SocketAddr>) -> String {
    servers.into_iter().map(|address| address.to_string()).collect::<Vec<_>>().join(",")
}

#[tokio::test]
async fn silent_servers_keep_nobody_from_the_one_that_answers() {
    let silent = silent(4).await;
    let servers = connect_string(silent.iter().map(|fake| fake.address).chain([shared().address()]));
    let config = Config::new(&servers).unwrap().session_timeout(Duration::from_secs(60));
    for _ in 0..5 {
        let start = Instant::now();
        let (client, _) = soon(Client::connect(config.clone())).await.unwrap();
        // One attempt may take 10 s; the five are dialled within one.
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        assert_eq!(client.session().server, shared().address().to_string());
    }
}

#[tokio::test]
async fn the_error_names_every_server_that_was_tried_the_silent_ones_too() {
    let silent = silent(3).await;
    let closed = nobody();
    let servers = connect_string(silent.iter().map(|fake| fake.address).chain([closed]));
    let error = refused(Config::new(&servers).unwrap()).await;
    for address in silent.iter().map(|fake| fake.address).chain([closed]) {
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

#[tokio::test]
async fn a_session_that_is_given_too_late_is_closed() {
    let (late, other) = (Fake::new().await, Fake::new().await);
    let servers = connect_string([late.address, other.address]);
    // The one that is too late is waited for as long as an attempt may take: a part of this, longer than any test waits.
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
    assert_eq!(soon(winner.read()).await[4..8], 3_i32.to_be_bytes(), "the session that was taken goes on");
    drop(waits);
}

#[tokio::test]
async fn a_session_that_comes_after_the_attempt_was_given_up_is_closed() {
    let fake = Fake::new().await;
    let config = fake.config().session_timeout(common::PATIENCE).attempt(Duration::from_millis(100));
    let connecting = tokio::spawn(Client::connect(config));
    let mut slow = fake.accept().await;
    slow.read().await;
    // The attempt was given up when another one follows.
    let _next = soon(fake.accept()).await;
    slow.write(&welcome(8, 10_000, false)).await;
    assert_eq!(soon(slow.read()).await[4..8], (-11_i32).to_be_bytes());
    connecting.abort();
}

#[test]
fn a_connect_that_is_dropped_outside_its_runtime_leaves_no_session_behind() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let fake = runtime.block_on(Fake::new());
    let mut connecting = Box::pin(Client::connect(fake.config().session_timeout(common::PATIENCE)));
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
    let config = Config::new("name").unwrap().net(Arc::new(net)).session_timeout(common::PATIENCE);
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
    let connecting = tokio::spawn(Client::connect(fake.config().auth("digest", "a:b")));
    let mut peer = fake.welcome(7, 1500).await;
    let auth = peer.read().await;
    peer.write(&[&auth[..4], &header(7, -124)].concat()).await;
    let error = soon(connecting).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::AuthFailed, Some(-124)), "{error}");
}

#[tokio::test]
async fn a_path_that_is_cut_by_the_length_of_the_chroot_is_malformed() {
    let fake = Fake::new().await;
    let config = Config::new(&format!("{}/abc", fake.address)).unwrap().session_timeout(Duration::from_secs(60));
    let connecting = tokio::spawn(Client::connect(config));
    let mut peer = fake.welcome(7, 30_000).await;
    // Whether the chroot is there.
    peer.answer(&[0; 68]).await;
    let (client, _events) = soon(connecting).await.unwrap().unwrap();
    // The fourth byte is within a character.
    for path in ["/aaä", "/a"] {
        let answer = client.create("/x", b"", CreateMode::Persistent, &[Acl::open()]);
        let length = u32::try_from(path.len()).unwrap().to_be_bytes();
        peer.answer(&[&length[..], path.as_bytes(), &[0; 68]].concat()).await;
        let error = soon(answer).await.unwrap_err();
        assert_eq!((error.kind(), error.outcome_unknown()), (ErrorKind::Protocol, true), "{error}");
    }
}

#[tokio::test]
async fn an_answer_to_several_operations_that_tells_of_fewer_is_malformed() {
    let fake = Fake::new().await;
    let connecting = tokio::spawn(Client::connect(fake.config()));
    let mut peer = fake.welcome(7, 30_000).await;
    let (client, _events) = soon(connecting).await.unwrap().unwrap();
    let end = [&(-1_i32).to_be_bytes()[..], &[1], &(-1_i32).to_be_bytes()].concat();
    let not_tried = [&(-1_i32).to_be_bytes()[..], &[0], &[0; 8]].concat();
    for said in [end.clone(), [&not_tried[..], &end].concat()] {
        let answer = client.multi(&[Operation::check("/", None)]);
        peer.answer(&said).await;
        let error = soon(answer).await.unwrap_err();
        assert_eq!((error.kind(), error.outcome_unknown()), (ErrorKind::Protocol, true), "{error}");
    }
}

#[tokio::test]
async fn a_session_is_continued_on_one_server_and_never_closed_on_another() {
    let (first, second) = (Fake::new().await, Fake::new().await);
    let servers = connect_string([first.address, second.address]);
    let connecting = tokio::spawn(Client::connect(Config::new(&servers).unwrap()));
    let mut begun = tokio::select! {
        peer = first.accept() => peer,
        peer = second.accept() => peer,
    };
    begun.read().await;
    begun.write(&welcome(7, 10_000, false)).await;
    let (client, _events) = soon(connecting).await.unwrap().unwrap();
    drop(begun);
    let (mut one, mut two) = (soon(first.accept()).await, soon(second.accept()).await);
    one.read().await;
    two.read().await;
    one.write(&welcome(7, 10_000, false)).await;
    soon(two.hung_up()).await;
    assert_eq!(client.session().id, 7);
}

/// A client whose server was left while it owed the answer to a write: that server, and the other one.
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

/// Longer than a test waits; so is a twelfth of it.
const HOUR: Duration = Duration::from_secs(3600);
const HOUR_MS: i32 = 3_600_000;

#[tokio::test]
async fn a_server_that_owes_the_answer_to_a_write_is_not_asked_while_another_one_may_answer() {
    let (client, left, other) = left_owing_a_write(HOUR_MS, HOUR).await;
    let mut slow = soon(other.accept()).await;
    soon(slow.read()).await;
    // One that owes nothing would be asked after a fifth of it.
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
    // The attempt at the silent one lasts for 23 s, and the other one is asked after 2 s.
    let (_client, left, other) = left_owing_a_write(24_000, Duration::from_secs(23)).await;
    let mut silent = soon(other.accept()).await;
    soon(silent.read()).await;
    soon(soon(left.accept()).await.read()).await;
    // Both are asked side by side from then on.
    let ended = tokio::time::timeout(Duration::from_millis(100), silent.try_read()).await;
    assert!(ended.is_err(), "the silent one was given up: {ended:?}");
}

/// Resolves a name once, and never again: it says that there is none, or nothing.
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
        let config = Config::new("name").unwrap().net(Arc::new(names)).connect_deadline(common::PATIENCE);
        for _ in 0..2 {
            // A name server is waited for as long as an attempt may take, where nothing is known.
            let config = config.clone().session_timeout(2 * common::PATIENCE).attempt(2 * common::PATIENCE);
            let (client, _) = soon(Client::connect(config)).await.unwrap();
            client.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_server_that_grants_a_month_makes_nobody_wait_longer() {
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
