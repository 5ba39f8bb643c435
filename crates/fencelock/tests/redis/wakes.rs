//! The messages of departures, by the server's own count.

use fencelock_testbed::redis::{Server, Settings};

use crate::lab::{client, server};
use crate::line::{Besides, departures_tell_whom_they_let_in_and_one_more};

const NOTHING: Besides = Besides { departing: 0, watched_before: false };

/// How many messages were published.
fn published(server: &Server) -> u64 {
    let stats = server.ask(&["INFO", "commandstats"]).unwrap().to_string();
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_publish:calls="));
    calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn a_departure_publishes_to_the_waiters_that_it_lets_in_and_to_no_other() {
    let server = server(Settings::default());
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(client(&server.url(), 60_000).await);
    }
    departures_tell_whom_they_let_in_and_one_more(&clients, || published(&server), NOTHING).await;
    assert!(published(&server) > 0);
}
