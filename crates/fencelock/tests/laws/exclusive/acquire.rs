//! The promises of an acquire: order, true refusals, and no remains after any fault of its requests.

use std::error::Error as _;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fencelock::inspect::Owner;
use fencelock::memory::Operation;
use fencelock::store::{Entry, Opening, RequestId};
use fencelock::time::{Clock, SystemClock};
use fencelock::{ErrorKind, Name};
use futures_util::FutureExt;

use super::{OTHER_KIND, whole};
use crate::support::{World, in_world, ms, on_one_thread, secs, settle};

#[test]
fn waiters_are_granted_in_arrival_order() {
    in_world(async |world, []| {
        let processes = [world.process().await, world.process().await, world.process().await];
        let first = whole(&processes[0].client, "a").unwrap().acquire().await.unwrap();
        let (order, mut served) = tokio::sync::mpsc::unbounded_channel();
        for number in 0..30 {
            let (lock, order) = (whole(&processes[number % 3].client, "a").unwrap(), order.clone());
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                order.send((number, guard.token())).unwrap();
                guard.release().await.unwrap();
            });
            settle().await;
        }
        let mut last = first.token();
        first.release().await.unwrap();
        for number in 0..30 {
            let (served, token) = served.recv().await.unwrap();
            assert_eq!(served, number);
            assert!(token > last);
            last = token;
        }
    });
}

#[test]
fn a_lost_reply_to_enter_is_resolved_with_the_same_request() {
    in_world(async |world, [process]| {
        process.store.lose_next_reply(Operation::Enter);
        let lock = whole(&process.client, "a").unwrap();
        let acquiring = tokio::spawn(async move { lock.acquire().await });
        world.advance(secs(1)).await;
        let guard = acquiring.await.unwrap().unwrap();
        assert_eq!((world.store.census().places, process.events.count("Retried")), (1, 1));
        guard.release().await.unwrap();
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_try_whose_reply_was_lost_is_not_busy_with_itself() {
    in_world(async |world, [process]| {
        process.store.lose_next_reply(Operation::Enter);
        let lock = whole(&process.client, "a").unwrap();
        let acquiring = tokio::spawn(async move { lock.try_acquire().await });
        world.advance(secs(1)).await;
        acquiring.await.unwrap().unwrap().release().await.unwrap();
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn an_acquire_dropped_at_any_await_point_leaves_nothing() {
    on_one_thread(async {
        for contended in [false, true] {
            for polls in 0..12 {
                for fault in [None, Some(Operation::Enter), Some(Operation::Leave), Some(Operation::Withdraw)] {
                    let world = World::new();
                    let (process, other) = (world.process().await, world.process().await);
                    let held = match contended {
                        true => Some(whole(&other.client, "a").unwrap().acquire().await.unwrap()),
                        false => None,
                    };
                    if let Some(fault) = fault {
                        process.store.lose_next_reply(fault);
                    }
                    let lock = whole(&process.client, "a").unwrap().max_hold(secs(3600));
                    let mut acquiring = Box::pin(lock.acquire());
                    for _ in 0..polls {
                        if let Poll::Ready(guard) = acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                            drop(guard);
                            break;
                        }
                        world.advance(ms(25)).await;
                    }
                    drop(acquiring);
                    world.advance(secs(2)).await;
                    drop(held);
                    world.assert_no_place_is_left().await;
                    assert_eq!(process.client.places(), 0);
                }
            }
        }
    });
}

#[test]
fn an_abandoned_request_that_arrives_later_takes_no_effect() {
    in_world(async |world, [process]| {
        let late = process.store.delay_next(Operation::Enter);
        let lock = whole(&process.client, "a").unwrap();
        assert!(lock.acquire().now_or_never().is_none());
        world.advance(secs(5)).await;
        assert!(!late.release(), "the withdrawn request took effect");
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_wait_that_ends_in_an_outage_is_no_contention() {
    in_world(async |world, [holder, away]| {
        let _held = whole(&holder.client, "a").unwrap().acquire().await.unwrap();
        // Cut off before the first request: for longer than a request may take, and for longer than the session lives.
        for limit in [secs(4), secs(5), secs(25)] {
            away.store.partition();
            let lock = whole(&away.client, "a").unwrap();
            let waiting = tokio::spawn(async move { lock.acquire_within(limit).await });
            world.advance(limit).await;
            let error = waiting.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unreachable, "after {limit:?}: {error:?}");
            assert!(error.contention().is_none(), "{error:?}");
            // The error names the last failed request: as its cause, or alone where the limit passed in the pause after the
            // request, whose length is random.
            let tells = error.source().is_some() || error.to_string().contains("within the request deadline");
            assert!(tells, "{error:?}");
            away.store.heal();
            world.advance(secs(3)).await;
        }
        world.advance(secs(1)).await;
        assert_eq!(world.store.census().places, 1);
    });
}

#[test]
fn a_waiter_whose_store_went_silent_reports_an_outage_and_one_whose_store_answers_a_contention() {
    in_world(async |world, [holder, near, away]| {
        let _held = whole(&holder.client, "a").unwrap().acquire().await.unwrap();
        let waiting = [&near, &away].map(|process| {
            let lock = whole(&process.client, "a").unwrap();
            tokio::spawn(async move { lock.acquire_within(secs(20)).await })
        });
        world.advance(secs(12)).await;
        away.store.partition();
        world.advance(secs(8)).await;
        let [near, away] = waiting;
        assert_eq!(near.await.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
        let error = away.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
        assert!(error.is_retryable() && error.contention().is_none(), "{error:?}");
    });
}

#[test]
fn no_caller_waits_longer_for_want_of_a_name() {
    in_world(async |world, [holder, other]| {
        let _held = whole(&holder.client, "a").unwrap().acquire().await.unwrap();
        for limit in [ms(200), secs(3)] {
            let _slow = other.store.delay_next(Operation::Contention);
            let lock = whole(&other.client, "a").unwrap();
            let waiting = tokio::spawn(async move { lock.acquire_within(limit).await });
            world.advance(limit + ms(100)).await;
            assert!(waiting.is_finished(), "{limit:?}");
            let late = waiting.await.unwrap().unwrap_err();
            assert_eq!(late.kind(), ErrorKind::TimedOut, "{late}");
            assert!(late.contention().is_none_or(|told| told.holder.is_none()), "{late}");
        }
    });
}

#[test]
fn busy_and_timed_out_acquires_name_the_holder_and_our_position() {
    in_world(async |world, [holder, other]| {
        let guard = whole(&holder.client, "a").unwrap().purpose("nightly report").acquire().await.unwrap();
        let lock = whole(&other.client, "a").unwrap();
        let busy = lock.try_acquire().await.unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::Busy);
        let queued = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await }
        });
        settle().await;
        let timing_out = tokio::spawn(async move { lock.acquire_within(secs(3)).await });
        world.advance(secs(3)).await;
        let late = timing_out.await.unwrap().unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        assert_eq!(late.contention().unwrap().position, Some(3));
        for error in [busy, late] {
            let contention = error.contention().unwrap();
            let front = contention.holder.as_ref().unwrap();
            assert_eq!(front.owner.as_ref(), Some(holder.client.owner()));
            assert_eq!(front.purpose.as_deref(), Some("nightly report"));
            assert_eq!(front.grant.unwrap().token, guard.token());
            let text = error.to_string();
            for part in [&format!("pid {}", std::process::id()), "nightly report", &guard.token().unwrap().to_string()]
            {
                assert!(text.contains(part), "{text}");
            }
        }
        assert_eq!(world.store.census().places, 2, "only the holder and the one that still waits");
        queued.abort();
    });
}

#[test]
fn more_waiters_than_allowed_are_refused_and_leave_nothing() {
    in_world(async |world, [process]| {
        let lock = whole(&process.client, "a").unwrap().max_waiters(1);
        let _guard = lock.acquire().await.unwrap();
        let first = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await }
        });
        settle().await;
        let error = lock.acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QueueFull);
        settle().await;
        assert_eq!(world.store.census().places, 2);
        first.abort();
    });
}

#[test]
fn a_try_on_an_unreachable_store_ends_within_the_request_deadline() {
    in_world(async |world, [process]| {
        process.store.partition();
        let lock = whole(&process.client, "a").unwrap();
        let trying = tokio::spawn(async move { lock.try_acquire().await });
        world.advance(process.client.timing().request_deadline + ms(1)).await;
        assert_eq!(trying.await.unwrap().unwrap_err().kind(), ErrorKind::Unreachable);
        process.store.heal();
        world.advance(secs(1)).await;
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_wait_limit_holds_although_the_store_is_unreachable() {
    in_world(async |world, [process, other]| {
        let _held = whole(&other.client, "a").unwrap().acquire().await.unwrap();
        let lock = whole(&process.client, "a").unwrap();
        let waiting = tokio::spawn(async move { lock.acquire_within(secs(20)).await });
        world.advance(secs(1)).await;
        process.store.partition();
        // The limit, and the second that asking for the holder may take.
        world.advance(secs(21) + ms(1)).await;
        let error = waiting.await.unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::TimedOut), "{error}");
    });
}

#[test]
fn a_waiter_whose_session_expires_enters_again_at_the_tail_and_is_served() {
    in_world(async |world, [holder, unlucky, third]| {
        let guard = whole(&holder.client, "a").unwrap().acquire().await.unwrap();
        let lock = whole(&unlucky.client, "a").unwrap();
        let waiting = tokio::spawn(async move { lock.acquire().await });
        settle().await;
        let lock = whole(&third.client, "a").unwrap();
        let behind = tokio::spawn(async move { lock.acquire().await });
        settle().await;
        unlucky.store.expire_sessions();
        world.advance(ms(1)).await;
        assert_eq!(unlucky.events.count("Requeued"), 1);
        guard.release().await.unwrap();
        settle().await;
        assert!(behind.is_finished() && !waiting.is_finished());
        behind.await.unwrap().unwrap().release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn a_waiter_survives_a_short_partition_and_keeps_its_place() {
    in_world(async |world, [holder, waiter, third]| {
        let guard = whole(&holder.client, "a").unwrap().acquire().await.unwrap();
        let lock = whole(&waiter.client, "a").unwrap();
        let waiting = tokio::spawn(async move { lock.acquire().await });
        world.advance(secs(1)).await;
        waiter.store.partition();
        let lock = whole(&third.client, "a").unwrap();
        let behind = tokio::spawn(async move { lock.acquire().await });
        world.advance(secs(5)).await;
        waiter.store.heal();
        guard.release().await.unwrap();
        world.advance(secs(1)).await;
        assert!(waiting.is_finished() && !behind.is_finished());
        drop(waiting.await);
        settle().await;
        behind.await.unwrap().unwrap().check().unwrap();
    });
}

#[test]
fn another_kind_of_lock_under_the_same_name_is_a_conflict_not_a_grant() {
    in_world(async |world, [process]| {
        let name = Name::new("a").unwrap();
        let stranger = Owner::new(7, "elsewhere", 1);
        let opened =
            world.store.open(Opening::here(stranger, secs(10), Arc::new(world.clock.clone())).unwrap()).await.unwrap();
        let entry =
            Entry { name, claim: OTHER_KIND, id: RequestId { client: 7, number: 1 }, wait: true, purpose: None };
        let _place = opened.session.enter(Arc::new(entry)).await.unwrap();
        let error = whole(&process.client, "a").unwrap().acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains(&OTHER_KIND.to_string()), "{error}");
        assert_eq!(world.store.census().places, 1);
    });
}

#[test]
fn options_out_of_range_are_refused_before_anything_is_sent() {
    in_world(async |_, [process]| {
        let lock = whole(&process.client, "a").unwrap();
        for bad in
            [lock.clone().max_hold(secs(0)), lock.clone().purpose("line\nbreak"), lock.clone().purpose("p".repeat(513))]
        {
            assert_eq!(bad.acquire().await.unwrap_err().kind(), ErrorKind::Config);
        }
        let huge = lock.max_hold(std::time::Duration::MAX).timeout(std::time::Duration::MAX);
        huge.acquire().await.unwrap().check().unwrap();
        assert_eq!(whole(&process.client, "a//b").unwrap_err().kind(), ErrorKind::InvalidName);
    });
}

#[test]
fn the_system_clock_moves() {
    let (first, second) = (SystemClock.now(), SystemClock.now());
    assert!(second >= first && first > fencelock::time::Moment::ORIGIN);
}
