//! The promises of a guard, on a clock that the test owns.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use fencelock::memory::Operation;
use fencelock::time::Clock;
use fencelock::{AnyGuard, ErrorKind, Guard, GuardError, GuardState, Loss, Outcome};
use futures_util::FutureExt;
use tokio::sync::Notify;

use super::whole;
use crate::support::{Process, World, in_world, ms, secs, settle};

#[test]
fn a_guard_stays_held_as_long_as_renewals_are_confirmed() {
    in_world(async |world, [process]| {
        let guard = whole(&process.client, "a").unwrap().acquire().await.unwrap();
        for _ in 0..20 {
            world.advance(ms(1700)).await;
            assert_eq!(guard.state(), GuardState::Held);
            assert!(guard.remaining() >= secs(6), "{:?}", guard.remaining());
        }
        guard.release().await.unwrap();
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn certainty_counts_from_before_the_confirmed_request_and_ends_a_margin_early() {
    in_world(async |world, [process]| {
        let opened = world.clock.now();
        let guard = whole(&process.client, "a").unwrap().acquire().await.unwrap();
        assert_eq!(guard.remaining(), secs(9));
        process.store.slow_renewals(secs(1));
        world.advance(ms(3500)).await;
        let certain_until = world.clock.now().after(guard.remaining());
        assert_eq!(certain_until, opened.after(ms(2500)).after(secs(9)), "from the sending of the first renewal");
    });
}

#[test]
fn a_late_renewal_makes_a_guard_suspect_and_its_answer_makes_it_held_again() {
    in_world(async |world, [process]| {
        let guard = whole(&process.client, "a").unwrap().acquire().await.unwrap();
        process.store.slow_renewals(secs(3));
        world.advance(ms(4900)).await;
        assert_eq!(guard.state(), GuardState::Held);
        world.advance(ms(200)).await;
        assert_eq!(guard.state(), GuardState::Suspect, "{:?}", process.events.all());
        guard.check().unwrap();
        world.advance(ms(600)).await;
        assert_eq!(guard.state(), GuardState::Held, "{:?}", process.events.all());
        assert_eq!((process.events.count("Suspect"), process.events.count("Confirmed")), (1, 1));
    });
}

#[test]
fn a_holder_is_notified_of_its_loss_before_a_rival_is_granted() {
    in_world(async |world, [holder, rival]| {
        let guard = whole(&holder.client, "a").unwrap().acquire().await.unwrap();
        let lock = whole(&rival.client, "a").unwrap();
        let waiting = tokio::spawn(async move { lock.acquire().await });
        world.advance(secs(1)).await;
        holder.store.partition();
        let told = loop {
            world.advance(ms(100)).await;
            assert!(!waiting.is_finished(), "a rival holds the lock before the holder is notified");
            if let Some(loss) = guard.lost().now_or_never() {
                break loss;
            }
        };
        assert_eq!(told, Loss::Unconfirmed);
        assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
        world.advance(secs(2)).await;
        let token = waiting.await.unwrap().unwrap().token();
        assert!(token > guard.token());
    });
}

#[test]
fn after_a_pause_the_first_look_at_a_guard_tells_the_loss_although_nothing_ran_meanwhile() {
    in_world(async |world, [process]| {
        let guard = whole(&process.client, "a").unwrap().acquire().await.unwrap();
        world.clock.advance(secs(9));
        assert_eq!(guard.remaining(), secs(0));
        assert_eq!(guard.state(), GuardState::Lost(Loss::Unconfirmed));
        assert_eq!(guard.lost().now_or_never(), Some(Loss::Unconfirmed));
    });
}

#[test]
fn a_loss_is_final_although_the_store_comes_back() {
    in_world(async |world, [process]| {
        let guard = whole(&process.client, "a").unwrap().acquire().await.unwrap();
        process.store.partition();
        world.advance(ms(9500)).await;
        process.store.heal();
        world.advance(secs(5)).await;
        assert_eq!(guard.state(), GuardState::Lost(Loss::Unconfirmed));
        let failed = guard.release_or_keep().await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Lost);
        world.assert_no_place_is_left().await;
        let again = whole(&process.client, "a").unwrap().acquire().await.unwrap();
        assert!(again.token() > failed.into_guard().token());
    });
}

#[test]
fn an_expired_session_and_a_removed_place_are_losses_with_their_cause() {
    in_world(async |_, [process]| {
        let lock = whole(&process.client, "a").unwrap();
        let guard = lock.acquire().await.unwrap();
        process.store.expire_sessions();
        assert_eq!(guard.lost().await, Loss::Expired);
        let guard = lock.acquire().await.unwrap();
        let queue = process.client.queue(guard.name()).await.unwrap();
        let place =
            fencelock::store::PlaceId { name: guard.name().clone(), request: queue.contenders.first().unwrap().id };
        assert!(process.store.remove(&place));
        assert_eq!(guard.lost().await, Loss::Removed);
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    });
}

#[test]
fn the_end_of_a_session_notifies_each_holder_that_looks_at_no_guard() {
    in_world(async |_, [process]| {
        let acquire = async |name| whole(&process.client, name).unwrap().acquire().await.unwrap();
        let (one, other) = (acquire("a").await, acquire("b").await);
        let notices = [one.lost_token(), other.lost_token()];
        process.store.expire_sessions();
        settle().await;
        assert_eq!(process.events.count("Lost"), 2);
        assert!(notices.iter().all(|notice| notice.is_cancelled()));
    });
}

#[test]
fn a_jump_of_the_wall_clock_makes_guards_suspect_until_the_session_is_confirmed_anew() {
    in_world(async |world, [process]| {
        let _guard = whole(&process.client, "a").unwrap().acquire().await.unwrap();
        world.clock.jump_wall(secs(30));
        world.advance(ms(2600)).await;
        assert_eq!((process.events.count("Suspect"), process.events.count("Confirmed")), (1, 1));
    });
}

#[test]
fn a_dropped_guard_releases_in_the_background() {
    in_world(async |world, [process]| {
        drop(whole(&process.client, "a").unwrap().acquire().await.unwrap());
        world.assert_no_place_is_left().await;
        assert_eq!(process.events.count("Released"), 1);
        assert_eq!(process.client.places(), 0);
    });
}

/// A release that took effect although no answer came until its limit was over.
async fn release_unanswered<K: Send + Sync + 'static>(
    world: &World,
    process: &Process,
    guard: Guard<K>,
) -> GuardError<Guard<K>> {
    process.store.lose_next_reply(Operation::Leave);
    let releasing = tokio::spawn(guard.release_or_keep());
    settle().await;
    process.store.partition();
    world.advance(ms(3400)).await;
    process.store.heal();
    releasing.await.unwrap().unwrap_err()
}

#[test]
fn a_release_whose_answers_are_lost_is_asked_for_again() {
    in_world(async |world, [process]| {
        let guard = whole(&process.client, "a").unwrap().acquire().await.unwrap();
        for _ in 0..5 {
            process.store.lose_next_reply(Operation::Leave);
        }
        let releasing = tokio::spawn(guard.release());
        world.advance(secs(2)).await;
        releasing.await.unwrap().unwrap();
        assert_eq!((process.events.count("Released"), process.events.count("Retried")), (1, 5));
        assert_eq!(process.events.count("ReleaseFailed"), 0);
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_release_that_failed_can_be_tried_again_and_is_no_loss() {
    in_world(async |world, [process]| {
        let guard = whole(&process.client, "a").unwrap().acquire().await.unwrap();
        let failed = release_unanswered(&world, &process, guard).await;
        assert_eq!((failed.kind(), failed.error().outcome()), (ErrorKind::Unreachable, Outcome::Unknown));
        assert!(failed.error().context().any(|fact| fact == ("name", "a")), "{failed}");
        let guard = failed.into_guard();
        assert_eq!(guard.state(), GuardState::Released);
        assert_eq!(process.client.places(), 0, "nothing renews it meanwhile");
        guard.release().await.unwrap();
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_release_that_the_session_does_not_outlive_says_that_the_lock_was_lost() {
    in_world(async |world, [process]| {
        let guard = whole(&process.client, "a").unwrap().acquire().await.unwrap().into_any();
        process.store.partition();
        let release = async |guard: AnyGuard| {
            let releasing = tokio::spawn(guard.release_or_keep());
            world.advance(ms(3400)).await;
            let failed = releasing.await.unwrap().unwrap_err();
            (failed.kind(), failed.into_guard())
        };
        let (kind, guard) = release(guard).await;
        assert_eq!(kind, ErrorKind::Unreachable);
        world.advance(secs(9)).await;
        let (kind, guard) = release(guard).await;
        assert_eq!(kind, ErrorKind::Lost);
        assert_eq!(guard.state(), GuardState::Lost(Loss::Unconfirmed));
    });
}

#[test]
fn a_release_retried_after_a_lost_reply_never_ends_a_newer_grant() {
    in_world(async |world, [first, second]| {
        let guard = whole(&first.client, "a").unwrap().acquire().await.unwrap();
        let guard = release_unanswered(&world, &first, guard).await.into_guard();
        let newer = whole(&second.client, "a").unwrap().try_acquire().await.unwrap();
        guard.release().await.unwrap();
        settle().await;
        newer.check().unwrap();
        assert_eq!(world.store.census().places, 1);
    });
}

#[test]
fn a_release_dropped_half_way_continues() {
    in_world(async |world, [process]| {
        let guard = whole(&process.client, "a").unwrap().acquire().await.unwrap();
        let late = process.store.delay_next(Operation::Leave);
        assert!(guard.release().now_or_never().is_none());
        world.assert_no_place_is_left().await;
        drop(late);
    });
}

#[test]
fn a_body_that_fails_gives_the_lock_back_and_its_error_is_apart_from_the_locks() {
    in_world(async |world, [process]| {
        let lock = whole(&process.client, "a").unwrap();
        let failed = lock.run(async |_| Err::<(), _>("no stock")).await.unwrap();
        assert_eq!(failed, Err("no stock"));
        world.assert_no_place_is_left().await;
        let store = process.store.clone();
        let body = async |guard: Guard<_>| -> Result<(), &str> {
            store.expire_sessions();
            guard.lost().await;
            std::future::pending().await
        };
        let lost = lock.run(body).await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::Lost);
    });
}

#[test]
fn a_body_is_dropped_at_its_next_await_when_the_lock_is_lost() {
    in_world(async |world, [process]| {
        let lock = whole(&process.client, "a").unwrap();
        let (late, store) = (Rc::new(Cell::new(false)), process.store.clone());
        let is_late = Rc::clone(&late);
        let result = lock
            .run(|_guard| async move {
                store.expire_sessions();
                std::future::pending::<()>().await;
                is_late.set(true);
            })
            .await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Lost);
        assert!(!late.get());
        assert_eq!(Rc::strong_count(&late), 1, "the body is gone");
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_body_that_ends_or_panics_or_is_dropped_releases_the_lock() {
    in_world(async |world, [process]| {
        let lock = whole(&process.client, "a").unwrap();
        assert_eq!(lock.run(|guard| async move { guard.check().map(|()| 7) }).await.unwrap().unwrap(), 7);
        world.assert_no_place_is_left().await;
        let panicking = lock.clone();
        let body = |_| async {
            if true {
                panic!("in the body")
            }
        };
        let panicked = tokio::spawn(async move { panicking.run(body).await });
        assert!(panicked.await.unwrap_err().is_panic());
        world.assert_no_place_is_left().await;
        assert!(lock.run(|_| std::future::pending::<()>()).now_or_never().is_none());
        world.assert_no_place_is_left().await;
        let stashed = lock.run(|guard| async move { guard }).await.unwrap();
        world.assert_no_place_is_left().await;
        assert_eq!(stashed.state(), GuardState::Released);
    });
}

#[test]
fn a_body_that_blocks_past_the_margin_ends_in_an_error() {
    in_world(async |world, [process]| {
        let clock = world.clock.clone();
        let result = whole(&process.client, "a").unwrap().run(|_| async move { clock.advance(secs(9)) }).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Lost);
    });
}

#[test]
fn max_hold_ends_the_grant_although_the_session_is_renewed() {
    in_world(async |world, [process, rival]| {
        let guard = whole(&process.client, "a").unwrap().max_hold(secs(30)).acquire().await.unwrap();
        world.advance(ms(29_900)).await;
        guard.check().unwrap();
        assert!(guard.remaining() <= ms(100));
        world.advance(ms(200)).await;
        assert_eq!(guard.lost().await, Loss::HeldTooLong);
        // The guard still exists, and code may still run under it: its place is kept, but for no longer than the
        // margin.
        let rivals = whole(&rival.client, "a").unwrap();
        assert_eq!(rivals.try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
        world.advance(ms(800)).await;
        assert_eq!(rivals.try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
        world.advance(ms(200)).await;
        rivals.try_acquire().await.unwrap().release().await.unwrap();
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    });
}

#[test]
fn a_lock_whose_time_is_up_is_handed_on_as_soon_as_the_last_guard_is_gone() {
    in_world(async |world, [process, rival]| {
        let guard = whole(&process.client, "a").unwrap().max_hold(secs(30)).acquire().await.unwrap();
        let again = guard.reenter().unwrap();
        let rivals = whole(&rival.client, "a").unwrap();
        let waiting = tokio::spawn(async move { rivals.acquire().await });
        world.advance(ms(30_100)).await;
        assert_eq!((guard.lost().await, again.lost().await), (Loss::HeldTooLong, Loss::HeldTooLong));
        drop(guard);
        settle().await;
        assert!(!waiting.is_finished(), "a rival was granted together with a guard whose time was just up");
        drop(again);
        settle().await;
        waiting.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(process.events.count("Lost"), 1, "{:?}", process.events.all());
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn run_returns_once_the_lock_is_given_back() {
    in_world(async |_, [process, other]| {
        let (lock, others) = (whole(&process.client, "a").unwrap(), whole(&other.client, "a").unwrap());
        for _ in 0..10 {
            assert_eq!(lock.run(async |_| 7).await.unwrap(), 7);
            others.try_acquire().await.unwrap().release().await.unwrap();
        }
    });
}

#[test]
fn run_waits_for_the_release_for_as_long_as_a_request_may_take_and_no_longer() {
    in_world(async |world, [process]| {
        let lock = whole(&process.client, "a").unwrap();
        let (store, started) = (process.store.clone(), world.clock.now());
        let body = async move |_| store.partition();
        let running = tokio::spawn(async move { lock.run(body).await });
        world.advance(secs(3)).await;
        assert!(!running.is_finished());
        world.advance(ms(400)).await;
        running.await.unwrap().unwrap();
        assert!(world.clock.now().since(started) < secs(4));
        process.store.heal();
        world.advance(secs(2)).await;
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn run_says_so_when_the_lock_turns_out_to_be_gone() {
    in_world(async |world, [process]| {
        let lock = whole(&process.client, "a").unwrap();
        let looks = world.store.another_process();
        let body = async |guard: fencelock::Guard<_>| {
            // The holder is not yet notified when the body ends.
            let queue = looks.queue(guard.name(), fencelock::inspect::Page::ALL).await.unwrap();
            let request = queue.contenders[0].id;
            looks.remove(&fencelock::store::PlaceId { name: guard.name().clone(), request });
        };
        assert_eq!(lock.run(body).await.unwrap_err().kind(), ErrorKind::Lost);
    });
}

#[test]
fn reentered_guards_share_one_hold_and_the_last_one_releases() {
    in_world(async |world, [process]| {
        let outer = whole(&process.client, "a").unwrap().acquire().await.unwrap();
        let inner = outer.reenter().unwrap();
        assert_eq!(inner.token(), outer.token());
        outer.release().await.unwrap();
        inner.check().unwrap();
        drop(inner.reenter().unwrap());
        settle().await;
        assert_eq!(world.store.census().places, 1);
        drop(inner);
        world.assert_no_place_is_left().await;
        assert_eq!(process.events.count("Released"), 1);
    });
}

#[test]
fn lost_never_completes_for_a_lock_that_was_released() {
    in_world(async |_, [process]| {
        let guard = whole(&process.client, "a").unwrap().acquire().await.unwrap();
        let told = guard.lost_token();
        guard.release().await.unwrap();
        assert!(told.is_cancelled());
        process.store.expire_sessions();
        settle().await;
        assert_eq!(process.events.count("Lost"), 0);
    });
}

#[test]
fn closing_a_client_tells_its_guards_and_leaves_nothing() {
    in_world(async |world, [process]| {
        let lock = whole(&process.client, "a").unwrap();
        let guard = Arc::new(lock.acquire().await.unwrap());
        let (told, watched) = (Arc::new(Notify::new()), Arc::clone(&guard));
        let tell = Arc::clone(&told);
        tokio::spawn(async move {
            assert_eq!(watched.lost().await, Loss::Closed);
            tell.notify_one();
        });
        process.client.close().await.unwrap();
        told.notified().await;
        assert_eq!(world.store.census(), Default::default());
        assert_eq!(lock.acquire().await.unwrap_err().kind(), ErrorKind::Closed);
        process.client.close().await.unwrap();
    });
}

#[test]
fn a_broken_guard_gets_the_reason_and_the_next_token_is_higher() {
    in_world(async |world, [holder, rival, other]| {
        let guard = whole(&holder.client, "a").unwrap().acquire().await.unwrap();
        let lock = whole(&rival.client, "a").unwrap();
        let waiting = tokio::spawn(async move { lock.acquire().await });
        settle().await;
        let queue = other.client.queue(guard.name()).await.unwrap();
        let [front, behind] = [0, 1].map(|position| queue.contenders[position].clone());
        for (contender, reason) in [(&behind, "waits"), (&front, ""), (&front, "a\nb"), (&front, &"x".repeat(513))] {
            let refused = other.client.break_grant(guard.name(), contender, reason).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Config, "{reason}");
        }
        assert!(other.client.break_grant(guard.name(), &front, "stuck").await.unwrap());
        assert_eq!((guard.lost().await, guard.break_reason()), (Loss::Broken, Some("stuck")));
        assert!(guard.check().unwrap_err().to_string().contains("stuck"));
        let next = waiting.await.unwrap().unwrap();
        assert!(next.token() > guard.token());
        world.advance(ms(1)).await;
        assert!(!other.client.break_grant(guard.name(), &front, "stuck").await.unwrap(), "it is gone");
        next.check().unwrap();
        assert_eq!(&*other.client.breaks(guard.name()).await.unwrap()[0].reason, "stuck");
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    });
}

#[test]
fn a_release_that_finds_its_grant_broken_says_why() {
    in_world(async |_, [holder, other]| {
        let guard = whole(&holder.client, "a").unwrap().acquire().await.unwrap();
        let front = other.client.queue(guard.name()).await.unwrap().contenders[0].clone();
        // The holder is not yet notified: no other task has run.
        assert!(other.client.break_grant(guard.name(), &front, "stuck").now_or_never().unwrap().unwrap());
        let error = guard.release_or_keep().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost);
        assert!(error.to_string().contains("stuck"), "{error}");
        assert_eq!(error.into_guard().lost().await, Loss::Broken);
    });
}
