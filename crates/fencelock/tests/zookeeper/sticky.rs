//! Sticky locks on real servers.

use std::time::Duration;

use fencelock_zookeeper::CreateMode;

use crate::lab::{Lab, soon};

#[path = "../sticky/mod.rs"]
mod any;

#[tokio::test]
async fn a_sticky_lock_is_released_to_a_waiter_of_another_client() {
    for layout in ["", "&layout=kazoo", "&layout=shared"] {
        let lab = Lab::new().await;
        any::is_released_to_a_waiter_of_another_client(&lab.client(layout).await, &lab.client(layout).await).await;
    }
}

#[tokio::test]
async fn other_nodes_next_to_a_kept_lock_do_not_end_the_keeping_and_other_families_do() {
    let (lab, client) = Lab::with_client().await;
    let sticky = client.mutex("job").unwrap().sticky(Duration::from_secs(3600));
    let guard = soon(sticky.acquire()).await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    lab.put("job/nested", CreateMode::Persistent).await;
    lab.put("job/other", CreateMode::Persistent).await;
    // The session has then received all earlier events.
    client.queue("job").await.unwrap();
    let guard = soon(sticky.acquire()).await.unwrap();
    assert_eq!(guard.token(), token);
    guard.release().await.unwrap();
    lab.put("job/_c_00000000-0000-0000-0000-000000000000-lock-", CreateMode::EphemeralSequential).await;
    soon(async {
        while lab.children("job").await.iter().filter(|node| node.contains("-lock-")).count() > 1 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}
