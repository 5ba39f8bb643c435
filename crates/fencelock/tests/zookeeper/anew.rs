//! A queue that was deleted as a whole and began anew, while places of the old one were still waiting.

use fencelock::Client;
use fencelock_testbed::zookeeper::{Ensemble, Settings};
use fencelock_testbed::{Proxy, Way};
use fencelock_zookeeper::CreateMode;

use crate::lab::{Lab, acquired, acquiring, soon};

const NODE: &str = "job/_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-lock-";

/// Waits until `count` watches are set on this node.
async fn until_watched(ensemble: &Ensemble, path: &str, count: usize) {
    let watchers = |words: &str| -> usize {
        let mut lines = words.lines().skip_while(|line| *line != path).skip(1);
        lines.by_ref().take_while(|line| line.starts_with('\t')).count()
    };
    soon(async {
        while watchers(&ensemble.server(0).word("wchp").unwrap()) < count {
            crate::lab::pause().await;
        }
    })
    .await;
}

#[tokio::test]
async fn knowledge_of_a_queue_is_not_applied_to_one_that_began_anew() {
    let ensemble = Ensemble::start(Settings::default()).unwrap();
    let lab = Lab::on(ensemble.server(0).address()).await;
    let proxy = Proxy::start(ensemble.server(0).address()).unwrap();
    let url = format!("zk://{}{}?tick_ms=500", proxy.address(), lab.parent);
    let client = Client::builder().ttl(std::time::Duration::from_secs(60)).connect(&url).await.unwrap();
    // The client must know a front beyond the numbers of the queue that begins anew.
    for _ in 0..5 {
        let node = lab.put(NODE, CreateMode::EphemeralSequential).await;
        lab.delete(&node).await;
    }
    let held = lab.put(NODE, CreateMode::EphemeralSequential).await;
    let first = acquiring(&client, "job");
    lab.until_queued("job", 2).await;
    let waits = acquiring(&client, "job");
    let late = acquiring(&client, "job");
    let nodes = lab.until_queued("job", 4).await;
    for node in &nodes[1..] {
        until_watched(&ensemble, &lab.path(&format!("job/{node}")), 1).await;
    }
    lab.delete(&held).await;
    let _first = acquired(first).await;
    // An operator clears the name, the last one first, so that no waiter is granted meanwhile; and other clients come
    // first.
    proxy.hold(Way::Down);
    for node in lab.children("job").await.iter().rev() {
        lab.delete(&format!("job/{node}")).await;
    }
    lab.delete("job").await;
    let holder = lab.put(NODE, CreateMode::EphemeralSequential).await;
    assert!(holder.ends_with("0000000000"), "{holder}");
    let one = lab.put(NODE, CreateMode::EphemeralSequential).await;
    let two = lab.put(NODE, CreateMode::EphemeralSequential).await;
    proxy.release();
    let nodes = lab.until_queued("job", 5).await;
    for node in &nodes[1..] {
        until_watched(&ensemble, &lab.path(&format!("job/{node}")), 1).await;
    }
    lab.delete(&one).await;
    // The client has received all events that precede a reply on the same connection.
    client.names("~", None, 1).await.unwrap();
    lab.delete(&two).await;
    for _ in 0..10 {
        client.names("~", None, 1).await.unwrap();
    }
    assert!(!waits.is_finished() && !late.is_finished(), "two hold it");
    lab.delete(&holder).await;
    let (waits, late) =
        (async { acquired(waits).await.release().await }, async { acquired(late).await.release().await });
    let (waits, late) = futures_util::future::join(waits, late).await;
    waits.and(late).unwrap();
}
