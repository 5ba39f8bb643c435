//! Answers that are lost, and silence, while a short ttl runs.

use std::time::Duration;

use fencelock::GuardState;
use fencelock_testbed::{Way, within};
use futures_util::future::join_all;

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

/// A connection is made in four times this, more than half of a request's deadline.
const EACH_WAY: Duration = Duration::from_millis(480);

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_takes_more_than_half_of_the_deadline_costs_none_of_hundreds_of_locks() {
    let link = Link::new();
    let client = client(&format!("{}?layout=plain&prefix=many-", link.url()), 10_000).await;
    let all = (0..300).map(|number| {
        let mutex = client.mutex(format!("job-{number}")).unwrap();
        async move { soon(mutex.acquire()).await.unwrap() }
    });
    let guards = join_all(all).await;
    link.proxy.delay(EACH_WAY);
    link.proxy.reset();
    tokio::time::sleep(Duration::from_secs(12)).await;
    let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
    assert_eq!(lost, 0);
    link.proxy.heal();
}

#[tokio::test]
async fn a_message_that_the_server_drops_is_repaired_by_looking_within_the_bound() {
    let (took, bound) = a_message_is_dropped(6000, 2000).await;
    within(bound + Duration::from_secs(10), took, "a message that was dropped is made up for");
}
