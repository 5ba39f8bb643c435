//! Redis is killed and back under a hundred workers: the cost and the benefit of each outage policy.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fencelock::{Breaker, Client, OnOutage};
use fencelock_testbed::redis::{Server, Settings};

const WORKERS: usize = 100;
/// Five workers for each.
const NAMES: usize = 20;
const LIMIT: Duration = Duration::from_millis(500);
const SECTION: Duration = Duration::from_millis(2);
const BEFORE: Duration = Duration::from_secs(1);
const AWAY: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(180);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum End {
    Store,
    Degraded,
    Failed,
}

/// An acquire: its start, its duration, and its result.
type Acquire = (Instant, Duration, End);

#[derive(Default)]
struct Shared {
    acquires: Mutex<Vec<Acquire>>,
    /// The number of workers inside, by name.
    inside: [AtomicUsize; NAMES],
    overlaps: AtomicUsize,
    stop: AtomicBool,
}

async fn work(lock: fencelock::Mutex, number: usize, shared: Arc<Shared>) {
    while !shared.stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        let acquired = lock.acquire_within(LIMIT).await;
        let (took, end) = (
            start.elapsed(),
            match &acquired {
                Ok(guard) if guard.is_degraded() => End::Degraded,
                Ok(_) => End::Store,
                Err(error) if error.is_outage() || error.is_contention() => End::Failed,
                Err(error) => panic!("{error:?}"),
            },
        );
        shared.acquires.lock().unwrap().push((start, took, end));
        let Ok(guard) = acquired else {
            // The next request of a service comes a moment later.
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let inside = &shared.inside[number % NAMES];
        if inside.fetch_add(1, Ordering::SeqCst) > 0 {
            shared.overlaps.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(SECTION).await;
        inside.fetch_sub(1, Ordering::SeqCst);
        drop(guard);
    }
}

/// The results of one policy: the durations of the acquires that began in the outage, sorted.
struct Outcome {
    away: Vec<Duration>,
    overlaps: usize,
    counts: HashMap<End, usize>,
}

impl Outcome {
    fn share(&self, of_thousand: usize) -> Duration {
        self.away[(self.away.len() - 1) * of_thousand / 1000]
    }
}

async fn drill(name: &str, breaker: bool, policy: impl AsyncFnOnce() -> OnOutage) -> Outcome {
    let server = Server::start(Settings::default()).unwrap();
    let options = Client::builder().connect_timeout(PATIENCE);
    let options = if breaker { options.breaker(Breaker::default().open_for(Duration::from_secs(1))) } else { options };
    let client = options.connect(&server.url()).await.unwrap();
    let (policy, shared) = (policy().await, Arc::new(Shared::default()));
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let lock = client.mutex(format!("job/{}", number % NAMES)).unwrap().on_outage(policy.clone());
            tokio::spawn(work(lock, number, Arc::clone(&shared)))
        })
        .collect();
    tokio::time::sleep(BEFORE).await;
    let killed = Instant::now();
    server.kill();
    tokio::time::sleep(AWAY).await;
    let back = Instant::now();
    server.restart().unwrap();
    let granted_since = |at: Instant| {
        shared.acquires.lock().unwrap().iter().filter(|(start, _, end)| *start > at && *end == End::Store).count()
    };
    while granted_since(back) < WORKERS * 10 {
        assert!(back.elapsed() < PATIENCE, "{name}: the store is back, and grants no locks");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    shared.stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.unwrap();
    }
    let acquires = shared.acquires.lock().unwrap();
    let in_outage = |(start, ..): &&Acquire| (killed..back).contains(start);
    let mut away: Vec<_> = acquires.iter().filter(in_outage).map(|(_, took, _)| *took).collect();
    away.sort_unstable();
    let mut counts = HashMap::new();
    acquires.iter().filter(in_outage).for_each(|(.., end)| *counts.entry(*end).or_default() += 1);
    let first = acquires.iter().filter(|(start, _, end)| *start > killed + LIMIT && *end == End::Store);
    let first = first.map(|(start, took, _)| *start + *took).min().unwrap();
    let outcome = Outcome { away, overlaps: shared.overlaps.load(Ordering::Relaxed), counts };
    let count = |end| outcome.counts.get(&end).copied().unwrap_or(0);
    println!(
        "bound: {name}: {} acquires in {AWAY:?} of outage: median {:?}, 99 % {:?}, longest {:?}; {} by the store, {} degraded, {} failed; \
         {} times two at once; granted by the store again {:?} after it was started",
        outcome.away.len(),
        outcome.share(500),
        outcome.share(990),
        outcome.share(1000),
        count(End::Store),
        count(End::Degraded),
        count(End::Failed),
        outcome.overlaps,
        first.saturating_duration_since(back),
    );
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_is_killed_and_back_under_a_hundred_workers_of_each_policy() {
    let fail = drill("fail, no breaker", false, async || OnOutage::Fail).await;
    assert!(fail.share(500) >= LIMIT - Duration::from_millis(50), "each waits for its limit");
    let broken = drill("fail, breaker", true, async || OnOutage::Fail).await;
    assert!(broken.share(500) < Duration::from_millis(50), "most fail at once: {:?}", broken.share(500));
    let without = drill("run_without, breaker", true, async || OnOutage::RunWithout).await;
    assert!(without.counts[&End::Degraded] > 0 && !without.counts.contains_key(&End::Failed));
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file://{}", directory.path().display());
    let degraded = async || OnOutage::DegradeTo(Client::connect(&url).await.unwrap());
    let degraded = drill("degrade_to file:, breaker", true, degraded).await;
    assert!(degraded.counts[&End::Degraded] > 0);
    assert_eq!((fail.overlaps, broken.overlaps), (0, 0), "who fails excludes");
    assert!(without.overlaps > 0, "who runs without does not");
}
