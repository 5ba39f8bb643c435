//! The requests of acquires and releases, as the server counts them.

use fencelock::Client;
use fencelock_testbed::zookeeper::Ensemble;
use futures_util::future;

use crate::lab::{Lab, soon};

const LANES: usize = 64;

/// The number of packets that the server has received.
fn received(server: &Ensemble) -> u64 {
    server.server(0).monitor("zk_packets_received").unwrap()
}

/// Takes and releases the lock of every lane `count` times, all lanes at once.
async fn cycle(client: &Client, count: usize) {
    let lanes = (0..LANES).map(|lane| async move {
        let mutex = client.mutex(format!("lane-{lane}")).unwrap();
        for _ in 0..count {
            mutex.acquire().await.unwrap().release().await.unwrap();
        }
    });
    soon(future::join_all(lanes)).await;
}

#[tokio::test]
async fn short_sections_cost_a_create_a_list_and_a_delete_however_many_run_at_once() {
    const CYCLES: usize = 40;
    let (server, lab) = Lab::alone().await;
    let client = lab.client("").await;
    // Makes the parents.
    cycle(&client, 1).await;
    let before = received(&server);
    cycle(&client, CYCLES).await;
    let asked = received(&server) - before;
    // A busy machine makes sections long: then each has a watch on its node. Some parents are made in vain while it is not known that
    // they are there.
    let most = (LANES * (CYCLES * 4 + 2) + LANES) as u64;
    assert!(asked <= most, "{asked} requests, {most} at most");
}

#[tokio::test]
async fn locks_on_new_names_are_taken_in_one_round_trip_each() {
    const LOCKS: u64 = 200;
    let (server, lab) = Lab::alone().await;
    let client = lab.client("").await;
    let before = received(&server);
    let mut held = Vec::new();
    for number in 0..LOCKS {
        held.push(client.mutex(format!("new-{number}")).unwrap().acquire().await.unwrap());
    }
    let asked = received(&server) - before;
    // The parent, the node, the list, and a read that watches the node; the first lock finds nothing there, and its session is opened. The
    // rest is renewals, more of them on a slow machine. Two round trips would be one request more for each.
    assert!(asked <= 4 * LOCKS + LOCKS / 2, "{asked} requests for {LOCKS} locks");
    drop(held);
    client.close().await.unwrap();
}
