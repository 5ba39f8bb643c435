//! The laws of sticky locks: a kept lock is given to any contender that asks, and is never reused once it is lost.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use fencelock::memory::Operation;
use fencelock::time::Clock as _;
use fencelock::{Client, ErrorKind, Guard, GuardState, Loss, Mutex};
use futures_util::FutureExt;
use futures_util::future::join_all;

use crate::support::{Process, World, in_world, ms, on_one_thread, secs, settle};

#[cfg(feature = "file")]
#[path = "../sticky/mod.rs"]
mod any;

const KEEP: std::time::Duration = secs(5);

fn sticky(client: &Client) -> Mutex {
    client.mutex("job").unwrap().sticky(KEEP)
}

/// Takes the lock and gives it back. Returns the token.
async fn section(lock: &Mutex) -> u64 {
    let guard = lock.acquire().await.unwrap();
    let token = guard.token().unwrap().get();
    guard.release().await.unwrap();
    token
}

#[test]
fn a_kept_lock_is_taken_again_without_the_store_by_every_handle_of_its_client() {
    in_world(async |world, [one, other]| {
        let token = section(&sticky(&one.client)).await;
        one.store.partition();
        assert_eq!(section(&sticky(&one.client)).await, token);
        let guard = sticky(&one.client).try_acquire().await.unwrap();
        assert_eq!((guard.token().unwrap().get(), guard.state()), (token, GuardState::Held));
        let seen = other.client.queue("job").await.unwrap();
        let purpose = seen.contenders[0].purpose.as_deref();
        assert_eq!((seen.queued, purpose), (1, Some("(sticky, kept for 5s)")));
        drop(guard);
        let told = |start| one.events.count(start);
        assert_eq!((told("Granted"), told("Releasing"), told("Released"), told("Lost")), (3, 3, 3, 0));
        one.store.heal();
        world.advance(KEEP).await;
        world.assert_no_place_is_left().await;
        assert_eq!(told("Released"), 3, "a kept lock is not released");
        assert!(section(&sticky(&one.client)).await > token);
    });
}

#[test]
fn a_sticky_lock_is_kept_from_the_last_release_on_and_then_given_up() {
    in_world(async |world, [one]| {
        let lock = sticky(&one.client);
        let token = section(&lock).await;
        world.advance(secs(4)).await;
        assert_eq!(section(&lock).await, token);
        world.advance(secs(4)).await;
        let guard = lock.acquire().await.unwrap();
        assert_eq!(guard.token().unwrap().get(), token);
        world.advance(secs(60)).await;
        drop((guard, lock));
        world.advance(secs(4)).await;
        assert_eq!(world.store.census().places, 1);
        world.advance(secs(1)).await;
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_waiter_elsewhere_gets_a_kept_lock_at_once() {
    in_world(async |world, [one, other]| {
        let token = section(&sticky(&one.client)).await;
        settle().await;
        let plain = other.client.mutex("job").unwrap();
        assert_eq!(plain.try_acquire().await.unwrap_err().kind(), ErrorKind::Busy, "who does not wait is refused");
        assert_eq!(section(&sticky(&one.client)).await, token);
        let now = world.clock.now();
        let guard = plain.acquire().await.unwrap();
        assert!(guard.token().unwrap().get() > token && world.clock.now() == now);
        drop(guard);
        // A lock of the same client that is not sticky counts as another client's.
        section(&sticky(&one.client)).await;
        drop(one.client.mutex("job").unwrap().acquire().await.unwrap());
        assert_eq!(world.clock.now(), now);
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn tasks_of_one_client_take_turns_and_starve_no_client_elsewhere() {
    in_world(async |_, [one, other]| {
        let (order, is_over) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(false)));
        let tasks = (0..10).map(|number| {
            let (lock, order, is_over) = (sticky(&one.client), Rc::clone(&order), Rc::clone(&is_over));
            async move {
                while !*is_over.borrow() {
                    let guard = lock.acquire().await.unwrap();
                    order.borrow_mut().push(number);
                    tokio::task::yield_now().await;
                    guard.release().await.unwrap();
                }
            }
        });
        let remote = async {
            settle().await;
            let plain = other.client.mutex("job").unwrap();
            for _ in 0..5 {
                let before = order.borrow().len();
                let guard = plain.acquire().await.unwrap();
                let passed = order.borrow().len() - before;
                assert!(passed <= 2, "{passed} sections went ahead of who waited");
                guard.release().await.unwrap();
                settle().await;
            }
            *is_over.borrow_mut() = true;
        };
        futures_util::future::join(join_all(tasks), remote).await;
        let order = order.borrow();
        assert!(order.len() > 100, "{} sections", order.len());
        let turns = order.windows(10).filter(|turn| (0..10).all(|task| turn.contains(&task))).count();
        assert!(turns > order.len() / 2, "first come, first served: {order:?}");
    });
}

#[test]
fn a_client_that_waited_goes_back_to_the_queue_in_time_though_word_of_others_is_late() {
    in_world(async |_, [one, other]| {
        let plain = other.client.mutex("job").unwrap();
        let held = plain.acquire().await.unwrap();
        let lock = sticky(&one.client);
        let waits = lock.clone();
        let waiting = tokio::spawn(async move { waits.acquire().await.unwrap().release().await });
        settle().await;
        let late = one.store.delay_next(Operation::Watch);
        held.release().await.unwrap();
        waiting.await.unwrap().unwrap();
        let waits = plain.clone();
        let rival = tokio::spawn(async move { waits.acquire().await.unwrap() });
        settle().await;
        for passed in 0.. {
            assert!(passed < 300, "{passed} sections went ahead of who waits");
            if rival.is_finished() {
                break;
            }
            let next = lock.clone();
            let next = tokio::spawn(async move { section(&next).await });
            settle().await;
            next.abort();
        }
        drop((rival.await.unwrap(), late));
        settle().await;
        // A client without a waiter has no such limit.
        let token = section(&lock).await;
        for _ in 0..600 {
            assert_eq!(section(&lock).await, token);
        }
    });
}

#[test]
fn a_kept_lock_that_was_lost_is_not_reused() {
    in_world(async |world, [one, other]| {
        let lock = sticky(&one.client);
        let first = section(&lock).await;
        one.store.expire_sessions();
        let guard = other.client.mutex("job").unwrap().acquire().await.unwrap();
        guard.release().await.unwrap();
        let second = section(&lock).await;
        assert!(second > first + 1);
        // The process pauses beyond the end of its certainty. The clock shows that before any task runs.
        world.clock.advance(secs(3600));
        let third = section(&lock).await;
        assert!(third > second);
        // A renewal is overdue: a lock that may prove lost next is not granted before.
        let lock = lock.sticky(secs(60));
        section(&lock).await;
        one.store.partition();
        world.advance(secs(6)).await;
        let late = tokio::spawn(async move { lock.acquire_within(ms(100)).await.map(|guard| guard.token()) });
        world.advance(secs(1)).await;
        assert!(late.await.unwrap().unwrap_err().is_outage());
        one.store.heal();
        assert_eq!(one.events.count("Lost"), 0);
        world.advance(secs(20)).await;
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn a_break_ends_the_grant_while_it_is_kept_and_in_a_later_section() {
    in_world(async |_, [one, other]| {
        let lock = sticky(&one.client);
        let first = section(&lock).await;
        let holder = other.client.queue("job").await.unwrap().contenders.remove(0);
        assert!(other.client.break_grant("job", &holder, "it is needed").await.unwrap());
        settle().await;
        let guard = lock.acquire().await.unwrap();
        assert!(guard.token().unwrap().get() > first);
        guard.release().await.unwrap();
        let holder = other.client.queue("job").await.unwrap().contenders.remove(0);
        let guard = lock.acquire().await.unwrap();
        assert!(other.client.break_grant("job", &holder, "it is needed").await.unwrap());
        settle().await;
        assert_eq!(guard.state(), GuardState::Lost(Loss::Broken));
        assert_eq!(guard.break_reason(), Some("it is needed"));
        // The next section's turn does not wait for the guard of a lost lock.
        let next = lock.acquire().await.unwrap();
        assert!(next.token() > guard.token());
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(one.events.count("Lost"), 1);
    });
}

#[test]
fn a_client_that_is_closed_or_dropped_keeps_nothing() {
    in_world(async |world, [one, two]| {
        let lock = sticky(&one.client);
        section(&lock).await;
        one.client.close().await.unwrap();
        world.assert_no_place_is_left().await;
        assert_eq!(lock.acquire().await.unwrap_err().kind(), ErrorKind::Closed);
        let lock = sticky(&two.client);
        section(&lock).await;
        drop((lock, two.client));
        settle().await;
        world.assert_no_place_is_left().await;
    });
}

#[test]
fn each_section_has_its_own_limit_and_a_lost_section_its_cause() {
    in_world(async |world, [one]| {
        let lock = sticky(&one.client).max_hold(secs(2));
        let first = section(&lock).await;
        world.advance(secs(3)).await;
        let guard = lock.acquire().await.unwrap();
        assert_eq!((guard.token().unwrap().get(), guard.state()), (first, GuardState::Held));
        world.advance(ms(1_999)).await;
        assert_eq!(guard.state(), GuardState::Held);
        world.advance(ms(1)).await;
        assert_eq!(guard.state(), GuardState::Lost(Loss::HeldTooLong));
        drop(guard);
        assert!(section(&lock).await > first);
    });
}

#[test]
fn a_released_guard_says_so_though_the_place_stays() {
    in_world(async |_, [one]| {
        let lock = sticky(&one.client);
        let lent = lock.run(|guard| async move { guard }).await.unwrap();
        assert_eq!(lent.state(), GuardState::Released);
        assert!(lent.lost_token().is_cancelled() && lent.reenter().is_err());
        let guard = lock.acquire().await.unwrap();
        let again = guard.reenter().unwrap();
        drop(guard);
        assert!(lock.try_acquire().await.is_err(), "the other guard holds it");
        assert_eq!((again.state(), lent.state()), (GuardState::Held, GuardState::Released));
        drop(again);
        assert!(lock.try_acquire().await.is_ok());
    });
}

/// Two grants of one client with a lent guard between them, which `end` ends once the second section has begun.
async fn second_section_after(end: impl AsyncFn(Guard), loses: impl AsyncFn(&World, &Process, &Process)) -> Guard {
    let world = World::new();
    let (one, other) = (world.process().await, world.process().await);
    let lock = sticky(&one.client);
    let lent = lock.run(|guard| async move { guard }).await.unwrap();
    let second = lock.acquire().await.unwrap();
    end(lent).await;
    second.check().unwrap();
    loses(&world, &one, &other).await;
    settle().await;
    second
}

#[test]
fn a_lent_guard_that_ends_after_its_body_leaves_the_next_section_notified_of_its_end() {
    on_one_thread(async {
        let ends = [0, 1, 2];
        for way in ends {
            let end = async |lent: Guard| match way {
                0 => lent.release().await.unwrap(),
                1 => std::thread::spawn(move || drop(lent)).join().unwrap(),
                _ => std::thread::spawn(|| futures_executor::block_on(lent.release()).unwrap()).join().unwrap(),
            };
            let broken = second_section_after(end, async |_, _, other| {
                let holder = other.client.queue("job").await.unwrap().contenders.remove(0);
                assert!(other.client.break_grant("job", &holder, "it is needed").await.unwrap());
            });
            assert_eq!(broken.await.lost().now_or_never(), Some(Loss::Broken), "{way}");
            let expired = second_section_after(end, async |_, one, _| one.store.expire_sessions());
            assert_eq!(expired.await.lost().now_or_never(), Some(Loss::Expired), "{way}");
            let left = second_section_after(end, async |world, _, _| world.advance(secs(60)).await);
            assert_eq!(left.await.state(), GuardState::Held, "{way}");
        }
    });
}

/// The state that the tasks of the law below share: the guard of the section that runs, guards that outlive their bodies, and a random number.
struct Crew {
    inside: RefCell<Option<Rc<Guard>>>,
    handed_on: RefCell<Vec<Guard>>,
    random: RefCell<fastrand::Rng>,
    sections: Cell<u32>,
}

impl Crew {
    fn below(&self, end: u64) -> u64 {
        self.random.borrow_mut().u64(..end)
    }

    /// No section of the sticky client believes in its lock when another holder was granted.
    fn is_alone(&self, who: &str) {
        let believes = self.inside.borrow().as_ref().is_some_and(|guard| guard.check().is_ok());
        assert!(!believes, "{who} was granted together with a section that believes");
    }

    /// A guard that outlived its body ends, in one of four ways, or stays.
    async fn end_one(&self) {
        let lent = {
            let mut handed_on = self.handed_on.borrow_mut();
            if handed_on.is_empty() {
                return;
            }
            let at = self.below(handed_on.len() as u64);
            handed_on.swap_remove(at as usize)
        };
        match self.below(5) {
            0 => lent.release().await.unwrap(),
            1 => drop(lent),
            2 => std::thread::spawn(move || drop(lent)).join().unwrap(),
            3 => drop(std::thread::spawn(|| futures_executor::block_on(lent.release())).join().unwrap()),
            _ => self.handed_on.borrow_mut().push(lent),
        }
    }

    async fn works(&self, lock: Mutex) {
        for _ in 0..20 {
            let ran = lock.run(async |guard| {
                self.is_alone("a section");
                let guard = Rc::new(guard);
                *self.inside.borrow_mut() = Some(Rc::clone(&guard));
                self.sections.set(self.sections.get() + 1);
                let length = if self.below(4) == 0 { 600 } else { self.below(40) };
                for _ in 0..length {
                    tokio::task::yield_now().await;
                }
                self.inside.borrow_mut().take();
                let guard = Rc::into_inner(guard).unwrap();
                if self.below(2) == 0 {
                    self.handed_on.borrow_mut().push(guard);
                }
            });
            match ran.await {
                Ok(()) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::Lost, "{error}"),
            }
            self.end_one().await;
        }
    }
}

#[test]
fn each_section_is_notified_before_a_rival_is_granted_for_any_use_of_its_guard() {
    on_one_thread(async {
        for seed in 1..=40 {
            let world = World::new();
            let (one, other) = (world.process().await, world.process().await);
            let crew = Crew {
                inside: RefCell::default(),
                handed_on: RefCell::default(),
                random: RefCell::new(fastrand::Rng::with_seed(seed)),
                sections: Cell::new(0),
            };
            let tasks = join_all((0..3).map(|_| crew.works(sticky(&one.client))));
            let is_over = Cell::new(false);
            let rival = async {
                let plain = other.client.mutex("job").unwrap();
                while !is_over.get() {
                    let guard = plain.acquire().await.unwrap();
                    settle().await;
                    // The fault may have hit the rival, too.
                    if guard.check().is_ok() {
                        crew.is_alone("a rival");
                    }
                    let _ = guard.release().await;
                    for _ in 0..crew.below(600) {
                        tokio::task::yield_now().await;
                    }
                }
            };
            let trouble = async {
                while !is_over.get() {
                    for _ in 0..crew.below(300) {
                        tokio::task::yield_now().await;
                    }
                    crew.end_one().await;
                    for _ in 0..crew.below(20) {
                        tokio::task::yield_now().await;
                    }
                    if crew.below(4) == 0 {
                        one.store.expire_sessions();
                    } else if let Some(holder) = other.client.queue("job").await.unwrap().contenders.first() {
                        let _ = other.client.break_grant("job", holder, "it is needed").await;
                    }
                    world.advance(ms(crew.below(200))).await;
                }
            };
            let tasks = async {
                tasks.await;
                is_over.set(true);
            };
            futures_util::future::join3(tasks, rival, trouble).await;
            assert!(crew.sections.get() > 20, "seed {seed}: {} sections", crew.sections.get());
        }
    });
}

#[test]
fn a_wait_for_a_turn_in_vain_names_the_holder_and_leaves_nothing() {
    in_world(async |world, [one]| {
        let lock = sticky(&one.client);
        let guard = lock.acquire().await.unwrap();
        let in_vain = lock.clone();
        let waits = tokio::spawn(async move { in_vain.acquire_within(secs(3)).await });
        let dropped = lock.clone();
        let gives_up = tokio::spawn(async move { dropped.acquire().await });
        world.advance(secs(1)).await;
        assert_eq!(world.store.census().places, 1, "a client has one place in the queue");
        gives_up.abort();
        world.advance(secs(2)).await;
        let error = waits.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.contention().is_some_and(|found| found.holder.is_some()), "{error}");
        assert_eq!(lock.try_acquire().await.unwrap_err().kind(), ErrorKind::Busy);
        guard.release().await.unwrap();
        section(&lock).await;
        assert_eq!(lock.clone().sticky(ms(0)).acquire().await.unwrap_err().kind(), ErrorKind::Config);
    });
}

#[test]
fn a_wait_for_a_turn_with_a_limit_ends_in_time_although_its_caller_does_not_poll_it() {
    in_world(async |world, [one]| {
        let lock = sticky(&one.client);
        let guard = lock.acquire().await.unwrap();
        let mut idle = std::pin::pin!(lock.acquire_within(secs(3)));
        assert!(futures_util::poll!(idle.as_mut()).is_pending());
        let next = lock.clone();
        let next = tokio::spawn(async move { section(&next).await });
        world.advance(secs(4)).await;
        guard.release().await.unwrap();
        next.await.unwrap();
        idle.await.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_lost_answer_about_waiters_costs_no_client_the_lock() {
    in_world(async |world, [one, other]| {
        one.store.lose_next_reply(Operation::Watch);
        section(&sticky(&one.client)).await;
        settle().await;
        let plain = other.client.mutex("job").unwrap();
        let waits = tokio::spawn(async move { plain.acquire().await.map(drop) });
        world.advance(secs(1)).await;
        assert!(waits.is_finished());
        waits.await.unwrap().unwrap();
        world.assert_no_place_is_left().await;
    });
}

#[cfg(feature = "file")]
#[test]
fn a_store_that_looks_at_the_queue_releases_a_sticky_lock_to_a_waiter_of_another_client() {
    on_one_thread(async {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file://{}", directory.path().display());
        let (one, other) = (Client::connect(&url).await.unwrap(), Client::connect(&url).await.unwrap());
        any::is_released_to_a_waiter_of_another_client(&one, &other).await;
    });
}

#[test]
fn readers_are_refused_by_a_kept_lock_as_by_a_held_one() {
    in_world(async |world, [one, other]| {
        section(&sticky(&one.client)).await;
        let readers = other.client.rwlock("job").unwrap();
        assert_eq!(readers.read().await.unwrap_err().kind(), ErrorKind::Conflict);
        world.advance(KEEP).await;
        drop(readers.read().await.unwrap());
    });
}

#[test]
fn an_outage_is_reported_to_all_tasks_and_not_to_one_after_the_other() {
    in_world(async |world, [one]| {
        one.store.partition();
        let tasks: Vec<_> = (0..10)
            .map(|_| sticky(&one.client))
            .map(|lock| tokio::spawn(async move { lock.acquire().await.map(drop) }))
            .collect();
        // Three times as long as a single task tries. Tasks in turn would take ten times as long.
        for _ in 0..100 {
            world.advance(secs(1)).await;
        }
        settle().await;
        for task in tasks {
            assert!(task.is_finished());
            assert!(task.await.unwrap().unwrap_err().is_outage());
        }
    });
}
