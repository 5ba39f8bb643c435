//! How soon a waiter receives the message of a release.

use std::time::{Duration, Instant};

use fencelock_testbed::within;

use super::lab::{acquired, acquiring, client, until};
use super::theirs::{CHANNEL, TAKEN, THREAD, is_subscribed, locks, redisson, requests, unlocks};

#[tokio::test]
async fn a_waiter_does_not_wait_for_the_next_try_when_a_release_is_published() {
    let (server, url) = redisson();
    let client = client(&url, 60_000).await;
    let mut shortest = Duration::MAX;
    for _ in 0..20 {
        assert_eq!(locks(&server, "job", THREAD, 600_000), TAKEN);
        let waits = acquiring(&client, "job");
        let before = requests(&server);
        until("it waits", async || requests(&server) > before + 1 && is_subscribed(&server)).await;
        let start = Instant::now();
        assert_eq!(unlocks(&server, "job", THREAD, CHANNEL), 1);
        let guard = acquired(waits).await;
        shortest = shortest.min(start.elapsed());
        guard.release().await.unwrap();
    }
    // Without the message a try comes after 0.5 to 1.5 s. Once in twenty times the machine is fast enough to tell the two apart.
    within(Duration::from_millis(250), shortest, "the shortest of twenty hand-overs");
}
