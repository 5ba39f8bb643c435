//! Bad replies of a server on a connection with a session.

use std::time::Duration;

use fencelock_zookeeper::{Acl, Client, Config, CreateMode, ErrorKind, Event, Operation, WatchEvent};
use tokio::io::AsyncWriteExt;

use crate::common::fake::{Fake, header};
use crate::common::{event, soon};

/// A server that sends `said` on a connection with a session of `timeout_ms` loses the connection, and the event names
/// `told`.
async fn ends_the_connection(timeout_ms: i32, said: &[u8], told: &str) {
    let fake = Fake::new().await;
    let timeout = Duration::from_millis(timeout_ms.unsigned_abs().into());
    // By default, a server that is silent and one without a whole answer are left at the same time.
    let config = fake.lasting().session_timeout(timeout).request_deadline(timeout);
    let connecting = tokio::spawn(Client::connect(config));
    let mut peer = fake.welcome(7, timeout_ms).await;
    let (client, mut events) = soon(connecting).await.unwrap().unwrap();
    let answer = client.exists("/a");
    peer.read().await;
    peer.0.write_all(said).await.unwrap();
    let error = soon(answer).await.unwrap_err();
    assert!(error.outcome_unknown(), "{error}");
    let event = event(&mut events, |event| matches!(event, Event::Disconnected { .. })).await;
    assert!(format!("{event:?}").contains(told), "{event:?}");
    // The session continues on the next connection.
    let _peer = soon(fake.welcome(7, timeout_ms)).await;
    crate::common::event(&mut events, |event| matches!(event, Event::Reconnected { .. })).await;
}

#[tokio::test]
async fn garbage_ends_the_connection_and_not_the_session() {
    ends_the_connection(60_000, &[0xff; 64], "negative").await;
    ends_the_connection(60_000, &[0; 64], "shorter than its header").await;
    ends_the_connection(60_000, b"HTTP/1.1 400 Bad Request\r\n\r\n", "out of turn").await;
    let frame = |xid: i32| [&20_u32.to_be_bytes()[..], &xid.to_be_bytes(), &header(7, 0), &[0; 4]].concat();
    ends_the_connection(60_000, &frame(99), "out of turn").await;
    ends_the_connection(60_000, &frame(-2), "ping").await;
    ends_the_connection(60_000, &frame(-4), "credentials").await;
    ends_the_connection(60_000, &frame(-8), "watches").await;
    ends_the_connection(60_000, &frame(-1), "ends too early").await;
}

#[tokio::test]
async fn a_frame_that_stops_in_the_middle_ends_the_connection_in_time() {
    ends_the_connection(9000, b"\x00\x00\x00\x54\x00\x00", "silent").await;
}

#[tokio::test]
async fn a_malformed_answer_is_reported_and_harms_nothing_else() {
    let fake = Fake::new().await;
    let connecting = tokio::spawn(Client::connect(fake.lasting()));
    let mut peer = fake.welcome(7, 60_000).await;
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
    let connecting = tokio::spawn(Client::connect(fake.lasting()));
    let mut peer = fake.welcome(7, 60_000).await;
    let (client, mut events) = soon(connecting).await.unwrap().unwrap();
    let watched = client.exists_watched("/a");
    let request = peer.read().await;
    peer.write(&[&request[..4], &header(7, -101)].concat()).await;
    let (_, mut watch) = soon(watched).await.unwrap();
    drop(peer);
    let _peer = soon(fake.welcome(8, 60_000)).await;
    event(&mut events, |event| *event == Event::Expired).await;
    assert_eq!(soon(watch.fired()).await, WatchEvent::SessionOver);
    assert_eq!(client.exists("/").await.unwrap_err().kind(), ErrorKind::SessionExpired);
}

#[tokio::test]
async fn a_session_that_expires_while_connected_has_ended() {
    let fake = Fake::new().await;
    let connecting = tokio::spawn(Client::connect(fake.lasting()));
    let mut peer = fake.welcome(7, 60_000).await;
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
    let connecting = tokio::spawn(Client::connect(fake.lasting().auth("digest", "a:b")));
    let mut peer = fake.welcome(7, 60_000).await;
    peer.answer(&[]).await;
    let (client, mut events) = soon(connecting).await.unwrap().unwrap();
    drop(peer);
    let mut peer = soon(fake.welcome(7, 60_000)).await;
    let auth = peer.read().await;
    peer.write(&[&auth[..4], &header(7, -115)].concat()).await;
    event(&mut events, |event| *event == Event::AuthFailed).await;
    assert_eq!(soon(client.exists("/")).await.unwrap_err().kind(), ErrorKind::AuthFailed);
}

#[tokio::test]
async fn watches_that_a_server_does_not_set_anew_are_set_on_the_next_connection() {
    let fake = Fake::new().await;
    let connecting = tokio::spawn(Client::connect(fake.lasting()));
    let mut peer = fake.welcome(7, 60_000).await;
    let (client, mut events) = soon(connecting).await.unwrap().unwrap();
    let watched = client.get_data_watched("/a");
    peer.answer(&[&[0; 4][..], &[0; 68]].concat()).await;
    let (_, _, mut watch) = soon(watched).await.unwrap();
    drop(peer);
    let mut peer = soon(fake.welcome(7, 60_000)).await;
    let set = peer.read().await;
    peer.write(&[&set[..4], &header(7, -1)].concat()).await;
    event(&mut events, |event| matches!(event, Event::Disconnected { why } if why.contains("watches"))).await;
    let mut peer = soon(fake.welcome(7, 60_000)).await;
    let set_again = soon(peer.read()).await;
    assert_eq!((&set_again[..4], &set_again[16..]), (&(-8_i32).to_be_bytes()[..], &set[16..]));
    let deleted = [&2_i32.to_be_bytes()[..], &3_i32.to_be_bytes(), &2_u32.to_be_bytes(), b"/a"].concat();
    peer.write(&[&(-1_i32).to_be_bytes(), &header(-1, 0)[..], &deleted].concat()).await;
    assert_eq!(soon(watch.fired()).await, WatchEvent::Deleted);
}

#[tokio::test]
async fn a_sequence_number_at_its_end_is_returned_unchanged() {
    let fake = Fake::new().await;
    let connecting = tokio::spawn(Client::connect(fake.lasting()));
    let mut peer = fake.welcome(7, 60_000).await;
    let (client, _events) = soon(connecting).await.unwrap().unwrap();
    for number in ["2147483646", "2147483647", "-2147483648"] {
        let created = client.create("/l/lock-", b"", CreateMode::EphemeralSequential, &[Acl::open()]);
        let path = format!("/l/lock-{number}");
        let length = u32::try_from(path.len()).unwrap().to_be_bytes();
        peer.answer(&[&length[..], path.as_bytes(), &[0; 68]].concat()).await;
        assert_eq!(soon(created).await.unwrap().path, path);
    }
}

#[tokio::test]
async fn a_path_that_is_cut_by_the_length_of_the_chroot_is_malformed() {
    let fake = Fake::new().await;
    let config = Config::new(&format!("{}/abc", fake.address)).unwrap().session_timeout(Duration::from_secs(60));
    let connecting = tokio::spawn(Client::connect(config));
    let mut peer = fake.welcome(7, 60_000).await;
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
    let connecting = tokio::spawn(Client::connect(fake.lasting()));
    let mut peer = fake.welcome(7, 60_000).await;
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
