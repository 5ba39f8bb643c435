//! The laws of the semaphore: its own laws, and the laws of every exclusive claim, kept by a taker of all permits.

#[path = "exclusive/acquire.rs"]
mod acquire;
#[path = "exclusive/edge.rs"]
mod edge;
#[path = "exclusive/guard.rs"]
mod guard;

use crate::support::{in_world, ms, secs, settle};
use fencelock::inspect::Claim;
use fencelock::{Client, ErrorKind, Loss, Result, Semaphore};

/// The exclusive form of this primitive, for the laws.
fn whole(client: &Client, name: &str) -> Result<Semaphore> {
    Ok(client.semaphore(name, 3)?.permits(3))
}

/// A claim that cannot share a queue with it.
const OTHER_KIND: Claim = Claim::READER;

#[test]
fn no_more_permits_are_held_than_there_are() {
    in_world(async |world, [a, b]| {
        let (hers, his) = (a.client.semaphore("seats", 3).unwrap(), b.client.semaphore("seats", 3).unwrap());
        let [first, second, third] =
            [hers.acquire().await.unwrap(), his.acquire().await.unwrap(), hers.acquire().await.unwrap()];
        let busy = his.try_acquire().await.unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::Busy);
        assert_eq!(busy.contention().unwrap().holders, 3);
        let waiting = tokio::spawn(async move { his.acquire().await });
        settle().await;
        assert!(!waiting.is_finished());
        second.release().await.unwrap();
        let fourth = waiting.await.unwrap().unwrap();
        assert!(first.check().is_ok() && third.check().is_ok() && fourth.check().is_ok());
        assert_eq!(world.store.census().places, 3);
    });
}

#[test]
fn few_permits_do_not_overtake_a_waiter_for_many() {
    in_world(async |_, [process]| {
        let seats = process.client.semaphore("seats", 3).unwrap();
        let held = [seats.acquire().await.unwrap(), seats.acquire().await.unwrap()];
        let three = seats.clone().permits(3);
        let many = tokio::spawn(async move { three.acquire().await });
        settle().await;
        assert_eq!(seats.try_acquire().await.unwrap_err().kind(), ErrorKind::Busy, "although one permit is free");
        let one = seats.clone();
        let few = tokio::spawn(async move { one.acquire().await });
        settle().await;
        drop(held);
        settle().await;
        assert!(many.is_finished() && !few.is_finished());
        drop(many.await.unwrap().unwrap());
        few.await.unwrap().unwrap().check().unwrap();
    });
}

#[test]
fn the_permits_of_a_holder_that_dies_come_back() {
    in_world(async |world, [dying, other]| {
        let held = dying.client.semaphore("seats", 3).unwrap().permits(2).acquire().await.unwrap();
        let seats = other.client.semaphore("seats", 3).unwrap().permits(3);
        let waiting = tokio::spawn(async move { seats.acquire().await });
        settle().await;
        dying.store.crash();
        world.advance(secs(11)).await;
        assert_eq!(held.lost().await, Loss::Unconfirmed);
        waiting.await.unwrap().unwrap().check().unwrap();
    });
}

#[test]
fn a_holder_that_dies_before_it_learns_of_its_grant_delays_no_other_beyond_its_ttl() {
    in_world(async |world, [holder, dying, last]| {
        let guard = holder.client.semaphore("seats", 2).unwrap().permits(2).acquire().await.unwrap();
        let waits = |process: &crate::support::Process| {
            let all = process.client.semaphore("seats", 2).unwrap().permits(2);
            tokio::spawn(async move { all.acquire().await })
        };
        let never = waits(&dying);
        settle().await;
        let behind = waits(&last);
        settle().await;
        dying.store.crash();
        guard.release().await.unwrap();
        world.advance(secs(11)).await;
        behind.await.unwrap().unwrap().check().unwrap();
        never.abort();
    });
}

#[test]
fn another_capacity_is_a_conflict_while_a_contender_is_queued_and_taken_afterwards() {
    in_world(async |world, [process]| {
        let of_three = process.client.semaphore("seats", 3).unwrap().permits(2);
        let of_four = process.client.semaphore("seats", 4).unwrap();
        let held = of_three.acquire().await.unwrap();
        for error in [of_four.acquire().await.unwrap_err(), of_four.try_acquire().await.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Conflict);
            assert!(error.to_string().contains("2 of 3") && error.to_string().contains("1 of 4"), "{error}");
        }
        held.release().await.unwrap();
        let held = of_four.acquire().await.unwrap();
        assert_eq!(of_three.acquire().await.unwrap_err().kind(), ErrorKind::Conflict);
        drop(held);
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_name_used_as_another_kind_of_lock_is_a_conflict_that_names_it() {
    in_world(async |_, [process]| {
        let (mutex, page) = (process.client.mutex("a").unwrap(), process.client.rwlock("a").unwrap());
        let seats = process.client.semaphore("a", 3).unwrap();
        let held = mutex.acquire().await.unwrap();
        assert!(seats.acquire().await.unwrap_err().to_string().contains("theirs mutex"));
        assert!(page.read().await.unwrap_err().to_string().contains("theirs mutex"));
        held.release().await.unwrap();
        let held = page.write().await.unwrap();
        assert!(seats.acquire().await.unwrap_err().to_string().contains("theirs writer"));
        assert!(mutex.acquire().await.unwrap_err().to_string().contains("theirs writer"));
        held.release().await.unwrap();
        let _held = seats.acquire().await.unwrap();
        let error = mutex.try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains("theirs 1 of 3"), "{error}");
    });
}

#[test]
fn a_semaphore_of_one_permit_is_a_mutex() {
    in_world(async |_, [process]| {
        let _held = process.client.semaphore("a", 1).unwrap().acquire().await.unwrap();
        assert_eq!(process.client.mutex("a").unwrap().try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
    });
}

#[test]
fn no_permits_and_more_than_there_are_are_refused() {
    in_world(async |world, []| {
        let client = world.process().await.client;
        for capacity in [0, u32::MAX] {
            assert_eq!(client.semaphore("seats", capacity).unwrap_err().kind(), ErrorKind::Config, "{capacity}");
        }
        let seats = client.semaphore("seats", 3).unwrap();
        for count in [0, 4, u32::MAX] {
            let error = seats.clone().permits(count).acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains("1 to 3"), "{error}");
        }
        let most = client.semaphore("seats", u32::MAX - 1).unwrap();
        let held = most.clone().permits(u32::MAX - 2).acquire().await.unwrap();
        let one = most.acquire().await.unwrap();
        assert_eq!(most.try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
        drop((held, one));
    });
}

#[test]
fn a_wait_limit_ends_the_wait_and_leaves_nothing() {
    in_world(async |world, [process]| {
        let seats = process.client.semaphore("seats", 2).unwrap();
        let _held = seats.clone().permits(2).acquire().await.unwrap();
        let late = seats.clone();
        let waiting = tokio::spawn(async move { late.acquire_within(secs(3)).await });
        world.advance(secs(3) + ms(1)).await;
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        settle().await;
        assert_eq!(world.store.census().places, 1);
        let sum = process.client.semaphore("other", 2).unwrap().run(|_| async { 1 + 1 }).await;
        assert_eq!(sum.unwrap(), 2);
    });
}

#[test]
fn a_departure_wakes_the_newly_granted_and_one_more_at_most() {
    in_world(async |_, [process]| {
        let seats = process.client.semaphore("seats", 4).unwrap();
        let whole = seats.clone().permits(4).acquire().await.unwrap();
        let counts = [3, 1, 2, 1, 1, 4, 2, 2];
        for count in counts {
            let some = seats.clone().permits(count);
            tokio::spawn(async move {
                let guard = some.acquire().await.unwrap();
                std::future::pending::<()>().await;
                drop(guard);
            });
            settle().await;
        }
        whole.release().await.unwrap();
        settle().await;
        let granted = process.events.count("Granted") - 1;
        assert_eq!(granted, 2, "three and one of four");
        assert!(process.events.count("Woken") <= granted + 1, "{:?}", process.events.all());
    });
}

#[test]
fn code_that_blocks_has_permits_too() {
    let client = fencelock::blocking::Client::connect("memory:").unwrap();
    let seats = client.semaphore("seats", 2).unwrap();
    let (one, two) = (seats.acquire().unwrap(), seats.acquire().unwrap());
    assert_eq!(seats.try_acquire().unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(seats.acquire_within(ms(10)).unwrap_err().kind(), ErrorKind::TimedOut);
    one.release().unwrap();
    assert!(seats.run(|guard| guard.check().is_ok()).unwrap());
    drop(two);
    assert!(seats.clone().permits(2).acquire().unwrap().check().is_ok());
    client.close().unwrap();
}
