//! Every request against a real server.

use std::time::Duration;

use crate::common::{client, client_and_parent, config, put, soon};
use fencelock_testbed::zookeeper::shared;
use fencelock_zookeeper::{Acl, Client, CreateMode, ErrorKind, Event, Permissions, WatchEvent};
use futures_util::{FutureExt, StreamExt};

#[tokio::test]
async fn a_node_is_created_read_changed_and_deleted() {
    let (client, parent) = client_and_parent().await;
    let path = format!("{parent}/a");
    let created = client.create(&path, b"one", CreateMode::Persistent, &[Acl::open()]).await.unwrap();
    assert_eq!(created.path, path);
    let (data, stat) = client.get_data(&path).await.unwrap();
    assert_eq!((data.as_slice(), stat), (&b"one"[..], created.stat));
    let changed = client.set_data(&path, b"two!", Some(0)).await.unwrap();
    assert_eq!((changed.version, changed.data_length, changed.czxid), (1, 4, created.stat.czxid));
    assert_eq!(client.exists(&path).await.unwrap(), Some(changed));
    let (children, stat) = client.get_children(&parent).await.unwrap();
    assert_eq!((children.as_slice(), stat.num_children), (&["a".to_owned()][..], 1));
    client.delete(&path, Some(1)).await.unwrap();
    assert_eq!(client.exists(&path).await.unwrap(), None);
    client.sync(&parent).await.unwrap();
}

#[tokio::test]
async fn every_kind_of_node_is_what_its_name_says() {
    let (client, parent) = client_and_parent().await;
    let at = |name: &str| format!("{parent}/{name}");
    assert_eq!(put(&client, &at("s-"), CreateMode::PersistentSequential).await, at("s-0000000000"));
    assert_eq!(put(&client, &at("e-"), CreateMode::EphemeralSequential).await, at("e-0000000001"));
    assert_eq!(put(&client, &format!("{parent}/"), CreateMode::PersistentSequential).await, at("0000000002"));
    put(&client, &at("container"), CreateMode::Container).await;
    put(&client, &at("ephemeral"), CreateMode::Ephemeral).await;
    let owner = |stat: Option<fencelock_zookeeper::Stat>| stat.unwrap().ephemeral_owner;
    assert_eq!(owner(client.exists(&at("ephemeral")).await.unwrap()), client.session().id);
    assert_eq!(owner(client.exists(&at("e-0000000001")).await.unwrap()), client.session().id);
    assert_eq!(owner(client.exists(&at("container")).await.unwrap()), 0);
    client.close().await.unwrap();
    let (other, _) = crate::common::client().await;
    assert_eq!(other.exists(&at("ephemeral")).await.unwrap(), None);
    assert!(other.exists(&at("s-0000000000")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_refusal_of_the_server_has_its_kind_and_names_its_path() {
    let (client, parent) = client_and_parent().await;
    let at = |name: &str| format!("{parent}/{name}");
    put(&client, &at("a"), CreateMode::Persistent).await;
    put(&client, &at("a/b"), CreateMode::Ephemeral).await;
    let open = [Acl::open()];
    let create = |path: &str| client.create(path, b"", CreateMode::Persistent, &open);
    let errors = [
        (create(&at("a")).await.unwrap_err(), ErrorKind::NodeExists, at("a")),
        (create(&at("x/y")).await.unwrap_err(), ErrorKind::NoNode, at("x/y")),
        (create(&at("a/b/c")).await.unwrap_err(), ErrorKind::NoChildrenForEphemerals, at("a/b/c")),
        (client.delete(&at("a"), None).await.unwrap_err(), ErrorKind::NotEmpty, at("a")),
        (client.delete(&at("x"), None).await.unwrap_err(), ErrorKind::NoNode, at("x")),
        (client.set_data(&at("a"), b"", Some(9)).await.unwrap_err(), ErrorKind::BadVersion, at("a")),
        (client.get_data(&at("x")).await.unwrap_err(), ErrorKind::NoNode, at("x")),
        (client.get_children(&at("x")).await.unwrap_err(), ErrorKind::NoNode, at("x")),
        (client.set_acl(&at("a"), &[], None).await.unwrap_err(), ErrorKind::InvalidAcl, at("a")),
        (client.set_acl(&at("a"), &[Acl::creator_all()], None).await.unwrap_err(), ErrorKind::InvalidAcl, at("a")),
    ];
    for (error, kind, path) in errors {
        assert_eq!((error.kind(), error.path()), (kind, Some(path.as_str())), "{error:?}");
        assert!(!error.outcome_unknown());
        assert!(error.to_string().contains(&client.session().server), "{error}");
    }
}

#[tokio::test]
async fn requests_are_taken_in_the_order_of_their_calls_and_travel_together() {
    let (client, parent) = client_and_parent().await;
    let at = |number: i32| format!("{parent}/{number}");
    let created = client.create(&at(1), b"x", CreateMode::Persistent, &[Acl::open()]);
    let listed = client.get_children(&parent);
    let deleted = client.delete(&at(1), None);
    let empty = client.get_children(&parent);
    assert_eq!(empty.await.unwrap().0.len(), 0);
    assert_eq!(listed.await.unwrap().0, ["1"]);
    created.await.unwrap();
    deleted.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_many_tasks_each_get_their_own_answer() {
    let (client, parent) = client_and_parent().await;
    let tasks = (0..64).map(|task| {
        let (client, path) = (client.clone(), format!("{parent}/{task}"));
        tokio::spawn(async move {
            for round in 0..20 {
                let data = format!("{task} {round}");
                client.create(&path, data.as_bytes(), CreateMode::Ephemeral, &[Acl::open()]).await.unwrap();
                assert_eq!(client.get_data(&path).await.unwrap().0, data.as_bytes());
                client.delete(&path, None).await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        soon(task).await.unwrap();
    }
}

#[test]
fn requests_come_from_threads_without_a_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (client, parent) = runtime.block_on(client_and_parent());
    let answer = std::thread::spawn(move || {
        let listed = client.get_children(&parent);
        futures_util::future::FutureExt::boxed(listed)
    });
    let listed = runtime.block_on(answer.join().unwrap()).unwrap();
    assert!(listed.0.is_empty());
}

#[tokio::test]
async fn an_answer_dropped_at_once_takes_its_request_out_of_the_line() {
    let (client, parent) = client_and_parent().await;
    // The connection's task shares this thread, and cannot have written anything yet.
    drop(client.create(&format!("{parent}/a"), b"", CreateMode::Persistent, &[Acl::open()]));
    assert!(client.get_children(&parent).await.unwrap().0.is_empty());
}

#[tokio::test]
async fn paths_are_checked_before_anything_is_sent() {
    let (client, _) = client().await;
    for path in ["", "a", "/a/", "/a//b", "/a/../b", "/\u{1f600}"] {
        let error = client.get_data(path).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArguments, "{path}");
    }
}

#[tokio::test]
async fn frames_are_limited_before_they_are_sent_and_answers_when_they_come() {
    let (writer, parent) = client_and_parent().await;
    let path = format!("{parent}/big");
    let data = vec![7; 5000];
    writer.create(&path, &data, CreateMode::Persistent, &[Acl::open()]).await.unwrap();
    let (client, mut events) = Client::connect(config().max_frame(4096).max_answer(4096)).await.unwrap();
    let error = client.set_data(&path, &data, None).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome_unknown(), error.path()), (ErrorKind::TooLarge, false, Some(&*path)));
    let error = client.get_data(&path).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert!(error.to_string().contains("4096"), "{error}");
    // The connection is as good as before, and so is the session.
    assert_eq!(client.get_children(&parent).await.unwrap().0, ["big"]);
    assert_eq!(client.connection_epoch(), 1);
    assert_eq!(events.next().now_or_never(), None);
}

#[tokio::test]
async fn a_mebibyte_of_children_is_listed_when_the_limit_allows_it() {
    let (client, parent) = client_and_parent().await;
    let name = "n".repeat(200);
    let open = [Acl::open()];
    for chunk in 0..12 {
        let created: Vec<_> = (0..500)
            .map(|number| format!("{parent}/{name}{}", chunk * 500 + number))
            .map(|path| client.create(&path, b"", CreateMode::Ephemeral, &open))
            .collect();
        for answer in created {
            answer.await.unwrap();
        }
    }
    let (narrow, _) = Client::connect(config().max_answer(1 << 20)).await.unwrap();
    let error = narrow.get_children(&parent).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(client.get_children(&parent).await.unwrap().0.len(), 6000);
}

#[tokio::test]
async fn paths_inside_a_chroot_do_not_show_it() {
    let (outside, parent) = client_and_parent().await;
    let connect = format!("{}{parent}", shared().address());
    let (client, _) = Client::connect(fencelock_zookeeper::Config::new(&connect).unwrap()).await.unwrap();
    let (_, _, mut children) = client.get_children_watched("/").await.unwrap();
    assert_eq!(put(&client, "/a-", CreateMode::PersistentSequential).await, "/a-0000000000");
    assert_eq!(soon(children.fired()).await, WatchEvent::ChildrenChanged);
    assert_eq!(children.path(), "/");
    let (_, _, mut data) = client.get_data_watched("/a-0000000000").await.unwrap();
    assert_eq!(data.path(), "/a-0000000000");
    outside.delete(&format!("{parent}/a-0000000000"), None).await.unwrap();
    assert_eq!(soon(data.fired()).await, WatchEvent::Deleted);
    assert_eq!(client.get_data("/gone").await.unwrap_err().path(), Some("/gone"));
}

#[tokio::test]
async fn a_chroot_that_is_not_there_is_named() {
    let connect = format!("{}/gone/away", shared().address());
    let error = Client::connect(fencelock_zookeeper::Config::new(&connect).unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoNode);
    assert!(error.to_string().contains("/gone/away"), "{error}");
}

#[tokio::test]
async fn credentials_open_what_is_closed_to_others() {
    let (stranger, parent) = client_and_parent().await;
    let (client, _) = Client::connect(config().auth("digest", "user:secret")).await.unwrap();
    let path = format!("{parent}/mine");
    let acl = [Acl::creator_all(), Acl::world_read()];
    client.create(&path, b"x", CreateMode::Persistent, &acl).await.unwrap();
    assert_eq!(stranger.get_data(&path).await.unwrap().0, b"x");
    let error = stranger.set_data(&path, b"y", None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoAuth);
    assert_eq!(client.set_data(&path, b"y", None).await.unwrap().version, 1);
    let (list, stat) = client.get_acl(&path).await.unwrap();
    assert_eq!((list.len(), stat.aversion), (2, 0));
    assert!(list.iter().any(|acl| acl.scheme == "digest" && acl.id.starts_with("user:")));
    assert!(list.contains(&Acl { permissions: Permissions::READ, ..Acl::open() }));
    client.set_acl(&path, &[Acl::open()], Some(0)).await.unwrap();
    stranger.set_data(&path, b"z", None).await.unwrap();
}

#[tokio::test]
async fn credentials_that_no_server_understands_are_refused_at_once() {
    let error = soon(Client::connect(config().auth("nonsense", "hush-canary"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AuthFailed, "{error}");
    assert!(!format!("{error} {error:?}").contains("canary"));
}

#[tokio::test]
async fn the_session_timeout_is_what_the_server_grants() {
    let (client, _) = Client::connect(config().session_timeout(Duration::from_millis(20))).await.unwrap();
    assert_eq!(client.session().timeout, Duration::from_secs(1));
    let (client, _) = Client::connect(config().session_timeout(Duration::from_secs(3600))).await.unwrap();
    assert_eq!(client.session().timeout, Duration::from_secs(120));
}

#[tokio::test]
async fn a_closed_client_says_so_and_is_closed_once() {
    let (client, mut events) = client().await;
    let clone = client.clone();
    let (first, second) = tokio::join!(client.close(), clone.close());
    assert_eq!((first.is_ok(), second.is_ok()), (true, true));
    client.close().await.unwrap();
    let error = client.exists("/").await.unwrap_err();
    assert_eq!((error.kind(), error.outcome_unknown()), (ErrorKind::Closed, false));
    assert_eq!(soon(events.next()).await, Some(Event::Closed));
    assert_eq!(soon(events.next()).await, None);
}

#[tokio::test]
async fn requests_made_before_the_close_are_answered() {
    let (client, parent) = client_and_parent().await;
    let created = client.create(&format!("{parent}/a"), b"", CreateMode::Persistent, &[Acl::open()]);
    client.close().await.unwrap();
    created.await.unwrap();
}

#[tokio::test]
async fn dropping_the_last_clone_closes_the_session() {
    let (watcher, parent) = client_and_parent().await;
    let (client, _) = client().await;
    let path = format!("{parent}/e");
    put(&client, &path, CreateMode::Ephemeral).await;
    let (_, _, mut gone) = watcher.get_data_watched(&path).await.unwrap();
    drop(client);
    assert_eq!(soon(gone.fired()).await, WatchEvent::Deleted);
}
