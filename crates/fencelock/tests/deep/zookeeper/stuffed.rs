//! A stranger who fills the parent of a lock with twenty thousand nodes.

use fencelock::store::Page;
use fencelock::{Client, ErrorKind};
use fencelock_testbed::zookeeper::{Ensemble, Settings};

use super::lab::{Lab, acquired, acquiring, soon, stuff};

#[tokio::test]
async fn twenty_thousand_nodes_of_a_stranger_keep_no_client_from_the_lock_and_are_shown() {
    // Usually the servers of tests have little memory: less than one such listing needs.
    let server = Ensemble::start(Settings::default().heap(512)).unwrap();
    let lab = Lab::on(server.server(0).address()).await;
    // Ten megabytes take long on a busy machine.
    let client = Client::connect(&lab.url("")).await.unwrap();
    let mutex = client.mutex("job").unwrap();
    soon(mutex.acquire()).await.unwrap().release().await.unwrap();
    stuff(&lab, "job", 20_000, 500).await;
    let held = soon(mutex.acquire()).await.unwrap();
    let waiter = acquiring(&client, "job");
    soon(async {
        while lab.hands.exists(&lab.path("job")).await.unwrap().unwrap().num_children < 20_002 {
            super::lab::pause().await;
        }
    })
    .await;
    let busy = soon(mutex.try_acquire()).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
    let queue = soon(client.queue_page(held.name(), Page { skip: 0, limit: 1 })).await.unwrap();
    assert!(queue.queued == 2 && !queue.strangers.is_empty(), "{} queued", queue.queued);
    let before = held.token();
    soon(held.release()).await.unwrap();
    let held = acquired(waiter).await;
    assert!(held.token() > before);
    soon(held.release()).await.unwrap();
}
