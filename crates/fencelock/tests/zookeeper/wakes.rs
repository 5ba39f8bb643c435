//! The notifications of departures, by the server's own count.

use fencelock::Client;
use fencelock_testbed::zookeeper::Ensemble;
use futures_util::future::join_all;

use crate::lab::Lab;
use crate::line::{Besides, departures_tell_whom_they_let_in_and_one_more};

/// The node of every holder is watched by its own session. The first waiter for a permit watched every holder. The watches stay
/// until the holders leave, because no request removes a watch: the session is notified of each departure once more.
const OWN_AND_OLD: Besides = Besides { departing: 1, watched_before: true };

/// How many notifications of watches the server has sent.
fn notified(server: &Ensemble) -> u64 {
    let counters = ["node_deleted", "node_changed", "node_created", "node_children"];
    counters.iter().map(|name| server.server(0).monitor(&format!("zk_sum_{name}_watch_count")).unwrap()).sum()
}

async fn is_sparing(options: &str) {
    let (server, lab) = Lab::alone().await;
    let clients: Vec<Client> = join_all((0..10).map(|_| lab.client(options))).await;
    departures_tell_whom_they_let_in_and_one_more(&clients, || notified(&server), OWN_AND_OLD).await;
    assert!(notified(&server) > 0);
}

#[tokio::test]
async fn a_departure_notifies_whom_it_lets_in_and_one_more() {
    is_sparing("").await;
}

#[tokio::test]
async fn a_departure_notifies_no_more_where_names_are_kazoos() {
    is_sparing("&layout=kazoo").await;
}
