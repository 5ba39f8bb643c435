//! The laws of several mutexes that are taken together.

use std::cell::Cell;
use std::future::pending;

use fencelock::memory::Operation;
use fencelock::recipes::MultiLock;
use fencelock::{Client, ErrorKind, GuardState, Loss};
use futures_util::FutureExt;
use futures_util::future::join_all;

use crate::support::{in_world, ms, secs, settle};

fn abc(client: &Client) -> MultiLock {
    client.multi_lock(["c", "a", "b"]).unwrap()
}

/// Whether a client can acquire `name` now.
async fn is_free(client: &Client, name: &str) -> bool {
    client.mutex(name).unwrap().try_acquire().await.is_ok()
}

#[test]
fn all_are_held_until_they_are_released_and_listed_in_the_order_of_their_names() {
    in_world(async |world, [one, other]| {
        let all = abc(&one.client).purpose("transfer").acquire().await.unwrap();
        assert_eq!(all.guards().iter().map(|guard| guard.name().as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!((all.state(), all.check().is_ok()), (GuardState::Held, true));
        assert!(all.remaining() > secs(8));
        assert!(all.token("b").is_some() && all.token("d").is_none());
        for name in ["a", "b", "c"] {
            let busy = other.client.mutex(name).unwrap().try_acquire().await.unwrap_err();
            assert!(busy.to_string().contains("transfer"), "{busy}");
        }
        all.release().await.unwrap();
        for name in ["a", "b", "c"] {
            assert!(is_free(&other.client, name).await);
        }
        drop(abc(&one.client).try_acquire().await.unwrap());
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn one_limit_counts_for_all_together_and_leaves_none() {
    in_world(async |world, [one, other]| {
        let [first, last] = [("a", 3), ("c", 100)].map(|(name, held)| {
            let (lock, clock) = (other.client.mutex(name).unwrap().purpose("other"), world.clock.clone());
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                fencelock::time::Clock::sleep_until(&clock, fencelock::time::Clock::now(&clock).after(secs(held)))
                    .await;
                guard.release().await
            })
        });
        settle().await;
        let began = fencelock::time::Clock::now(&world.clock);
        let wait = tokio::spawn(async move { abc(&one.client).timeout(secs(5)).acquire().await });
        world.advance(secs(4)).await;
        assert!(first.await.unwrap().is_ok() && !wait.is_finished());
        assert!(!is_free(&other.client, "a").await && !is_free(&other.client, "b").await, "those before are held");
        world.advance(secs(2)).await;
        let error = wait.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(error.to_string().contains("name c") && error.to_string().contains("other"), "{error}");
        assert!(is_free(&other.client, "a").await && is_free(&other.client, "b").await);
        assert!(fencelock::time::Clock::now(&world.clock).since(began) < secs(7));
        last.abort();
    });
}

#[test]
fn a_try_takes_none_while_one_is_held() {
    in_world(async |world, [one, other]| {
        let held = other.client.mutex("b").unwrap().acquire().await.unwrap();
        assert_eq!(abc(&one.client).try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(abc(&one.client).acquire_within(secs(0)).await.unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(is_free(&other.client, "a").await && is_free(&other.client, "c").await);
        held.release().await.unwrap();
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_waiter_holds_no_lock_behind_the_one_that_it_waits_for() {
    in_world(async |_, [one, other]| {
        let held = other.client.mutex("b").unwrap().acquire().await.unwrap();
        let wait = tokio::spawn({
            let several = abc(&one.client);
            async move { several.acquire().await }
        });
        settle().await;
        assert!(!is_free(&other.client, "a").await && is_free(&other.client, "c").await);
        held.release().await.unwrap();
        wait.await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn callers_of_any_names_in_any_order_all_come_to_their_end_and_exclude_each_other() {
    in_world(async |world, []| {
        let taken: [Cell<bool>; 6] = Default::default();
        let mut processes = Vec::new();
        for _ in 0..6 {
            processes.push(world.process().await);
        }
        // The seed of a fixed pseudo-random sequence.
        let dice = Cell::new(7_u64);
        let roll = |of: usize| {
            dice.set(dice.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
            usize::try_from(dice.get() >> 33).unwrap() % of
        };
        let workers = processes.iter().map(|process| {
            let (taken, roll) = (&taken, &roll);
            async move {
                for _ in 0..40 {
                    let mut names: Vec<usize> = (0..6).filter(|_| roll(2) == 0).collect();
                    if names.is_empty() {
                        names.push(roll(6));
                    }
                    if roll(2) == 0 {
                        names.reverse();
                    }
                    let lock = process.client.multi_lock(names.iter().map(|name| format!("n{name}"))).unwrap();
                    let all = lock.acquire().await.unwrap();
                    assert!(names.iter().all(|name| !taken[*name].replace(true)), "two hold it");
                    tokio::task::yield_now().await;
                    names.iter().for_each(|name| taken[*name].set(false));
                    if roll(2) == 0 {
                        all.release().await.unwrap();
                    }
                }
            }
        });
        join_all(workers).await;
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn the_loss_of_one_is_the_loss_of_all_and_names_it() {
    in_world(async |_, [one, other]| {
        let all = abc(&one.client).acquire().await.unwrap();
        assert_eq!(all.lost().now_or_never(), None);
        let holder = other.client.queue("b").await.unwrap().contenders[0].clone();
        assert!(other.client.break_grant("b", &holder, "stuck").await.unwrap());
        assert_eq!((all.lost().await, all.state()), (Loss::Broken, GuardState::Lost(Loss::Broken)));
        let error = all.check().unwrap_err();
        assert!(error.kind() == ErrorKind::Lost && error.to_string().contains("name b"), "{error}");
        assert_eq!(all.lost_guard().unwrap().name().as_str(), "b");
        assert!(!is_free(&other.client, "a").await, "the others are held until the guard is gone");
        let failed = all.release_or_keep().await.unwrap_err();
        assert_eq!((failed.kind(), failed.into_guard().guards().len()), (ErrorKind::Lost, 1));
        assert!(is_free(&other.client, "a").await && is_free(&other.client, "c").await);
    });
}

#[test]
fn a_body_is_dropped_when_one_of_its_locks_is_lost_and_the_others_are_given_back() {
    in_world(async |world, [one, other]| {
        assert_eq!(abc(&one.client).run(async |all| all.guards().len()).await.unwrap(), 3);
        world.assert_no_place_is_left().await;
        let lock = abc(&one.client);
        let run = tokio::spawn(async move { lock.run(|_all| pending::<()>()).await });
        settle().await;
        let holder = other.client.queue("c").await.unwrap().contenders[0].clone();
        assert!(other.client.break_grant("c", &holder, "stuck").await.unwrap());
        assert_eq!(run.await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_lock_that_is_lost_while_others_are_waited_for_ends_the_wait_and_leaves_none() {
    in_world(async |world, [one, other]| {
        let held = other.client.mutex("c").unwrap().acquire().await.unwrap();
        let lock = abc(&one.client);
        let wait = tokio::spawn(async move { lock.acquire().await });
        settle().await;
        let holder = other.client.queue("a").await.unwrap().contenders[0].clone();
        assert!(other.client.break_grant("a", &holder, "stuck").await.unwrap());
        let error = wait.await.unwrap().unwrap_err();
        assert!(error.kind() == ErrorKind::Lost && error.to_string().contains("name a"), "{error}");
        held.release().await.unwrap();
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn an_acquire_of_several_that_is_dropped_anywhere_leaves_nothing() {
    in_world(async |world, [one, other]| {
        for polls in 0..30 {
            let held = other.client.mutex("b").unwrap().acquire().await.unwrap();
            let several = abc(&one.client);
            let mut wait = Box::pin(several.acquire());
            for _ in 0..polls {
                let _ = futures_util::poll!(&mut wait);
                tokio::task::yield_now().await;
            }
            drop(wait);
            held.release().await.unwrap();
            world.assert_no_place_is_left().await;
        }
    });
}

#[test]
fn locks_of_two_stores_are_taken_together_and_none_is_while_one_store_is_away() {
    in_world(async |world, [one, other]| {
        // Two clients of one clock. Both have the same store, which does not matter here.
        let lock = MultiLock::new([other.client.mutex("b").unwrap(), one.client.mutex("a").unwrap()]).unwrap();
        lock.acquire().await.unwrap().release().await.unwrap();
        other.store.partition();
        let wait = tokio::spawn(async move { lock.acquire_within(secs(20)).await });
        world.advance(secs(60)).await;
        let error = wait.await.unwrap().unwrap_err();
        assert!(error.is_outage(), "{error}");
        assert!(is_free(&one.client, "a").await);
        world.advance(ms(1)).await;
    });
}

#[test]
fn none_a_thousand_and_one_and_the_same_name_twice_are_refused() {
    in_world(async |world, []| {
        let client = world.process().await.client;
        let refused = |names: Vec<String>| client.multi_lock(names).unwrap_err();
        for (names, said) in [
            (vec![], "no lock is named; 1 to 1000"),
            (vec!["a".to_owned(), "b".to_owned(), "a".to_owned()], "the lock \"a\" is named twice"),
            ((0..1001).map(|name| format!("n{name}")).collect(), "too many locks are named; 1 to 1000"),
        ] {
            let error = refused(names);
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(said), "{error}");
        }
        assert_eq!(refused(vec!["a".to_owned(), "/".to_owned()]).kind(), ErrorKind::InvalidName);
        let thousand = client.multi_lock((0..1000).map(|name| format!("n{name}"))).unwrap();
        thousand.acquire().await.unwrap().release().await.unwrap();
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn several_locks_whose_time_was_too_short_for_an_answer_are_no_outage() {
    in_world(async |world, [one]| {
        for _ in 0..3 {
            let late = one.store.delay_next(Operation::Enter);
            let several = abc(&one.client);
            let wait = tokio::spawn(async move { several.acquire_within(ms(50)).await });
            world.advance(ms(50)).await;
            let error = wait.await.unwrap().unwrap_err();
            assert!(error.kind() == ErrorKind::TimedOut && error.to_string().contains("not answered yet"), "{error}");
            late.release();
            world.advance(secs(1)).await;
            world.assert_no_place_is_left().await;
        }
    });
}
