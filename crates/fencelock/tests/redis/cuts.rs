//! Answers that are lost at every step, and messages that never come.

use std::sync::Arc;

use fencelock::Loss;
use fencelock_testbed::{Proxy, Way};

use crate::lab::{acquired, acquiring, client, queued, soon, until, until_queued};
use crate::link::{CUTS, Link, a_message_is_dropped};

#[tokio::test]
async fn one_answer_lost_at_enter_leaves_one_place() {
    let link = Link::new();
    let (client, other) = (client(&link.url(), 60_000).await, client(&link.past(), 60_000).await);
    for bytes in CUTS {
        for ahead in [false, true] {
            let holder = if ahead { Some(other.mutex("job").unwrap().acquire().await.unwrap()) } else { None };
            link.proxy.cut_after(bytes, Way::Down);
            let waiting = acquiring(&client, "job");
            let there = 1 + usize::from(ahead);
            until_queued(&other, "job", there).await;
            if let Some(holder) = holder {
                holder.release().await.unwrap();
            }
            let guard = acquired(waiting).await;
            assert_eq!(queued(&other, "job").await, 1, "after {bytes} bytes, a contender ahead: {ahead}");
            guard.check().unwrap();
            guard.release().await.unwrap();
            until_queued(&other, "job", 0).await;
            link.proxy.heal();
        }
    }
}

#[tokio::test]
async fn one_answer_lost_at_leave_gives_up_this_grant_and_no_later_one() {
    let link = Link::new();
    let (client, other) = (client(&link.url(), 60_000).await, client(&link.past(), 60_000).await);
    for bytes in CUTS {
        let mut guard = client.mutex("job").unwrap().acquire().await.unwrap();
        let waiting = acquiring(&other, "job");
        until_queued(&other, "job", 2).await;
        link.proxy.cut_after(bytes, Way::Down);
        while let Err(failed) = guard.release_or_keep().await {
            assert!(failed.error().is_retryable(), "after {bytes} bytes: {failed}");
            guard = failed.into_guard();
        }
        let next = acquired(waiting).await;
        let waiting = acquiring(&client, "job");
        until_queued(&other, "job", 2).await;
        next.check().unwrap();
        assert!(!waiting.is_finished(), "a release repeated ended a newer grant");
        next.release().await.unwrap();
        acquired(waiting).await.release().await.unwrap();
        until_queued(&other, "job", 0).await;
        link.proxy.heal();
    }
}

#[tokio::test]
async fn one_answer_lost_at_withdraw_strands_nothing() {
    let link = Link::new();
    let (client, other) = (client(&link.url(), 60_000).await, client(&link.past(), 60_000).await);
    for bytes in CUTS {
        let holder = other.mutex("job").unwrap().acquire().await.unwrap();
        let waiting = acquiring(&client, "job");
        until_queued(&other, "job", 2).await;
        link.proxy.cut_after(bytes, Way::Down);
        waiting.abort();
        until_queued(&other, "job", 1).await;
        holder.release().await.unwrap();
        until_queued(&other, "job", 0).await;
        link.proxy.heal();
        client.mutex("job").unwrap().acquire().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn one_answer_lost_at_lighten_leaves_a_reader_or_a_writer_and_no_gap() {
    let link = Link::new();
    let (client, other) = (client(&link.url(), 60_000).await, client(&link.past(), 60_000).await);
    for bytes in CUTS {
        let writer = client.rwlock("page").unwrap().write().await.unwrap();
        let (readers, writers) = (other.rwlock("page").unwrap(), other.rwlock("page").unwrap());
        let reading = tokio::spawn(async move { readers.read().await });
        until_queued(&other, "page", 2).await;
        let writing = tokio::spawn(async move { writers.write().await });
        until_queued(&other, "page", 3).await;
        link.proxy.cut_after(bytes, Way::Down);
        let mut reader = match writer.downgrade_or_keep().await {
            Ok(reader) => reader,
            Err(failed) => {
                assert!(failed.error().is_retryable(), "after {bytes} bytes: {}", failed.error());
                failed.into_guard()
            }
        };
        assert!(!writing.is_finished(), "a writer was let in together with a reader");
        while let Err(failed) = reader.release_or_keep().await {
            assert!(failed.error().is_retryable(), "{failed}");
            reader = failed.into_guard();
        }
        let beside = soon(reading).await.unwrap().unwrap();
        assert!(!writing.is_finished(), "a writer was let in together with a reader");
        beside.release().await.unwrap();
        soon(writing).await.unwrap().unwrap().release().await.unwrap();
        until_queued(&other, "page", 0).await;
        link.proxy.heal();
    }
}

/// The message is on its way when the waiter's connection ends, so that no message follows.
#[tokio::test]
async fn a_message_that_dies_with_its_connection_is_repaired() {
    let link = Link::new();
    let (waiter, holder) = (client(&link.url(), 60_000).await, client(&link.past(), 60_000).await);
    for cut in [Proxy::reset, Proxy::heal] {
        let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
        let waiting = acquiring(&waiter, "job");
        // The waiter asks: earlier replies have reached it then, and only the message can be lost.
        until_queued(&waiter, "job", 2).await;
        link.proxy.hole(Way::Down);
        guard.release().await.unwrap();
        until("the message is lost", async || link.proxy.lost_bytes()).await;
        assert!(!waiting.is_finished(), "granted by a message that was lost");
        cut(&link.proxy);
        link.proxy.heal();
        acquired(waiting).await.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_message_that_the_server_drops_is_repaired_by_looking() {
    a_message_is_dropped(60_000, 30_000).await;
}

#[tokio::test]
async fn a_release_while_the_way_is_cut_is_made_up_for() {
    let link = Arc::new(Link::new());
    let rival = client(&link.past(), 60_000).await;
    let holder = client(&link.url(), 60_000).await;
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    let waiting = acquiring(&rival, "job");
    until_queued(&rival, "job", 2).await;
    link.proxy.hold(Way::Both);
    drop(guard);
    link.proxy.heal();
    acquired(waiting).await.release().await.unwrap();
}

#[tokio::test]
async fn a_break_that_a_renewal_tells_of_keeps_its_reason() {
    let link = Link::new();
    let (holder, other) = (client(&link.url(), 60_000).await, client(&link.past(), 60_000).await);
    let guard = holder.mutex("job").unwrap().acquire().await.unwrap();
    link.proxy.refuse();
    link.proxy.reset();
    let queue = other.queue("job").await.unwrap();
    assert!(other.break_grant("job", &queue.contenders[0], "stuck").await.unwrap());
    link.proxy.heal();
    assert_eq!(soon(guard.lost()).await, Loss::Broken);
    assert_eq!(guard.break_reason(), Some("stuck"));
}
