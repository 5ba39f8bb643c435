//! Several operations at once, on a real server: all of them or none.

use crate::common::{client_and_parent, config, put, soon};
use fencelock_zookeeper::{Acl, Client, CreateMode, Done, ErrorKind, Operation, WatchEvent};

const OPEN: &[Acl] = &[Acl::open()];

fn created(done: &Done) -> &str {
    match done {
        Done::Created { path, .. } => path,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn all_operations_are_done_in_their_order_and_each_tells_what_it_did() {
    let (client, parent) = client_and_parent().await;
    let at = |name: &str| format!("{parent}/{name}");
    let (old, new, below, queue, container) = (at("old"), at("new"), at("new/below"), at("new/lock-"), at("container"));
    put(&client, &old, CreateMode::Persistent).await;
    let done = client.multi(&[
        Operation::check(&old, Some(0)),
        Operation::create(&new, b"one", CreateMode::Persistent, OPEN),
        Operation::set_data(&new, b"three", Some(0)),
        Operation::create(&below, b"", CreateMode::Ephemeral, OPEN),
        Operation::create(&queue, b"", CreateMode::EphemeralSequential, OPEN),
        Operation::create(&container, b"", CreateMode::Container, OPEN),
        Operation::delete(&old, None),
    ]);
    let done = soon(done).await.unwrap();
    assert_eq!((&done[0], &done[6]), (&Done::Checked, &Done::Deleted));
    assert_eq!(
        [1, 3, 4, 5].map(|number| created(&done[number])),
        [new.as_str(), &below, &format!("{queue}0000000001"), &container]
    );
    let (data, stat) = client.get_data(&new).await.unwrap();
    assert_eq!((data.as_slice(), stat.version, stat.num_children), (&b"three"[..], 1, 2));
    let Done::DataSet(set) = &done[2] else { panic!("{done:?}") };
    assert_eq!((set.czxid, set.data_length), (stat.czxid, 5));
    let ephemeral = client.exists(&below).await.unwrap().unwrap();
    assert_eq!(ephemeral.ephemeral_owner, client.session().id);
    assert_eq!(ephemeral.czxid, stat.czxid, "it is one transaction");
    assert!(matches!(done[5], Done::Created { stat: Some(container), .. } if container.czxid == stat.czxid));
    assert_eq!(client.exists(&old).await.unwrap(), None);
}

#[tokio::test]
async fn where_one_is_refused_none_is_done_and_it_is_named() {
    let (client, parent) = client_and_parent().await;
    let at = |name: &str| format!("{parent}/{name}");
    let [there, child, new, missing, below, denied] =
        ["there", "there/child", "new", "missing/below", "there/child/below", "denied"].map(at);
    put(&client, &there, CreateMode::Persistent).await;
    put(&client, &child, CreateMode::Ephemeral).await;
    let create = |path, acl| Operation::create(path, b"", CreateMode::Ephemeral, acl);
    let refused = [
        (Operation::check(&there, Some(7)), ErrorKind::BadVersion, -103),
        (Operation::check(&missing, None), ErrorKind::NoNode, -101),
        (Operation::delete(&there, None), ErrorKind::NotEmpty, -111),
        (Operation::set_data(&there, b"", Some(3)), ErrorKind::BadVersion, -103),
        (create(&there, OPEN), ErrorKind::NodeExists, -110),
        (create(&missing, OPEN), ErrorKind::NoNode, -101),
        (create(&below, OPEN), ErrorKind::NoChildrenForEphemerals, -108),
        (create(&denied, &[]), ErrorKind::InvalidAcl, -114),
    ];
    let first = Operation::create(&new, b"", CreateMode::Persistent, OPEN);
    let set = Operation::set_data(&there, b"changed", None);
    for (operation, kind, code) in &refused {
        let error = soon(client.multi(&[first, set, *operation, first])).await.unwrap_err();
        assert_eq!((error.kind(), error.code(), error.refused_operation()), (*kind, Some(*code), Some(2)), "{error}");
        assert!(!error.outcome_unknown() && error.to_string().contains("none was done"), "{error}");
        assert_eq!(client.exists(&new).await.unwrap(), None);
        assert_eq!(client.get_data(&there).await.unwrap().0, b"");
    }
}

#[tokio::test]
async fn paths_are_relative_to_the_chroot() {
    let (outside, parent) = client_and_parent().await;
    let connect = format!("{}{parent}", fencelock_testbed::zookeeper::shared().address());
    let inside = fencelock_zookeeper::Config::new(&connect).unwrap().session_timeout(crate::common::LASTING);
    let inside = inside.connect_deadline(crate::common::PATIENCE);
    let (client, _events) = Client::connect(inside).await.unwrap();
    let operations =
        [Operation::create("/a-", b"", CreateMode::PersistentSequential, OPEN), Operation::set_data("/", b"x", None)];
    let done = soon(client.multi(&operations)).await.unwrap();
    assert_eq!(created(&done[0]), "/a-0000000000");
    assert_eq!(outside.get_data(&parent).await.unwrap().0, b"x");
    assert!(outside.exists(&format!("{parent}/a-0000000000")).await.unwrap().is_some());
}

#[tokio::test]
async fn an_impossible_request_is_refused_before_anything_is_sent() {
    let (client, parent) = client_and_parent().await;
    let error = soon(client.multi(&[])).await.unwrap_err();
    assert_eq!((error.kind(), error.refused_operation()), (ErrorKind::BadArguments, None), "{error}");
    let error = soon(client.multi(&[Operation::check("/", None), Operation::delete("a", None)])).await.unwrap_err();
    assert_eq!((error.kind(), error.refused_operation()), (ErrorKind::BadArguments, Some(1)), "{error}");
    // Each of them fits into a frame, and all together do not.
    let data = vec![b'x'; 400_000];
    let paths: Vec<_> = (0..3).map(|number| format!("{parent}/{number}")).collect();
    let create = |path| Operation::create(path, &data, CreateMode::Ephemeral, OPEN);
    let error = soon(client.multi(&paths.iter().map(|path| create(path)).collect::<Vec<_>>())).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome_unknown()), (ErrorKind::TooLarge, false), "{error}");
    assert!(soon(client.get_children(&parent)).await.unwrap().0.is_empty());
    soon(client.multi(&paths[..2].iter().map(|path| create(path)).collect::<Vec<_>>())).await.unwrap();
}

#[tokio::test]
async fn watches_hear_of_what_was_done_and_of_nothing_that_was_not() {
    let (client, parent) = client_and_parent().await;
    let path = format!("{parent}/a");
    let (_, mut created) = client.exists_watched(&path).await.unwrap();
    let create = Operation::create(&path, b"", CreateMode::Ephemeral, OPEN);
    soon(client.multi(&[create, Operation::check(&parent, Some(9))])).await.unwrap_err();
    soon(client.sync(&parent)).await.unwrap();
    assert_eq!(created.event(), None);
    soon(client.multi(&[create, Operation::check(&parent, None)])).await.unwrap();
    assert_eq!(soon(created.fired()).await, WatchEvent::Created);
}

#[tokio::test]
async fn a_right_that_is_missing_is_named() {
    let (client, parent) = client_and_parent().await;
    let (owner, _events) = Client::connect(config().auth("digest", "user:secret")).await.unwrap();
    let path = format!("{parent}/mine");
    owner.create(&path, b"", CreateMode::Persistent, &[Acl::creator_all()]).await.unwrap();
    let error = soon(client.multi(&[Operation::set_data(&path, b"", None)])).await.unwrap_err();
    assert_eq!((error.kind(), error.refused_operation()), (ErrorKind::NoAuth, Some(0)), "{error}");
    soon(owner.multi(&[Operation::set_data(&path, b"", None)])).await.unwrap();
}

/// As the holder of a lock writes: with its node, the write is refused.
#[tokio::test]
async fn a_write_that_checks_the_node_of_a_lock_is_refused_once_that_is_gone() {
    let (client, parent) = client_and_parent().await;
    let (lock, data) = (format!("{parent}/lock"), format!("{parent}/data"));
    assert_eq!(client.child_created_by(&lock, 1).await.unwrap(), None);
    for path in [&lock, &data] {
        put(&client, path, CreateMode::Persistent).await;
    }
    put(&client, &format!("{lock}/no-number"), CreateMode::Ephemeral).await;
    let mut nodes = Vec::new();
    for name in ["_c_b-lock-", "_c_a-lock-"] {
        let created = client.create(&format!("{lock}/{name}"), b"", CreateMode::EphemeralSequential, OPEN);
        nodes.push(soon(created).await.unwrap());
    }
    let write = async |text: &'static [u8], token| {
        let Some(node) = client.child_created_by(&lock, token).await.unwrap() else { return Ok(false) };
        let write = [Operation::check(&node, None), Operation::set_data(&data, text, None)];
        soon(client.multi(&write)).await.map(|_| true)
    };
    for node in &nodes {
        let found = client.child_created_by(&lock, node.stat.czxid).await.unwrap();
        assert_eq!(found.as_deref(), Some(&*node.path));
    }
    assert!(write(b"first", nodes[0].stat.czxid).await.unwrap());
    let late = [Operation::check(&nodes[0].path, None), Operation::set_data(&data, b"late", None)];
    soon(client.delete(&nodes[0].path, None)).await.unwrap();
    let refused = soon(client.multi(&late)).await.unwrap_err();
    assert_eq!((refused.kind(), refused.refused_operation()), (ErrorKind::NoNode, Some(0)));
    assert!(!write(b"late", nodes[0].stat.czxid).await.unwrap());
    assert_eq!(client.get_data(&data).await.unwrap().0, b"first");
    assert!(write(b"second", nodes[1].stat.czxid).await.unwrap());
}
