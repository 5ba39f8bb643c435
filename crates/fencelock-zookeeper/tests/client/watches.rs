//! Watches on a real server.

use crate::common::{client_and_parent, put, soon};
use fencelock_testbed::zookeeper::shared;
use fencelock_zookeeper::{CreateMode, ErrorKind, WatchEvent};
use futures_util::FutureExt;

#[tokio::test]
async fn each_watch_gets_the_event_that_it_was_set_for() {
    let (client, parent) = client_and_parent().await;
    let path = format!("{parent}/a");
    let (stat, mut absent) = client.exists_watched(&path).await.unwrap();
    assert_eq!(stat, None);
    let (_, _, mut children) = client.get_children_watched(&parent).await.unwrap();
    put(&client, &path, CreateMode::Persistent).await;
    assert_eq!(soon(absent.fired()).await, WatchEvent::Created);
    assert_eq!(soon(children.fired()).await, WatchEvent::ChildrenChanged);
    let (_, _, mut data) = client.get_data_watched(&path).await.unwrap();
    let (stat, mut present) = client.exists_watched(&path).await.unwrap();
    assert!(stat.is_some());
    client.set_data(&path, b"x", None).await.unwrap();
    assert_eq!(soon(data.fired()).await, WatchEvent::DataChanged);
    assert_eq!(soon(present.fired()).await, WatchEvent::DataChanged);
    let (_, _, mut data) = client.get_data_watched(&path).await.unwrap();
    let (_, _, mut children) = client.get_children_watched(&path).await.unwrap();
    client.delete(&path, None).await.unwrap();
    assert_eq!(soon(data.fired()).await, WatchEvent::Deleted);
    assert_eq!(soon(children.fired()).await, WatchEvent::Deleted);
}

#[tokio::test]
async fn an_event_is_delivered_once_and_kept() {
    let (client, parent) = client_and_parent().await;
    let (_, _, mut watch) = client.get_data_watched(&parent).await.unwrap();
    assert_eq!(watch.fired().now_or_never(), None);
    client.set_data(&parent, b"x", None).await.unwrap();
    assert_eq!(soon(watch.fired()).await, WatchEvent::DataChanged);
    client.set_data(&parent, b"y", None).await.unwrap();
    assert_eq!(watch.fired().now_or_never(), Some(WatchEvent::DataChanged));
    assert_eq!(watch.event(), Some(WatchEvent::DataChanged));
}

#[tokio::test]
async fn all_watches_of_one_node_hear() {
    let (client, parent) = client_and_parent().await;
    let mut watches = Vec::new();
    for _ in 0..10 {
        watches.push(client.get_data_watched(&parent).await.unwrap().2);
    }
    // The fourth watch is dropped.
    watches.swap_remove(3);
    client.set_data(&parent, b"x", None).await.unwrap();
    for mut watch in watches {
        assert_eq!(soon(watch.fired()).await, WatchEvent::DataChanged);
    }
}

#[tokio::test]
async fn a_read_that_finds_nothing_leaves_no_watch_behind() {
    let (client, parent) = client_and_parent().await;
    let error = client.get_data_watched(&format!("{parent}/a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoNode);
    assert!(!is_watched(&format!("{parent}/a")).await);
}

/// Whether the shared server keeps a watch at `path`.
async fn is_watched(path: &str) -> bool {
    let watched = tokio::task::spawn_blocking(|| four_letters(shared().address(), "wchp")).await.unwrap();
    watched.lines().any(|line| line == path)
}

#[tokio::test]
async fn a_closed_session_ends_all_watches() {
    let (client, parent) = client_and_parent().await;
    let (_, _, mut watch) = client.get_data_watched(&parent).await.unwrap();
    client.close().await.unwrap();
    assert_eq!(soon(watch.fired()).await, WatchEvent::SessionOver);
}

/// The reply of the server to a command of four letters.
fn four_letters(address: std::net::SocketAddr, word: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(word.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
