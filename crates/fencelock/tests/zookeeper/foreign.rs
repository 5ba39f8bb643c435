//! Nodes of other clients, and of operators, in the same queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fencelock::{ErrorKind, Loss, Name};
use fencelock_zookeeper::{Acl, CreateMode};

use crate::lab::{Lab, acquired, acquiring, observed, soon};
use crate::refused::until_refused_by;

/// A contender of every family, up to its number.
const CONTENDERS: [&str; 5] = [
    "_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-lock-",
    "_c_9043e340783bca239f63470b2f5c0243-lock-",
    "lock-",
    "94b6e5cf49364b1f8706ee06e5d07c35__lock__",
    "94b6e5cf49364b1f8706ee06e5d07c35__rlock__",
];

#[tokio::test]
async fn our_node_is_what_every_family_expects() {
    let (lab, client) = Lab::with_client().await;
    let guard = client.mutex("a/b").unwrap().purpose("nightly").acquire().await.unwrap();
    let [node] = &lab.children("a/b").await[..] else { panic!("one node") };
    let (id, number) = node.strip_prefix("_c_").unwrap().split_once("-lock-").unwrap();
    assert_eq!((id.len(), number, id.matches('-').count()), (36, "0000000000", 4));
    let path = lab.path(&format!("a/b/{node}"));
    let (data, stat) = lab.hands.get_data(&path).await.unwrap();
    let data = String::from_utf8(data).unwrap();
    assert!(data.contains(r#""purpose":"nightly""#) && data.contains(&format!(r#""pid":{}"#, std::process::id())));
    assert_ne!(stat.ephemeral_owner, 0);
    assert_eq!(guard.token().unwrap().get(), stat.czxid.unsigned_abs());
    assert_eq!(lab.hands.get_acl(&path).await.unwrap().0, [Acl::open()]);
    guard.release().await.unwrap();
    assert!(lab.children("a/b").await.is_empty());

    let kazoo = lab.client("&layout=kazoo&owner=opaque").await;
    let _guard = kazoo.mutex("k").unwrap().acquire().await.unwrap();
    let node = lab.children("k").await.remove(0);
    let (id, _) = node.split_once("__lock__").unwrap();
    assert!(id.len() == 32 && id.starts_with('a'), "{node}");
    let (data, _) = lab.hands.get_data(&lab.path(&format!("k/{node}"))).await.unwrap();
    assert!(!String::from_utf8(data).unwrap().contains("pid"));
}

#[tokio::test]
async fn a_contender_waits_for_smaller_numbers_and_for_no_later_one() {
    let lab = Lab::new().await;
    for (number, options) in ["", "&layout=kazoo"].iter().enumerate() {
        let client = lab.client(options).await;
        for (kind, contender) in CONTENDERS.iter().enumerate() {
            let name = format!("job-{number}-{kind}");
            let ahead = lab.put(&format!("{name}/{contender}"), CreateMode::EphemeralSequential).await;
            until_refused_by("by hand", &client, &name).await;
            let waits = acquiring(&client, &name);
            lab.until_queued(&name, 2).await;
            let behind = lab.put(&format!("{name}/{contender}"), CreateMode::EphemeralSequential).await;
            let shown = client.queue(&Name::new(&name).unwrap()).await.unwrap();
            assert_eq!(shown.contenders.iter().map(|c| c.grant.is_some()).collect::<Vec<_>>(), [true, false, false]);
            assert!(!waits.is_finished());
            lab.delete(&ahead).await;
            let guard = acquired(waits).await;
            let next = acquiring(&client, &name);
            lab.until_queued(&name, 3).await;
            guard.release().await.unwrap();
            lab.until_queued(&name, 2).await;
            assert!(!next.is_finished(), "{contender} is ahead");
            lab.delete(&behind).await;
            acquired(next).await.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn strangers_are_passed_over_and_listed() {
    let (lab, client) = Lab::with_client().await;
    for stranger in ["job/x-144-", "job/_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-latch-"] {
        lab.put(stranger, CreateMode::EphemeralSequential).await;
    }
    lab.put("job/!config", CreateMode::Persistent).await;
    lab.put("job/nested/lock-", CreateMode::EphemeralSequential).await;
    lab.hands.set_data(&lab.path("job/nested"), b"", None).await.unwrap();
    let guard = client.mutex("job").unwrap().try_acquire().await.unwrap();
    let queue = client.queue(guard.name()).await.unwrap();
    assert_eq!(queue.contenders.len(), 1);
    // A latch queues with its own kind alone: no contender here waits for it.
    let latch = "_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-latch-0000000001";
    assert_eq!(queue.strangers, ["!config", latch, "x-144-0000000000"]);
    let names = client.names("", None, 10).await.unwrap();
    assert_eq!(names.iter().map(Name::as_str).collect::<Vec<_>>(), ["job", "job/nested"]);
    guard.release().await.unwrap();
    assert_eq!(lab.children("job").await.len(), 4, "nothing of anybody else is deleted");
}

#[tokio::test]
async fn a_contender_of_no_session_blocks_and_is_named() {
    let (lab, client) = Lab::with_client().await;
    let left = lab.put("job/lock-", CreateMode::PersistentSequential).await;
    until_refused_by(&lab.path(&left), &client, "job").await;
    assert_eq!(lab.children("job").await.len(), 1);
    let waits = acquiring(&client, "job");
    lab.until_queued("job", 2).await;
    lab.delete(&left).await;
    acquired(waits).await.release().await.unwrap();
}

#[tokio::test]
async fn another_kind_of_lock_ahead_is_a_conflict_and_nothing_is_left() {
    let (lab, client) = Lab::with_client().await;
    for kind in ["__READ__", "__WRIT__"] {
        let name = format!("job{kind}");
        lab.put(&format!("{name}/_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-{kind}"), CreateMode::EphemeralSequential)
            .await;
        for acquired in [client.mutex(&name).unwrap().try_acquire().await, client.mutex(&name).unwrap().acquire().await]
        {
            assert_eq!(acquired.unwrap_err().kind(), ErrorKind::Conflict);
        }
        assert_eq!(lab.children(&name).await.len(), 1);
    }
}

#[tokio::test]
async fn a_holder_whose_node_is_deleted_is_notified_at_once() {
    let lab = Lab::new().await;
    for options in ["", "&layout=kazoo"] {
        let client = lab.client(options).await;
        for waited in [false, true] {
            let first = client.mutex("job").unwrap().acquire().await.unwrap();
            let guard = if waited {
                let waits = acquiring(&client, "job");
                lab.until_queued("job", 2).await;
                first.release().await.unwrap();
                acquired(waits).await
            } else {
                first
            };
            let node = lab.children("job").await.remove(0);
            let path = lab.path(&format!("job/{node}"));
            lab.hands.set_data(&path, b"__REVOKE__", None).await.unwrap();
            client.queue(guard.name()).await.unwrap();
            assert!(guard.check().is_ok(), "what is written into the node takes nothing away");
            lab.delete(&format!("job/{node}")).await;
            assert_eq!(soon(guard.lost()).await, Loss::Removed);
            assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        }
    }
}

#[tokio::test]
async fn a_waiter_whose_node_is_deleted_queues_again_and_never_holds_with_another() {
    let lab = Lab::new().await;
    for options in ["", "&layout=kazoo"] {
        let inside = Arc::new(AtomicUsize::new(0));
        let holder = lab.client(options).await.mutex("job").unwrap().acquire().await.unwrap();
        let mut clients = Vec::new();
        for count in 2..6 {
            let (client, requeued) = observed(&lab.url(options)).await;
            let (mutex, inside) = (client.mutex("job").unwrap(), Arc::clone(&inside));
            let section = tokio::spawn(async move {
                let guard = mutex.acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold the mutex");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            });
            lab.until_queued("job", count).await;
            clients.push((client, requeued, section));
        }
        let queued = lab.children("job").await;
        // The first waiter, the one that is handed to next, and one in the middle.
        for node in [&queued[1], &queued[3]] {
            lab.delete(&format!("job/{node}")).await;
        }
        holder.release().await.unwrap();
        for (number, (_, requeued, section)) in clients.into_iter().enumerate() {
            soon(section).await.unwrap();
            let expected: &[Loss] = if number % 2 == 0 { &[Loss::Removed] } else { &[] };
            assert_eq!(*requeued.0.lock().unwrap(), expected, "waiter {number}");
        }
        assert!(lab.children("job").await.is_empty());
    }
}

#[tokio::test]
async fn a_parent_that_goes_away_again_and_again_is_made_again() {
    let (lab, client) = Lab::with_client().await;
    let mutex = client.mutex("a/job").unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
    let (hands, paths) = (lab.hands.clone(), [lab.path("a/job"), lab.path("a")]);
    let reaper = tokio::spawn(async move {
        loop {
            for path in &paths {
                let _ = hands.delete(path, None).await;
            }
        }
    });
    for _ in 0..100 {
        soon(mutex.acquire()).await.unwrap().release().await.unwrap();
    }
    reaper.abort();
}

#[tokio::test]
async fn under_one_parent_each_name_is_a_lock_of_its_own() {
    let lab = Lab::new().await;
    let client = lab.client("&layout=shared").await;
    let recipe = lab.put("lock", CreateMode::EphemeralSequential).await;
    let go = lab.put("_c_9043e340783bca239f63470b2f5c0243-job", CreateMode::EphemeralSequential).await;
    let free = client.mutex("jo").unwrap().try_acquire().await.unwrap();
    for (name, node, queued) in [("lock", &recipe, 4), ("job", &go, 3)] {
        assert_eq!(client.mutex(name).unwrap().try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
        let waits = acquiring(&client, name);
        lab.until_queued("", queued).await;
        lab.delete(node).await;
        let guard = acquired(waits).await;
        assert_eq!(client.queue(guard.name()).await.unwrap().contenders.len(), 1);
        guard.release().await.unwrap();
    }
    let names = client.names("", None, 10).await.unwrap();
    assert_eq!(names.iter().map(Name::as_str).collect::<Vec<_>>(), ["jo"]);
    assert_eq!(client.mutex("a/b").unwrap().try_acquire().await.unwrap_err().kind(), ErrorKind::InvalidName);
    drop(free);
}
