//! Answers that are lost, and silence, while a short ttl runs.

use std::time::Duration;

use fencelock::GuardState;
use fencelock_testbed::{Way, within};

use super::lab::{acquired, acquiring, client, observed, soon, until, until_queued};
use super::link::{CUTS, Link, a_message_is_dropped};

#[tokio::test]
async fn one_answer_lost_at_renew_costs_no_lock() {
    let link = Link::new();
    let client = client(&link.url(), 4000).await;
    let mut guard = client.mutex("job").unwrap().acquire().await.unwrap();
    for bytes in CUTS {
        let before = link.proxy.cuts();
        link.proxy.cut_after(bytes, Way::Down);
        until("an answer is cut", async || link.proxy.cuts() > before).await;
        link.proxy.heal();
        until("it is held for certain", async || {
            guard.state() == GuardState::Held && guard.remaining() > Duration::from_secs(2)
        })
        .await;
    }
    // The last cut may have hit the connection of this release, too.
    while let Err(failed) = guard.release_or_keep().await {
        assert!(failed.error().is_retryable(), "{failed}");
        guard = failed.into_guard();
    }
}

#[tokio::test]
async fn a_client_that_gets_no_more_answers_loses_its_lock_before_a_rival_is_granted() {
    let link = Link::new();
    let rival = client(&link.past(), 20_000).await;
    for way in [Way::Down, Way::Up, Way::Both] {
        let (holder, seen) = observed(&link.url(), 2000).await;
        let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
        let waiting = acquiring(&rival, "job");
        until_queued(&rival, "job", 2).await;
        link.proxy.hole(way);
        soon(guard.lost()).await;
        if way != Way::Down {
            // When only replies are lost, the server still renews, and the rival keeps waiting.
            assert!(!waiting.is_finished(), "a rival was granted before the holder was notified");
        }
        link.proxy.heal();
        let granted = acquired(waiting).await;
        assert!(granted.token() > guard.token());
        granted.release().await.unwrap();
        until("the session is given up", async || !seen.lost.lock().unwrap().is_empty()).await;
    }
}

#[tokio::test]
async fn a_message_that_the_server_drops_is_repaired_by_looking_within_the_bound() {
    let (took, bound) = a_message_is_dropped(6000, 2000).await;
    within(bound + Duration::from_secs(10), took, "a message that was dropped is made up for");
}
