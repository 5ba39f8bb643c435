//! Grants that arrive at the end of their own validity, or shortly before: the client uses none of them, and does not hammer
//! the store.

use std::error::Error as _;
use std::time::Duration;

use fencelock::{Client, Error, ErrorKind, Guard, Io, Mutex, Result};
use tokio::task::JoinHandle;

use super::validity::{MARGIN, VALID, World, with_leases};
use crate::support::{ms, pass, secs, settle};

/// Less than the margin, so that no grant is valid when it arrives.
const TOO_SHORT: Duration = Duration::from_millis(500);

impl World {
    fn lock(&self) -> Mutex {
        self.client.mutex("job").unwrap()
    }

    fn acquire(&self) -> JoinHandle<Result<Guard>> {
        let lock = self.lock();
        tokio::spawn(async move { lock.acquire().await })
    }

    fn acquire_within(&self, limit: Duration) -> JoinHandle<Result<Guard>> {
        let lock = self.lock();
        tokio::spawn(async move { lock.acquire_within(limit).await })
    }

    async fn rival(&self) -> Client {
        let process = self.store.another_process();
        Client::builder().io(Io::CurrentRuntime).connect_store(process).await.unwrap()
    }

    /// A rival that waits behind all contenders of the queue.
    async fn queued_rival(&self) -> JoinHandle<Result<Guard>> {
        let lock = self.rival().await.mutex("job").unwrap();
        let waiting = tokio::spawn(async move { lock.acquire().await });
        settle().await;
        waiting
    }
}

/// The error says what was late, and what to set.
fn tells_of_lateness(error: &(dyn std::error::Error + 'static)) -> bool {
    let told = error.to_string();
    ["too late", "longer ttl", "margin 1s", "left 500ms"].iter().all(|fact| told.contains(fact))
}

fn tells_of_lateness_beneath(error: &Error) -> bool {
    error.source().is_some_and(tells_of_lateness)
}

#[test]
fn a_store_whose_every_grant_arrives_too_late_is_asked_with_growing_pauses_and_given_up() {
    with_leases(None, async |world| {
        world.grants_for(TOO_SHORT);
        let acquiring = world.acquire();
        settle().await;
        assert_eq!((world.entered(), world.store.census().places), (1, 0), "while time stands still");
        pass(&world.clock, secs(10)).await;
        // 20 ms, doubled up to one second, each by up to a quarter shorter.
        assert!((10..=22).contains(&world.entered()), "{} times in 10 s", world.entered());
        pass(&world.clock, secs(19)).await;
        assert!(!acquiring.is_finished(), "it tries for 30 s");
        pass(&world.clock, secs(3)).await;
        let error = acquiring.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!(error.is_retryable() && tells_of_lateness(&error), "{error}");
        assert_eq!(world.store.census().places, 0);
        world.client.close().await.unwrap();
    });
}

#[test]
fn a_wait_with_a_limit_that_was_granted_too_late_only_ends_as_an_outage_at_its_limit() {
    with_leases(None, async |world| {
        world.grants_for(TOO_SHORT);
        let acquiring = world.acquire_within(secs(3));
        pass(&world.clock, ms(2_900)).await;
        assert!(!acquiring.is_finished());
        pass(&world.clock, ms(100)).await;
        let error = acquiring.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!(tells_of_lateness(&error) || tells_of_lateness_beneath(&error), "{error:?}");
        assert_eq!(world.store.census().places, 0);
    });
}

#[test]
fn a_single_try_that_is_granted_too_late_says_so_and_leaves_nothing() {
    with_leases(None, async |world| {
        for zero in [false, true] {
            let entered = world.entered();
            world.grants_for(TOO_SHORT);
            let lock = world.lock();
            let tried = if zero { lock.acquire_within(Duration::ZERO).await } else { lock.try_acquire().await };
            let error = tried.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unreachable);
            assert!(tells_of_lateness(&error), "{error}");
            assert_eq!((world.entered() - entered, world.store.census().places), (1, 0));
            world.grants_for(VALID);
            world.lock().try_acquire().await.unwrap().release().await.unwrap();
        }
    });
}

#[test]
fn a_store_that_is_in_time_again_ends_the_pauses_with_a_lock() {
    with_leases(None, async |world| {
        world.grants_for(TOO_SHORT);
        let acquiring = world.acquire();
        pass(&world.clock, secs(20)).await;
        world.grants_for(VALID);
        pass(&world.clock, secs(1)).await;
        let held = acquiring.await.unwrap().unwrap();
        assert!(held.remaining() > VALID - MARGIN - secs(1));
        held.release().await.unwrap();
    });
}

#[test]
fn two_late_grants_with_a_long_wait_in_between_are_no_outage() {
    with_leases(None, async |world| {
        let held = world.rival().await.mutex("job").unwrap().acquire().await.unwrap();
        let acquiring = world.acquire();
        settle().await;
        let (second, third) = (world.queued_rival().await, world.queued_rival().await);
        world.grants_for(TOO_SHORT);
        held.release().await.unwrap();
        pass(&world.clock, secs(60)).await;
        let (second, fourth) = (second.await.unwrap().unwrap(), world.queued_rival().await);
        second.release().await.unwrap();
        third.await.unwrap().unwrap().release().await.unwrap();
        pass(&world.clock, secs(5)).await;
        assert_eq!(world.entered(), 3, "twice granted too late, and once more behind the rival that has it now");
        assert!(!acquiring.is_finished());
        world.grants_for(VALID);
        fourth.await.unwrap().unwrap().release().await.unwrap();
        settle().await;
        acquiring.await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn a_wait_that_ends_behind_others_after_a_late_grant_is_contention_and_names_both() {
    with_leases(None, async |world| {
        let held = world.rival().await.mutex("job").unwrap().acquire().await.unwrap();
        let acquiring = world.acquire_within(secs(5));
        settle().await;
        let rival = world.queued_rival().await;
        world.grants_for(TOO_SHORT);
        held.release().await.unwrap();
        pass(&world.clock, secs(5)).await;
        let error = acquiring.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(tells_of_lateness_beneath(&error), "{error:?}");
        rival.await.unwrap().unwrap().release().await.unwrap();
    });
}
