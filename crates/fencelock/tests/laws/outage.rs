//! Policies for a store that is out of reach: the circuit breaker, and grants outside of the store.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use fencelock::memory::{MemoryStore, Operation, VirtualClock};
use fencelock::store::PlaceId;
use fencelock::time::Clock;
use fencelock::{
    Breaker, BreakerState, Client, ClientBuilder, Error, ErrorKind, GuardState, Io, Loss, Name, OnOutage, Result,
};
use tokio::task::JoinHandle;

use crate::support::{Events, Process, World, in_world, ms, on_one_thread, secs, settle};

/// A process whose client has these options.
async fn process(world: &World, options: ClientBuilder) -> Process {
    let (store, events) = (world.store.another_process(), Events::default());
    let options = options.io(Io::CurrentRuntime).observer(Arc::new(events.clone()));
    let client = options.connect_store(store.clone()).await.unwrap();
    Process { store, client, events }
}

/// A process whose breaker opens at this many failures, for 20 s.
async fn with_breaker(world: &World, failures: u32) -> Process {
    process(world, Client::builder().breaker(Breaker::default().failures(failures).open_for(secs(20)))).await
}

/// A process whose store is out of reach and whose breaker is open.
async fn with_open_breaker(world: &World) -> Process {
    let process = with_breaker(world, 1).await;
    process.store.partition();
    fails(world, &process, "job").await;
    process
}

/// Runs `call` to its end, and says how long that took on the virtual clock.
async fn timed<T: Send + 'static>(world: &World, call: impl Future<Output = T> + Send + 'static) -> (T, Duration) {
    timed_on(world, &VirtualClock::new(), call).await
}

/// The same with a second store, which has a clock of its own.
async fn timed_on<T, F>(world: &World, other: &VirtualClock, call: F) -> (T, Duration)
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let start = world.clock.now();
    let call: JoinHandle<T> = tokio::spawn(call);
    settle().await;
    while !call.is_finished() {
        other.advance(ms(100));
        world.advance(ms(100)).await;
    }
    (call.await.unwrap(), world.clock.now().since(start))
}

/// Tries to take the lock `name`, which fails.
async fn fails(world: &World, process: &Process, name: &str) -> (Error, Duration) {
    let lock = process.client.mutex(name).unwrap();
    let (tried, took) = timed(world, async move { lock.try_acquire().await.map(drop) }).await;
    (tried.unwrap_err(), took)
}

fn is_open(process: &Process) -> bool {
    matches!(process.client.breaker(), Some(BreakerState::Open { .. }))
}

fn lock_of(process: &Process, policy: OnOutage) -> fencelock::Mutex {
    process.client.mutex("job").unwrap().on_outage(policy)
}

#[test]
fn a_breaker_opens_after_so_many_failures_and_says_since_when() {
    in_world(async |world, []| {
        let process = with_breaker(&world, 3).await;
        process.store.partition();
        for failures in 0..3 {
            assert_eq!((process.client.breaker(), failures), (Some(BreakerState::Closed), failures));
            let (error, took) = fails(&world, &process, "job").await;
            assert!(error.is_outage() && took >= secs(3), "{error}, {took:?}");
        }
        let opened = world.clock.wall();
        world.advance(secs(4)).await;
        let (error, took) = fails(&world, &process, "job").await;
        assert!(error.is_outage() && error.is_retryable() && took.is_zero(), "{error:?}");
        assert!(
            error.to_string().contains("the circuit breaker is open") && error.to_string().contains("name job"),
            "{error}"
        );
        assert!(error.to_string().contains("open_for 4"), "{error}");
        let Some(BreakerState::Open { since }) = process.client.breaker() else {
            panic!("{:?}", process.client.breaker())
        };
        assert!(opened.duration_since(since).unwrap() < secs(1));
        assert_eq!(process.events.count("Breaker { state: Open"), 1);
        assert_eq!(process.events.count("Refused"), 4);
    });
}

#[test]
fn an_answer_between_failures_keeps_a_breaker_closed_and_contention_is_an_answer() {
    in_world(async |world, []| {
        let (process, other) = (with_breaker(&world, 2).await, world.process().await);
        let _held = other.client.mutex("job").unwrap().acquire().await.unwrap();
        for _ in 0..3 {
            process.store.partition();
            assert!(fails(&world, &process, "job").await.0.is_outage());
            process.store.heal();
            world.advance(secs(6)).await;
            assert!(fails(&world, &process, "job").await.0.is_contention());
        }
        assert_eq!(process.client.breaker(), Some(BreakerState::Closed));
        assert_eq!(process.events.count("Breaker"), 0);
    });
}

#[test]
fn held_locks_are_renewed_and_given_back_while_the_breaker_is_open() {
    in_world(async |world, []| {
        let (process, other) = (with_breaker(&world, 1).await, world.process().await);
        let guard = process.client.mutex("held").unwrap().acquire().await.unwrap();
        let blocking = other.client.mutex("awaited").unwrap().acquire().await.unwrap();
        let lock = process.client.mutex("awaited").unwrap();
        let [granted, dropped] = [0, 1].map(|_| {
            tokio::spawn({
                let lock = lock.clone();
                async move { lock.acquire().await }
            })
        });
        settle().await;
        process.store.partition();
        fails(&world, &process, "job").await;
        assert!(is_open(&process));
        process.store.heal();
        // Longer than the ttl: without renewals the lock would be lost.
        world.advance(secs(15)).await;
        assert!(is_open(&process) && guard.check().is_ok(), "{:?}", process.events.all());
        // The dropped wait is withdrawn, and the other wait is granted.
        assert_eq!(other.client.queue("awaited").await.unwrap().contenders.len(), 3);
        dropped.abort();
        settle().await;
        assert_eq!(other.client.queue("awaited").await.unwrap().contenders.len(), 2);
        blocking.release().await.unwrap();
        let granted = granted.await.unwrap().unwrap();
        guard.release().await.unwrap();
        assert!(other.client.mutex("held").unwrap().try_acquire().await.is_ok());
        assert!(is_open(&process), "what was under way is no probe");
        drop(granted);
    });
}

#[test]
fn one_probe_closes_a_breaker_and_other_requests_fail_meanwhile() {
    in_world(async |world, []| {
        let process = with_open_breaker(&world).await;
        world.advance(secs(20)).await;
        let lock = process.client.mutex("job").unwrap();
        let probe = tokio::spawn(async move { lock.acquire().await });
        settle().await;
        assert!(matches!(process.client.breaker(), Some(BreakerState::HalfOpen { .. })));
        let (error, took) = fails(&world, &process, "job").await;
        assert!(error.is_outage() && took.is_zero());
        process.store.heal();
        world.advance(secs(10)).await;
        probe.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(process.client.breaker(), Some(BreakerState::Closed));
        process.client.mutex("job").unwrap().try_acquire().await.unwrap().release().await.unwrap();
        assert_eq!(
            ["Open", "HalfOpen", "Closed"].map(|state| process.events.count(&format!("Breaker {{ state: {state}"))),
            [1; 3]
        );
    });
}

#[test]
fn a_probe_that_fails_opens_a_breaker_anew_and_since_when_stays() {
    in_world(async |world, []| {
        let process = with_open_breaker(&world).await;
        let opened = process.client.breaker();
        world.advance(secs(20)).await;
        let (error, took) = fails(&world, &process, "job").await;
        assert!(!error.to_string().contains("breaker") && took >= secs(3), "the probe asks the store: {error}");
        assert_eq!(process.client.breaker(), opened);
        let (error, took) = fails(&world, &process, "job").await;
        assert!(took.is_zero() && error.to_string().contains("open_for 2"), "more than 20 s: {error}");
    });
}

#[test]
fn a_probe_that_is_dropped_leaves_the_next_one_to_probe() {
    in_world(async |world, []| {
        let process = with_open_breaker(&world).await;
        world.advance(secs(20)).await;
        let lock = process.client.mutex("job").unwrap();
        let probe = tokio::spawn(async move { lock.acquire().await.map(drop) });
        settle().await;
        probe.abort();
        settle().await;
        assert!(is_open(&process));
        process.store.heal();
        world.advance(secs(10)).await;
        process.client.mutex("job").unwrap().acquire().await.unwrap().release().await.unwrap();
        assert_eq!(process.client.breaker(), Some(BreakerState::Closed));
    });
}

#[test]
fn a_probe_that_its_caller_does_not_poll_closes_a_breaker_or_opens_it_anew() {
    on_one_thread(async {
        for is_sticky in [false, true] {
            let world = World::new();
            let process = with_breaker(&world, 1).await;
            let lock = process.client.mutex("job").unwrap();
            let lock = if is_sticky { lock.sticky(secs(5)) } else { lock };
            process.store.partition();
            fails(&world, &process, "job").await;
            world.advance(secs(20)).await;
            let mut in_vain = std::pin::pin!(lock.acquire());
            assert!(futures_util::poll!(in_vain.as_mut()).is_pending());
            assert!(matches!(process.client.breaker(), Some(BreakerState::HalfOpen { .. })));
            world.advance(secs(45)).await;
            assert!(is_open(&process), "the probe failed, and another one is not due");
            world.advance(secs(20)).await;
            let other = process.client.mutex("probe").unwrap();
            let mut probe = std::pin::pin!(other.acquire());
            assert!(futures_util::poll!(probe.as_mut()).is_pending());
            process.store.heal();
            world.advance(secs(10)).await;
            assert_eq!(process.client.breaker(), Some(BreakerState::Closed));
            process.client.mutex("third").unwrap().try_acquire().await.unwrap().release().await.unwrap();
            assert!(in_vain.await.unwrap_err().is_outage());
            probe.await.unwrap().release().await.unwrap();
        }
    });
}

#[test]
fn a_probe_that_queues_behind_others_closes_a_breaker_before_its_turn() {
    in_world(async |world, []| {
        let (process, other) = (with_breaker(&world, 1).await, world.process().await);
        let held = other.client.mutex("job").unwrap().acquire().await.unwrap();
        process.store.partition();
        fails(&world, &process, "job").await;
        process.store.heal();
        world.advance(secs(20)).await;
        let lock = process.client.mutex("job").unwrap();
        let waits = tokio::spawn(async move { lock.acquire().await });
        world.advance(secs(1)).await;
        assert_eq!(process.client.breaker(), Some(BreakerState::Closed));
        assert!(!waits.is_finished());
        held.release().await.unwrap();
        waits.await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn without_a_policy_an_outage_is_an_error() {
    in_world(async |world, [process]| {
        process.store.partition();
        assert!(fails(&world, &process, "job").await.0.is_outage());
        assert_eq!((process.client.breaker(), process.events.count("Degraded")), (None, 0));
    });
}

#[test]
fn a_guard_without_a_lock_excludes_no_client_and_stays_so_when_the_store_comes_back() {
    in_world(async |world, []| {
        let (process, other) = (with_breaker(&world, 1).await, world.process().await);
        let lock = lock_of(&process, OnOutage::RunWithout);
        process.store.partition();
        let acquire = lock.clone();
        let (guard, took) = timed(&world, async move { acquire.try_acquire().await }).await;
        let guard = guard.unwrap();
        assert!(took >= secs(3) && guard.is_degraded() && guard.token().is_none(), "{guard:?}");
        assert_eq!((guard.state(), guard.remaining()), (GuardState::Held, Duration::ZERO));
        // The breaker is open: the next caller need not wait for that.
        let second = lock.acquire().await.unwrap();
        assert!(second.is_degraded() && second.reenter().unwrap().is_degraded());
        // The store is back. Another client can hold the same lock: the policy allows that.
        process.store.heal();
        world.advance(secs(20)).await;
        let theirs = other.client.mutex("job").unwrap().try_acquire().await.unwrap();
        assert!(theirs.token().is_some() && !theirs.is_degraded());
        assert!(guard.check().is_ok());
        guard.release().await.unwrap();
        drop(second);
        theirs.release().await.unwrap();
        // The next acquire is the probe, and the store grants it.
        let guard = lock.acquire().await.unwrap();
        assert!(!guard.is_degraded() && guard.token().is_some() && guard.remaining() > Duration::ZERO);
        assert_eq!(process.client.breaker(), Some(BreakerState::Closed));
        assert_eq!((process.events.count("Degraded"), process.events.count("Released")), (2, 2));
        guard.release().await.unwrap();
    });
}

#[test]
fn a_run_without_a_lock_keeps_its_limit_and_its_body_runs() {
    in_world(async |world, []| {
        let process = with_open_breaker(&world).await;
        let lock = lock_of(&process, OnOutage::RunWithout);
        assert!(lock.run(|guard| async move { guard.is_degraded() }).await.unwrap());
        let guard = lock.clone().max_hold(secs(2)).acquire().await.unwrap();
        world.advance(secs(2)).await;
        assert_eq!(guard.state(), GuardState::Lost(Loss::HeldTooLong));
        let page = process.client.rwlock("page").unwrap().on_outage(OnOutage::RunWithout);
        let reading = page.write().await.unwrap().downgrade().await.unwrap();
        assert!(reading.is_degraded());
        assert_eq!(process.events.count("Degraded"), 3);
    });
}

#[test]
fn a_client_that_degrades_to_another_store_is_excluded_there() {
    in_world(async |world, []| {
        let (local, clock) = MemoryStore::with_virtual_clock();
        let process = with_breaker(&world, 1).await;
        let connect = |store: &MemoryStore| Client::builder().io(Io::CurrentRuntime).connect_store(store.clone());
        let fallback = connect(&local).await.unwrap();
        let lock = lock_of(&process, OnOutage::DegradeTo(fallback.clone()));
        process.store.partition();
        let first = lock.clone();
        let (guard, _) = timed(&world, async move { first.acquire_within(secs(5)).await }).await;
        let guard = guard.unwrap();
        assert!(guard.is_degraded() && guard.token().is_none() && guard.remaining() > Duration::ZERO, "{guard:?}");
        let error = lock.try_acquire().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Busy && error.to_string().contains("own_store"), "{error}");
        // The other store gets the rest of the wait limit.
        let late = lock.clone();
        let (error, took) = timed_on(&world, &clock, async move { late.acquire_within(secs(2)).await.map(drop) }).await;
        assert!(error.unwrap_err().kind() == ErrorKind::TimedOut && took < ms(2_500), "{took:?}");
        guard.release().await.unwrap();
        assert!(lock.try_acquire().await.unwrap().is_degraded());
        // An outage there is an error, and says what came before it.
        local.partition();
        let both = lock.clone();
        let (error, _) = timed_on(&world, &clock, async move { both.try_acquire().await.map(drop) }).await;
        let error = error.unwrap_err();
        assert!(error.is_outage() && error.to_string().contains("breaker"), "{error}");
        assert_eq!(process.events.count("Degraded"), 2);
    });
}

#[test]
fn a_store_that_cannot_be_degraded_to_is_refused_with_words() {
    in_world(async |_, [process]| {
        let refused = |acquired: Result<fencelock::Guard>| acquired.map(drop).unwrap_err();
        let error = refused(lock_of(&process, OnOutage::DegradeTo(process.client.clone())).acquire().await);
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains("its own client"), "{error}");
        for breaker in [Breaker::default().failures(0), Breaker::default().open_for(Duration::ZERO)] {
            let error = Client::builder().breaker(breaker).connect("memory:").await.unwrap_err();
            assert!(error.kind() == ErrorKind::Config && error.to_string().contains("1 ms or more"), "{error}");
        }
    });
}

/// The results of a client with a breaker and a lock with [`OnOutage::RunWithout`], of waits that are too short for an answer.
async fn ends_unanswered(world: &World, process: &Process, limit: Duration) {
    let lock = lock_of(process, OnOutage::RunWithout);
    let (ended, took) = timed(world, async move { lock.acquire_within(limit).await.map(drop) }).await;
    let error = ended.expect_err("a wait without an answer is granted");
    assert!(error.kind() == ErrorKind::TimedOut && error.to_string().contains("not answered yet"), "{error}");
    assert!(error.is_retryable() && error.contention().is_none() && took < limit + ms(200), "{error}, {took:?}");
}

#[test]
fn a_wait_that_is_too_short_for_an_answer_times_out_and_counts_for_no_breaker_and_no_policy() {
    in_world(async |world, []| {
        let (process, other) = (with_breaker(&world, 1).await, world.process().await);
        let held = other.client.mutex("job").unwrap().acquire().await.unwrap();
        for _ in 0..5 {
            // The store answers each request after a second.
            let late = process.store.delay_next(Operation::Enter);
            ends_unanswered(&world, &process, ms(100)).await;
            late.release();
            world.advance(secs(1)).await;
        }
        assert_eq!(process.client.breaker(), Some(BreakerState::Closed));
        assert_eq!((process.events.count("Breaker"), process.events.count("Degraded")), (0, 0));
        held.check().unwrap();
    });
}

#[test]
fn a_silent_store_is_out_of_reach_for_every_wait_once_a_request_deadline_has_passed() {
    in_world(async |world, []| {
        let process = with_breaker(&world, 3).await;
        process.store.partition();
        for _ in 0..10 {
            ends_unanswered(&world, &process, ms(100)).await;
        }
        world.advance(secs(4)).await;
        for _ in 0..3 {
            assert_eq!(process.client.breaker(), Some(BreakerState::Closed));
            let lock = lock_of(&process, OnOutage::Fail);
            let (ended, _) = timed(&world, async move { lock.acquire_within(ms(100)).await.map(drop) }).await;
            assert!(ended.unwrap_err().is_outage());
        }
        assert!(is_open(&process));
        process.store.heal();
    });
}

#[test]
fn a_probe_that_was_too_short_for_an_answer_leaves_the_next_one_to_probe() {
    in_world(async |world, []| {
        let process = with_open_breaker(&world).await;
        process.store.heal();
        world.advance(secs(20)).await;
        let late = process.store.delay_next(Operation::Enter);
        ends_unanswered(&world, &process, ms(100)).await;
        assert!(is_open(&process));
        late.release();
        process.client.mutex("job").unwrap().acquire().await.unwrap().release().await.unwrap();
        assert_eq!(process.client.breaker(), Some(BreakerState::Closed));
    });
}

#[test]
fn a_wait_in_which_the_machine_slept_is_no_outage() {
    in_world(async |world, []| {
        let (process, other) = (with_breaker(&world, 1).await, world.process().await);
        let held = other.client.mutex("job").unwrap().acquire().await.unwrap();
        let lock = lock_of(&process, OnOutage::RunWithout);
        let waits = tokio::spawn(async move { lock.acquire_within(secs(20)).await.map(drop) });
        world.advance(secs(6)).await;
        // No request of the first moments after the sleep has an answer in time.
        let late = [Operation::Contention, Operation::Open, Operation::Other].map(|of| process.store.delay_next(of));
        world.clock.advance(secs(3600));
        world.advance(secs(1)).await;
        let error = waits.await.unwrap().expect_err("a wait that slept past its limit is granted");
        assert!(error.kind() == ErrorKind::TimedOut, "{error}");
        assert_eq!(process.client.breaker(), Some(BreakerState::Closed));
        drop((held, late));
    });
}

#[test]
fn a_place_that_goes_away_at_the_end_of_a_quiet_wait_is_no_outage() {
    in_world(async |world, []| {
        let options = Client::builder().ttl(secs(30)).request_deadline(ms(500));
        let process = process(&world, options.breaker(Breaker::default().failures(1))).await;
        let held = world.process().await.client.mutex("job").unwrap().acquire().await.unwrap();
        let lock = lock_of(&process, OnOutage::RunWithout);
        let waits = tokio::spawn(async move { lock.acquire_within(secs(6)).await.map(drop) });
        world.advance(ms(5_900)).await;
        let late = process.store.delay_next(Operation::Enter);
        let waiter = process.client.queue("job").await.unwrap().contenders.remove(1);
        assert!(process.store.remove(&PlaceId { name: Name::new("job").unwrap(), request: waiter.id }));
        world.advance(secs(1)).await;
        let error = waits.await.unwrap().expect_err("a wait for a held lock is granted");
        assert!(error.kind() == ErrorKind::TimedOut, "{error}");
        assert_eq!(process.client.breaker(), Some(BreakerState::Closed));
        drop((held, late));
    });
}

#[test]
fn an_outage_of_an_hour_ago_says_nothing_of_a_wait_that_is_too_short_for_an_answer() {
    in_world(async |world, []| {
        let options = Client::builder().session_when_needed(true);
        let process = process(&world, options.breaker(Breaker::default().failures(2))).await;
        process.store.partition();
        assert!(fails(&world, &process, "job").await.0.is_outage());
        process.store.heal();
        world.advance(secs(3600)).await;
        let late = process.store.delay_next(Operation::Open);
        ends_unanswered(&world, &process, ms(4)).await;
        late.release();
        world.advance(secs(1)).await;
        process.client.mutex("job").unwrap().acquire().await.unwrap().release().await.unwrap();
        assert_eq!(process.client.breaker(), Some(BreakerState::Closed));
    });
}
