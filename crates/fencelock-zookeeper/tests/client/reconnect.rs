//! Connections that are cut, held and swallowed on their way to a real server.

use std::time::Duration;

use crate::common::{
    LASTING, client_and_parent, event, is_disconnected, is_reconnected, put, put_stubbornly, soon, through,
    through_with,
};
use fencelock_testbed::Way;
use fencelock_zookeeper::{Acl, CreateMode, ErrorKind, Event, WatchEvent};

#[tokio::test]
async fn a_session_continues_after_its_connection_was_cut() {
    let (_, parent) = client_and_parent().await;
    let (proxy, client, mut events) = through(LASTING).await;
    let path = format!("{parent}/e");
    put(&client, &path, CreateMode::Ephemeral).await;
    let (before, confirmed) = (client.session(), client.confirmed());
    proxy.reset();
    event(&mut events, is_disconnected).await;
    event(&mut events, is_reconnected).await;
    assert_eq!(client.session(), before);
    assert_eq!(client.connection_epoch(), 2);
    assert!(client.confirmed() > confirmed, "the leader was asked on the new connection");
    assert_eq!(client.exists(&path).await.unwrap().unwrap().ephemeral_owner, before.id);
}

#[tokio::test]
async fn an_answer_that_is_lost_leaves_the_outcome_unknown() {
    let (observer, parent) = client_and_parent().await;
    let (proxy, client, _events) = through(LASTING).await;
    let path = format!("{parent}/a");
    let (_, mut created) = observer.exists_watched(&path).await.unwrap();
    proxy.hold(Way::Down);
    let answer = client.create(&path, b"", CreateMode::Ephemeral, &[Acl::open()]);
    assert_eq!(soon(created.fired()).await, WatchEvent::Created);
    proxy.reset();
    proxy.heal();
    let error = soon(answer).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome_unknown()), (ErrorKind::ConnectionLoss, true), "{error}");
    assert_eq!(error.path(), Some(path.as_str()));
    client.sync(&parent).await.unwrap();
    assert_eq!(client.get_children(&parent).await.unwrap().0, ["a"]);
}

#[tokio::test]
async fn requests_made_without_a_connection_wait_for_one_in_order() {
    let (_, parent) = client_and_parent().await;
    let (proxy, client, mut events) = through(LASTING).await;
    proxy.refuse();
    proxy.reset();
    event(&mut events, is_disconnected).await;
    let path = format!("{parent}/a");
    let created = client.create(&path, b"", CreateMode::Persistent, &[Acl::open()]);
    let dropped = client.create(&format!("{parent}/b"), b"", CreateMode::Persistent, &[Acl::open()]);
    let listed = client.get_children(&parent);
    drop(dropped);
    proxy.heal();
    soon(created).await.unwrap();
    assert_eq!(soon(listed).await.unwrap().0, ["a"]);
}

#[tokio::test]
async fn a_request_that_was_never_written_is_certainly_not_applied() {
    let (proxy, client, mut events) = through_with(|config| config.request_deadline(Duration::from_secs(1))).await;
    proxy.refuse();
    proxy.reset();
    event(&mut events, is_disconnected).await;
    let error = soon(client.delete("/nowhere", None)).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome_unknown()), (ErrorKind::Unreachable, false));
    assert!(error.to_string().contains("no connection"), "{error}");
}

#[tokio::test]
async fn a_request_without_an_answer_ends_at_its_deadline() {
    let (proxy, client, _events) = through_with(|config| config.request_deadline(Duration::from_millis(300))).await;
    proxy.hold(Way::Down);
    let (first, second) = (client.sync("/"), client.exists("/"));
    for error in [soon(first).await.unwrap_err(), soon(second).await.unwrap_err()] {
        assert_eq!((error.kind(), error.outcome_unknown()), (ErrorKind::Deadline, true), "{error}");
    }
    // The late replies still arrive, and no caller waits for them. Later requests are answered as ever.
    proxy.release();
    soon(async { while client.exists("/").await.is_err() {} }).await;
    assert_eq!(client.connection_epoch(), 1);
}

#[tokio::test]
async fn watches_hear_after_a_reconnect_what_happened_before_it() {
    let (observer, parent) = client_and_parent().await;
    let (proxy, client, mut events) = through(LASTING).await;
    let at = |name: &str| format!("{parent}/{name}");
    for name in ["changed", "deleted", "parent", "later"] {
        put(&observer, &at(name), CreateMode::Persistent).await;
    }
    let (_, _, mut changed) = client.get_data_watched(&at("changed")).await.unwrap();
    let (_, _, mut deleted) = client.get_data_watched(&at("deleted")).await.unwrap();
    let (_, _, mut children) = client.get_children_watched(&at("parent")).await.unwrap();
    let (_, mut created) = client.exists_watched(&at("created")).await.unwrap();
    let (_, _, mut later) = client.get_data_watched(&at("later")).await.unwrap();
    proxy.refuse();
    proxy.reset();
    event(&mut events, is_disconnected).await;
    observer.set_data(&at("changed"), b"x", None).await.unwrap();
    observer.delete(&at("deleted"), None).await.unwrap();
    put(&observer, &at("parent/child"), CreateMode::Persistent).await;
    put(&observer, &at("created"), CreateMode::Persistent).await;
    proxy.heal();
    assert_eq!(soon(changed.fired()).await, WatchEvent::DataChanged);
    assert_eq!(soon(deleted.fired()).await, WatchEvent::Deleted);
    assert_eq!(soon(children.fired()).await, WatchEvent::ChildrenChanged);
    assert_eq!(soon(created.fired()).await, WatchEvent::Created);
    assert_eq!(later.event(), None);
    observer.set_data(&at("later"), b"x", None).await.unwrap();
    assert_eq!(soon(later.fired()).await, WatchEvent::DataChanged);
}

#[tokio::test]
async fn more_watches_than_one_frame_holds_survive() {
    let (observer, parent) = client_and_parent().await;
    let (proxy, client, mut events) = through(Duration::from_secs(120)).await;
    let mut watches = Vec::new();
    let path = |number: usize| format!("{parent}/{}-{number}", "n".repeat(60));
    // A few at a time: the deadline of each request counts from its call.
    for some in (0..3000).collect::<Vec<_>>().chunks(100) {
        let create = |number: &usize| observer.create(&path(*number), b"", CreateMode::Ephemeral, &[Acl::open()]);
        for answer in some.iter().map(create).collect::<Vec<_>>() {
            soon(answer).await.unwrap();
        }
        for answer in some.iter().map(|number| client.get_data_watched(&path(*number))).collect::<Vec<_>>() {
            watches.push(soon(answer).await.unwrap().2);
        }
    }
    proxy.reset();
    event(&mut events, is_reconnected).await;
    observer.close().await.unwrap();
    for mut watch in watches {
        assert_eq!(soon(watch.fired()).await, WatchEvent::Deleted);
    }
}

#[tokio::test]
async fn expiry_is_reported_to_events_watches_and_requests() {
    let (observer, parent) = client_and_parent().await;
    // The test waits for the end of the session, which lives until the connection is cut.
    let (proxy, client, mut events) = through(Duration::from_secs(20)).await;
    let path = format!("{parent}/e");
    put(&client, &path, CreateMode::Ephemeral).await;
    let (_, _, mut gone) = observer.get_data_watched(&path).await.unwrap();
    let (_, _, mut watch) = client.get_data_watched(&parent).await.unwrap();
    proxy.refuse();
    proxy.reset();
    assert_eq!(soon(gone.fired()).await, WatchEvent::Deleted);
    proxy.heal();
    event(&mut events, |event| *event == Event::Expired).await;
    assert_eq!(soon(watch.fired()).await, WatchEvent::SessionOver);
    let error = client.exists("/").await.unwrap_err();
    assert_eq!((error.kind(), error.outcome_unknown()), (ErrorKind::SessionExpired, false));
    // Nothing is left to close.
    client.close().await.unwrap();
}

#[tokio::test]
async fn an_answer_may_be_cut_anywhere() {
    let (observer, parent) = client_and_parent().await;
    let (proxy, client, mut events) = through(Duration::from_secs(120)).await;
    let length = 4 + 16 + 4 + parent.len() as u64 + 6 + 68;
    for bytes in (0..=length).step_by(7).chain([4, 8, 16, 20, 24]) {
        proxy.cut_after(bytes, Way::Down);
        let path = format!("{parent}/{bytes:05}");
        let outcome = soon(client.create(&path, b"", CreateMode::Ephemeral, &[Acl::open()])).await;
        if let Err(error) = outcome {
            assert_eq!((error.kind(), error.outcome_unknown()), (ErrorKind::ConnectionLoss, true), "{bytes}");
        }
        event(&mut events, is_reconnected).await;
        soon(client.sync(&parent)).await.unwrap();
        assert!(soon(client.exists(&path)).await.unwrap().is_some(), "{bytes}: the request was done");
        assert!(observer.exists(&path).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_request_may_be_cut_anywhere() {
    let (_, parent) = client_and_parent().await;
    let (proxy, client, mut events) = through(Duration::from_secs(120)).await;
    for bytes in (1..60).step_by(6) {
        proxy.cut_after(bytes, Way::Up);
        let path = format!("{parent}/{bytes:05}");
        if let Err(error) = soon(client.create(&path, b"", CreateMode::Ephemeral, &[Acl::open()])).await {
            assert_eq!((error.kind(), error.outcome_unknown()), (ErrorKind::ConnectionLoss, true));
        }
        event(&mut events, is_reconnected).await;
        put_stubbornly(&client, &path, CreateMode::Ephemeral).await;
    }
}

#[tokio::test]
async fn a_client_that_cannot_reach_a_server_is_closed_in_time_and_says_so() {
    let (proxy, client, mut events) = through(Duration::from_secs(10)).await;
    proxy.refuse();
    proxy.reset();
    event(&mut events, is_disconnected).await;
    let error = soon(client.close()).await.unwrap_err();
    assert_eq!(error.operation(), "close");
    assert!(error.outcome_unknown() && error.to_string().contains("timeout"), "{error}");
    event(&mut events, |event| *event == Event::Closed).await;
}

#[test]
fn a_client_whose_runtime_went_says_so() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (client, mut watch) = runtime.block_on(async {
        let (client, _) = crate::common::client().await;
        let (_, _, watch) = client.get_data_watched("/").await.unwrap();
        (client, watch)
    });
    let answer = client.exists("/");
    drop(runtime);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        assert_eq!(soon(answer).await.unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(soon(client.exists("/")).await.unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(soon(watch.fired()).await, WatchEvent::SessionOver);
        assert!(soon(client.close()).await.is_err());
    });
}
