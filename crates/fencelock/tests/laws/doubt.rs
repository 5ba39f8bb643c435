//! States of doubt: waits of no time, sessions that cannot be opened, doubts that come too late.

use crate::support::{in_world, ms, secs, settle};
use fencelock::memory::Operation;
use fencelock::{ErrorKind, GuardState, Loss};
use futures_util::FutureExt;

#[test]
fn a_wait_of_no_time_asks_the_store_once_however_it_answers() {
    in_world(async |world, [process, other]| {
        let lock = process.client.mutex("a").unwrap();
        let late = process.store.delay_next(Operation::Enter);
        let acquiring = tokio::spawn(async move { lock.acquire_within(secs(0)).await });
        settle().await;
        assert!(late.release(), "nothing was asked");
        let guard = acquiring.await.unwrap().unwrap();
        let refused = other.client.mutex("a").unwrap().acquire_within(secs(0)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TimedOut);
        assert!(refused.to_string().contains("held by"), "{refused}");
        assert_eq!((world.store.census().places, other.events.count("Waiting")), (1, 0));
        guard.release().await.unwrap();
    });
}

#[test]
fn a_wait_of_no_time_on_a_silent_store_ends_with_the_request_deadline() {
    in_world(async |world, [process]| {
        process.store.partition();
        let lock = process.client.mutex("a").unwrap();
        let acquiring = tokio::spawn(async move { lock.acquire_within(secs(0)).await });
        world.advance(secs(5)).await;
        assert!(acquiring.is_finished());
        assert_eq!(acquiring.await.unwrap().unwrap_err().kind(), ErrorKind::Unreachable);
        process.store.heal();
        world.advance(secs(15)).await;
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn callers_that_wait_for_one_session_share_its_outcome() {
    in_world(async |world, [process]| {
        process.store.partition();
        process.store.expire_sessions();
        world.advance(secs(11)).await;
        for number in 0..5 {
            let lock = process.client.mutex(format!("lock-{number}")).unwrap();
            tokio::spawn(async move { lock.acquire().await });
        }
        // The request deadline is 3.3 s.
        world.advance(ms(3_400)).await;
        assert_eq!(process.events.count("Retried"), 5, "{:?}", process.events.all());
    });
}

#[test]
fn only_a_renewal_sent_after_a_doubt_settles_it() {
    in_world(async |world, [process]| {
        let guard = process.client.mutex("a").unwrap().acquire().await.unwrap();
        process.store.slow_renewals(secs(3));
        // A renewal is on its way from 2.5 s to 5.5 s; the keeper looks at the clock at 5 s, too.
        world.advance(secs(4)).await;
        world.clock.jump_wall(secs(60));
        world.advance(ms(1_700)).await;
        assert_eq!(process.events.count("Confirmed"), 0, "{:?}", process.events.all());
        assert_eq!(guard.state(), GuardState::Suspect);
        world.advance(secs(3)).await;
        assert_eq!(process.events.count("Confirmed"), 1, "{:?}", process.events.all());
        assert_eq!(guard.state(), GuardState::Held);
    });
}

#[test]
fn an_ended_session_is_closed_and_its_places_are_not_left_one_by_one() {
    in_world(async |world, [process]| {
        let guard = process.client.mutex("a").unwrap().acquire().await.unwrap();
        let leave = process.store.delay_next(Operation::Leave);
        process.store.expire_sessions();
        settle().await;
        assert_eq!(guard.state(), GuardState::Lost(Loss::Expired));
        drop(guard);
        settle().await;
        assert!(leave.caught().now_or_never().is_none(), "a place was left");
        drop(leave);
        world.assert_no_place_is_left().await;
    });
}
