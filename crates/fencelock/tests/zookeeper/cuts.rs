//! Connections cut in the middle of a downgrade and of a grant.

use std::time::Duration;

use fencelock::inspect::Claim;
use fencelock::{Client, ErrorKind};
use fencelock_testbed::zookeeper::shared;
use fencelock_testbed::{Proxy, Way};
use fencelock_zookeeper::{self as wire, CreateMode};

use crate::kinds::shown;
use crate::lab::{Lab, granted, observed, reading, soon, taking, until, writing};

async fn client(lab: &Lab, proxy: &Proxy, options: &str) -> Client {
    let url = format!("zk://{}{}?tick_ms=500{options}", proxy.address(), lab.parent);
    Client::connect(&url).await.unwrap()
}

#[tokio::test]
async fn wherever_its_answers_are_cut_a_downgrade_leaves_one_reader_and_lets_no_writer_in() {
    let lab = Lab::new().await;
    let proxy = Proxy::start(shared().address()).unwrap();
    for options in ["&ttl_ms=60000", "&ttl_ms=60000&layout=kazoo"] {
        let (near, far) = (client(&lab, &proxy, options).await, lab.client(&options[13..]).await);
        // The answers to the create and to the delete, and the requests, which are lost on the way.
        let cuts = [0, 1, 60, 120, 160, 161, 180, 200].map(|bytes| (bytes, Way::Down));
        for (bytes, way) in cuts.into_iter().chain([0, 20, 120, 200, 300].map(|bytes| (bytes, Way::Up))) {
            let writer = soon(near.rwlock("page").unwrap().write()).await.unwrap();
            let token = writer.token();
            let waits = writing(&far, "page");
            lab.until_queued("page", 2).await;
            proxy.cut_after(bytes, way);
            let reader = soon(writer.downgrade()).await.unwrap();
            proxy.heal();
            let queue = shown(&far, "page").await;
            assert_eq!(queue, [(Claim::READER, true), (Claim::WRITER, false)], "{bytes} {way:?}");
            assert_eq!(lab.children("page").await.len(), 2, "{bytes} {way:?}");
            assert!(!waits.is_finished() && reader.check().is_ok() && reader.token() == token);
            soon(reader.release()).await.unwrap();
            granted(waits).await.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_release_whose_connection_is_cut_is_asked_for_again_on_the_next_one() {
    let lab = Lab::new().await;
    let proxy = Proxy::start(shared().address()).unwrap();
    let near = client(&lab, &proxy, "&ttl_ms=60000").await;
    let cuts = [(0, Way::Down), (1, Way::Down), (19, Way::Down), (0, Way::Up), (20, Way::Up)];
    for (bytes, way) in cuts {
        let guard = soon(near.mutex("job").unwrap().acquire()).await.unwrap();
        proxy.cut_after(bytes, way);
        soon(guard.release()).await.unwrap_or_else(|error| panic!("{bytes} {way:?}: {error}"));
        proxy.heal();
        assert!(lab.children("job").await.is_empty(), "{bytes} {way:?}");
    }
}

#[tokio::test]
async fn a_downgrade_given_up_half_way_leaves_nothing() {
    let lab = Lab::new().await;
    let proxy = Proxy::start(shared().address()).unwrap();
    let near = client(&lab, &proxy, "&ttl_ms=60000").await;
    for bytes in [0, 60, 120, 160, 180] {
        let writer = soon(near.rwlock("page").unwrap().write()).await.unwrap();
        proxy.cut_after(bytes, Way::Down);
        // The downgrade is dropped while its first replies are lost, and the guard with it.
        let _ = tokio::time::timeout(Duration::from_millis(1), writer.downgrade()).await;
        proxy.heal();
        lab.until_queued("page", 0).await;
    }
}

#[tokio::test]
async fn a_permit_holder_that_dies_between_its_grant_and_its_mark_delays_no_waiter() {
    let lab = Lab::new().await;
    let far = lab.client("").await;
    let path = lab.path("seats");
    // The bytes of a list request: the mark is sent after it.
    let list = (4 + 4 + 4 + 4 + path.len() + 1) as u64;
    for sent in [list, list + 30] {
        let proxy = Proxy::start(shared().address()).unwrap();
        let near = client(&lab, &proxy, "&ttl_ms=15000").await;
        let all = soon(far.semaphore("seats", 2).unwrap().permits(2).acquire()).await.unwrap();
        let dies = taking(&near, "seats", 1, 2);
        lab.until_queued("seats", 2).await;
        let next = taking(&far, "seats", 1, 2);
        let nodes = lab.until_queued("seats", 3).await;
        // Both clients listen once their earlier requests are answered.
        near.names("~", None, 1).await.unwrap();
        far.names("~", None, 1).await.unwrap();
        proxy.cut_after(sent, Way::Up);
        proxy.refuse();
        all.release().await.unwrap();
        let next = granted(next).await;
        assert!(
            lab.hands.exists(&lab.path(&format!("seats/{}", nodes[1]))).await.unwrap().is_none_or(|s| s.version == 0)
        );
        next.release().await.unwrap();
        dies.abort();
        lab.until_queued("seats", 0).await;
    }
}

/// The nodes of six readers are deleted while the readers are cut off, before their writer leaves. The next connection is cut at
/// another byte in each round. In either order of the events, no reader is granted together with the next writer.
#[tokio::test]
async fn no_event_after_a_cut_lets_a_reader_in_whose_node_is_gone() {
    let mut lab = Lab::new().await;
    let far = lab.client("").await;
    let proxy = Proxy::start(lab.server).unwrap();
    lab.server = proxy.address();
    for round in 0..20 {
        let (near, requeued) = observed(&lab.url("")).await;
        let name = format!("page-{round}");
        let first = far.rwlock(&name).unwrap().write().await.unwrap();
        let readers: Vec<_> = (0..6).map(|_| reading(&near, &name)).collect();
        lab.until_queued(&name, 7).await;
        let next = writing(&far, &name);
        let nodes = lab.until_queued(&name, 8).await;
        // Two answers later all watches are set.
        near.names("~", None, 1).await.unwrap();
        near.names("~", None, 1).await.unwrap();
        proxy.refuse();
        proxy.reset();
        for node in nodes.iter().filter(|node| node.contains("__READ__")) {
            lab.delete(&format!("{name}/{node}")).await;
        }
        first.release().await.unwrap();
        let next = granted(next).await;
        proxy.heal();
        proxy.cut_after(41 + round * 20, Way::Down);
        let nobody_reads = || readers.iter().all(|reader| !reader.is_finished());
        // Each of them asks for a place anew.
        soon(async {
            while requeued.0.lock().unwrap().len() < 6 {
                assert!(nobody_reads(), "round {round}: a reader together with a writer");
                tokio::task::yield_now().await;
            }
        })
        .await;
        lab.until_queued(&name, 7).await;
        assert!(nobody_reads() && next.check().is_ok(), "round {round}: a reader together with a writer");
        proxy.heal();
        next.release().await.unwrap();
        for reader in readers {
            granted(reader).await.release().await.unwrap();
        }
        near.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_password_is_read_anew_for_each_connection_and_the_session_continues() {
    let lab = Lab::new().await;
    lab.put("open/below", CreateMode::Persistent).await;
    let proxy = Proxy::start(shared().address()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let url = format!(
        "zk://me@{}{}?tick_ms=500&ttl_ms=60000&password_file={}",
        proxy.address(),
        lab.path("open"),
        file.display()
    );
    until("the empty password is refused", async || {
        let error = Client::connect(&url).await.unwrap_err();
        let is_meant = error.kind() == ErrorKind::Config && error.to_string().contains("password");
        // On a busy machine, a client may give up before a server has answered.
        assert!(is_meant || error.is_retryable(), "{error:?}");
        is_meant
    })
    .await;
    std::fs::write(&file, "one\n").unwrap();
    let client = Client::connect(&url).await.unwrap();
    let first = client.mutex("first").unwrap().acquire().await.unwrap();
    std::fs::write(&file, "two\n").unwrap();
    proxy.reset();
    let second = soon(client.mutex("second").unwrap().acquire()).await.unwrap();
    first.check().unwrap();
    // To the servers each password is another user.
    for (password, may) in [("one", [true, false]), ("two", [false, true])] {
        let config = wire::Config::new(&lab.server.to_string()).unwrap().auth("digest", format!("me:{password}"));
        let (hands, _) = wire::Client::connect(config).await.unwrap();
        for (name, may) in ["first", "second"].into_iter().zip(may) {
            let list = hands.get_acl(&lab.path(&format!("open/{name}"))).await;
            assert_eq!(list.is_ok(), may, "{password} {name}: {list:?}");
        }
    }
    second.release().await.unwrap();
    // This password has no rights on the node of the other password.
    std::fs::write(&file, "one\n").unwrap();
    proxy.reset();
    soon(first.release()).await.unwrap();
}
