//! Answers that are lost, and silence, while a short ttl runs.

use std::time::Duration;

use fencelock::GuardState;
use fencelock_testbed::redis::shared;
use fencelock_testbed::{Way, within};

use super::lab::{acquired, acquiring, client, observed, soon, until, until_queued};
use super::link::{CUTS, Link};

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
            guard.state() == GuardState::Held && guard.remaining() > Some(Duration::from_secs(2))
        })
        .await;
    }
    // The last cut may have met the connection that this one is made on, too.
    while let Err(failed) = guard.release().await {
        assert!(failed.error().is_retryable(), "{failed}");
        guard = failed.into_guard();
    }
}

#[tokio::test]
async fn a_client_that_hears_nothing_any_more_is_told_before_a_rival_is_granted() {
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
            // With answers alone lost, the server goes on renewing, and the rival waits on.
            assert!(!waiting.is_finished(), "a rival was granted before the holder was told");
        }
        link.proxy.heal();
        let granted = acquired(waiting).await;
        assert!(granted.token() > guard.token());
        granted.release().await.unwrap();
        until("the session is given up", async || !seen.lost.lock().unwrap().is_empty()).await;
    }
}

/// The server drops the message and nothing else: the connection stays, and answers what it is asked.
#[tokio::test]
async fn a_message_that_the_server_drops_is_repaired_by_looking_within_the_bound() {
    let link = Link::new();
    let (waiter, holder) = (client(&link.past(), 6000).await, client(&link.past(), 2000).await);
    let bound = waiter.capability().wake_bound + waiter.capability().detection_slack;
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let waiting = acquiring(&waiter, "job");
    until_queued(&waiter, "job", 2).await;
    // The holder's session goes without a word, as by its end: nobody is told.
    let mut hands = fencelock_testbed::redis::Hands::connect(shared().address()).unwrap();
    hands.ask(&["SELECT", &link.database[1..]]).unwrap();
    let sessions = hands.ask(&["KEYS", "fencelock:2:session:*"]).unwrap();
    let oldest =
        sessions.items().iter().map(ToString::to_string).min_by_key(|key| hands.ask(&["PTTL", key]).unwrap().number());
    hands.ask(&["DEL", &oldest.unwrap()]).unwrap();
    let start = std::time::Instant::now();
    let granted = acquired(waiting).await;
    within(bound + Duration::from_secs(10), start.elapsed(), "a message that was dropped is made up for");
    soon(guard.lost()).await;
    granted.release().await.unwrap();
}
