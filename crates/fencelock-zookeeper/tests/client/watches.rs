//! Watches on a real server.

use crate::common::{LASTING, PATIENCE, client_and_parent, event, put, soon, through};
use fencelock_testbed::zookeeper::{Ensemble, Settings, shared};
use fencelock_zookeeper::{Client, Config, CreateMode, ErrorKind, Event, WatchEvent, Watched};
use futures_util::FutureExt;

#[tokio::test]
async fn each_watch_hears_what_it_was_set_for() {
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
async fn an_event_is_heard_once_and_kept() {
    let (client, parent) = client_and_parent().await;
    let (_, _, mut watch) = client.get_data_watched(&parent).await.unwrap();
    assert_eq!(watch.fired().now_or_never(), None);
    client.set_data(&parent, b"x", None).await.unwrap();
    assert_eq!(soon(watch.fired()).await, WatchEvent::DataChanged);
    client.set_data(&parent, b"y", None).await.unwrap();
    assert_eq!(watch.fired().now_or_never(), Some(WatchEvent::DataChanged));
    assert_eq!(watch.heard(), Some(WatchEvent::DataChanged));
}

#[tokio::test]
async fn all_watches_of_one_node_hear() {
    let (client, parent) = client_and_parent().await;
    let mut watches = Vec::new();
    for _ in 0..10 {
        watches.push(client.get_data_watched(&parent).await.unwrap().2);
    }
    // One of them does not want to hear any more.
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

#[tokio::test]
async fn a_server_forgets_the_watches_that_it_is_told_to() {
    let ensemble = Ensemble::start(Settings::default()).unwrap();
    let config = Config::new(&ensemble.connect_string()).unwrap().session_timeout(LASTING).connect_deadline(PATIENCE);
    let (client, _events) = Client::connect(config).await.unwrap();
    let kept = || ensemble.server(0).monitor("zk_watch_count").unwrap();
    let (absent, path) = ("/absent", "/zookeeper");
    drop(client.exists_watched(absent).await.unwrap());
    drop(client.get_data_watched(path).await.unwrap());
    drop(client.get_children_watched(path).await.unwrap());
    assert_eq!(kept(), 3, "a watch that was dropped stays at the server");
    soon(client.remove_watches(absent, Watched::Node)).await.unwrap();
    assert_eq!(kept(), 2);
    soon(client.remove_watches(path, Watched::Node)).await.unwrap();
    assert_eq!(kept(), 1);
    // Nobody waits for the answer, and it is done all the same.
    drop(client.remove_watches(path, Watched::Children));
    soon(client.sync(path)).await.unwrap();
    assert_eq!(kept(), 0);
    for watched in [Watched::Node, Watched::Children] {
        let error = soon(client.remove_watches(path, watched)).await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::NoWatcher, Some(-121)), "{error}");
        assert!(error.to_string().contains(path) && !error.outcome_unknown(), "{error}");
    }
}

#[tokio::test]
async fn a_watch_that_somebody_waits_for_is_not_removed() {
    let (client, parent) = client_and_parent().await;
    for number in 0..50 {
        let (_, _, dropped) = client.get_data_watched(&parent).await.unwrap();
        let (_, _, mut kept) = client.get_data_watched(&parent).await.unwrap();
        drop(dropped);
        soon(client.remove_watches(&parent, Watched::Node)).await.unwrap();
        client.set_data(&parent, b"x", None).await.unwrap();
        assert_eq!(soon(kept.fired()).await, WatchEvent::DataChanged, "{number}");
        // All three are on their way at once: the answer that sets the watch is not there when the removal is sent.
        let reading = client.get_data_watched(&parent);
        let removing = client.remove_watches(&parent, Watched::Node);
        let reading_again = client.exists_watched(&parent);
        let (_, _, mut read) = soon(reading).await.unwrap();
        soon(removing).await.unwrap();
        let (_, mut read_again) = soon(reading_again).await.unwrap();
        client.set_data(&parent, b"y", None).await.unwrap();
        assert_eq!(soon(read.fired()).await, WatchEvent::DataChanged, "{number}");
        assert_eq!(soon(read_again.fired()).await, WatchEvent::DataChanged, "{number}");
    }
}

#[tokio::test]
async fn a_watch_whose_connection_ended_is_removed_with_nothing_asked() {
    let (_, parent) = client_and_parent().await;
    let (proxy, client, mut events) = through(LASTING).await;
    let (_, _, watch) = client.get_data_watched(&parent).await.unwrap();
    proxy.refuse();
    proxy.reset();
    event(&mut events, |event| matches!(event, Event::Disconnected { .. })).await;
    drop(watch);
    let removing = client.remove_watches(&parent, Watched::Node);
    proxy.heal();
    soon(removing).await.unwrap();
    assert!(!is_watched(&parent).await);
}

/// Whether the shared server keeps a watch at `path` for anybody.
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

/// What the server answers to one of its words of four letters.
fn four_letters(address: std::net::SocketAddr, word: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(word.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
