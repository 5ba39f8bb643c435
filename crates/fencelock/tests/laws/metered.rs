//! The figures of the observer for the facade `metrics`, read by a recorder of the test's own.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fencelock::observe::Metrics;
use fencelock::{Breaker, Client, Io, OnOutage};
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use crate::support::{World, ms, on_one_thread, secs, settle};

/// Every series by its name and labels.
#[derive(Default)]
struct Seen {
    counters: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    gauges: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    histograms: Mutex<BTreeMap<String, Arc<Records>>>,
}

#[derive(Default)]
struct Records(Mutex<Vec<f64>>);

impl HistogramFn for Records {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }
}

fn series(key: &Key) -> String {
    let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
    format!("{} {}", key.name().trim_start_matches("fencelock_"), labels.join(" ")).trim_end().to_owned()
}

impl Recorder for Seen {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::clone(self.counters.lock().unwrap().entry(series(key)).or_default()))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::clone(self.gauges.lock().unwrap().entry(series(key)).or_default()))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::clone(self.histograms.lock().unwrap().entry(series(key)).or_default()))
    }
}

impl Seen {
    fn count(&self, series: &str) -> u64 {
        self.counters.lock().unwrap().get(series).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    fn gauge(&self, series: &str) -> f64 {
        self.gauges.lock().unwrap().get(series).map_or(0.0, |bits| f64::from_bits(bits.load(Ordering::Relaxed)))
    }

    fn times(&self, series: &str) -> Vec<f64> {
        let times = self.histograms.lock().unwrap();
        times.get(series).map(|records| records.0.lock().unwrap().clone()).unwrap_or_default()
    }

    fn series(&self) -> usize {
        let counters = self.counters.lock().unwrap().len() + self.gauges.lock().unwrap().len();
        counters + self.histograms.lock().unwrap().len()
    }
}

/// Runs `test` on one thread, where everything that the client counts goes to `seen`.
fn counted<F: Future<Output = ()>>(test: impl FnOnce(Arc<Seen>, World) -> F) {
    let seen = Arc::new(Seen::default());
    metrics::with_local_recorder(&*seen, || on_one_thread(test(Arc::clone(&seen), World::new())));
}

async fn client(world: &World, metrics: Metrics) -> (fencelock::memory::MemoryStore, Client) {
    let store = world.store.another_process();
    let options = Client::builder().io(Io::CurrentRuntime).observer(Arc::new(metrics));
    let client = options.connect_store(store.clone()).await.unwrap();
    (store, client)
}

#[test]
fn waits_holds_and_hand_overs_are_counted_by_class_and_the_numbers_of_now_come_back_to_zero() {
    counted(|seen, world| async move {
        let (_store, client) = client(&world, Metrics::new().class("orders/*").unwrap().label("app", "shop")).await;
        let lock = client.mutex("orders/1").unwrap();
        let first = lock.acquire().await.unwrap();
        let second = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await.unwrap() }
        });
        settle().await;
        let class = "app=shop class=orders/*";
        let now = |metric: &str| seen.gauge(&format!("{metric} {class}"));
        assert_eq!((now("holders"), now("waiters")), (1.0, 1.0));
        world.advance(secs(3)).await;
        first.release().await.unwrap();
        let second = second.await.unwrap();
        assert_eq!((now("holders"), now("waiters")), (1.0, 0.0));
        assert_eq!(seen.times(&format!("hold_seconds {class}")), [3.0]);
        assert_eq!(seen.times(&format!("wait_seconds {class}")), [0.0, 3.0]);
        assert_eq!(seen.times(&format!("hand_over_seconds {class}")).len(), 1);
        drop(second);
        settle().await;
        assert_eq!((now("holders"), now("waiters")), (0.0, 0.0));
        assert_eq!(seen.count(&format!("acquires_total {class} outcome=granted")), 2);
        // No waiter of this process followed: no hand-over.
        assert_eq!(seen.times(&format!("hand_over_seconds {class}")).len(), 1);
    });
}

#[test]
fn every_way_that_an_acquire_ends_is_an_outcome_and_leaves_no_waiter_behind() {
    counted(|seen, world| async move {
        let (_store, client) = client(&world, Metrics::new()).await;
        let lock = client.mutex("job").unwrap();
        let guard = lock.acquire().await.unwrap();
        assert!(lock.try_acquire().await.is_err());
        let late = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire_within(secs(2)).await.map(drop).unwrap_err() }
        });
        let dropped = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await.map(drop) }
        });
        settle().await;
        assert_eq!(seen.gauge("waiters class=other"), 2.0);
        world.advance(secs(2)).await;
        late.await.unwrap();
        dropped.abort();
        let _ = dropped.await;
        settle().await;
        let outcome = |outcome: &str| seen.count(&format!("acquires_total class=other outcome={outcome}"));
        assert_eq!(["granted", "busy", "timed_out", "abandoned"].map(outcome), [1; 4]);
        assert_eq!(seen.gauge("waiters class=other"), 0.0);
        assert_eq!(seen.times("wait_seconds class=other"), [0.0, 2.0, 2.0]);
        guard.release().await.unwrap();
    });
}

#[test]
fn errors_are_counted_by_their_kind() {
    counted(|seen, world| async move {
        let (store, client) = client(&world, Metrics::new()).await;
        let guard = client.mutex("job").unwrap().acquire().await.unwrap();
        world.advance(secs(3)).await;
        // Renewed once, after 2.5 s of 10 s less the margin.
        assert_eq!(seen.times("renewal_margin_seconds"), [6.5]);
        store.partition();
        world.advance(secs(10)).await;
        assert!(guard.check().is_err());
        assert_eq!(seen.count("lost_total class=other cause=unconfirmed"), 1);
        assert_eq!((seen.count("suspect_total"), seen.count("sessions_lost_total")), (1, 1));
        assert!(seen.count("store_errors_total kind=unreachable") > 0);
        assert_eq!(seen.gauge("holders class=other"), 0.0);
        store.heal();
        world.advance(secs(10)).await;
        assert_eq!(seen.count("sessions_opened_total"), 2);
        let broken = client.mutex("job").unwrap().acquire().await.unwrap();
        let holder = client.queue("job").await.unwrap().contenders.remove(0);
        assert!(client.break_grant("job", &holder, "test").await.unwrap());
        world.advance(ms(100)).await;
        assert!(broken.check().is_err());
        assert_eq!(seen.count("lost_total class=other cause=broken"), 1);
    });
}

#[test]
fn a_release_that_failed_until_its_session_was_over_is_a_loss_and_holds_nothing() {
    counted(|seen, world| async move {
        let (store, client) = client(&world, Metrics::new()).await;
        let guard = client.mutex("job").unwrap().acquire().await.unwrap();
        store.partition();
        drop(guard);
        world.advance(secs(20)).await;
        assert!(seen.count("clean_up_failures_total class=other") > 0);
        assert_eq!(seen.gauge("holders class=other"), 0.0);
        assert_eq!(seen.count("lost_total class=other cause=unconfirmed"), 1);
    });
}

#[test]
fn names_without_end_make_no_series_without_end() {
    counted(|seen, world| async move {
        let (_store, client) = client(&world, Metrics::new().raw_names(10)).await;
        for number in 0..2_000 {
            drop(client.mutex(format!("job/{number}")).unwrap().acquire().await.unwrap());
        }
        // Ten names and the overflow: an outcome, a wait, a hold and the holders of each; and the sessions.
        assert_eq!(seen.series(), 11 * 4 + 1);
        assert_eq!(seen.count("acquires_total class=overflow outcome=granted"), 1_990);
    });
}

#[test]
fn a_breaker_and_what_is_granted_outside_of_the_store_are_counted() {
    counted(|seen, world| async move {
        let store = world.store.another_process();
        let options = Client::builder().io(Io::CurrentRuntime).breaker(Breaker::default().failures(1));
        let options = options.observer(Arc::new(Metrics::new()));
        let client = options.connect_store(store.clone()).await.unwrap();
        store.partition();
        let lock = client.mutex("job").unwrap().on_outage(OnOutage::RunWithout);
        let acquiring = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire_within(secs(4)).await.unwrap() }
        });
        world.advance(secs(5)).await;
        let (first, second) = (acquiring.await.unwrap(), lock.acquire().await.unwrap());
        assert!(first.is_degraded() && second.is_degraded());
        assert_eq!(seen.gauge("breaker_state"), 2.0);
        assert_eq!(seen.count("degraded_total class=other to=nothing"), 2);
        assert_eq!(seen.gauge("holders class=other"), 2.0);
        let outcome = |outcome: &str| seen.count(&format!("acquires_total class=other outcome={outcome}"));
        assert_eq!(["unreachable", "breaker_open"].map(outcome), [1, 1]);
        let errors = seen.count("store_errors_total kind=unreachable");
        lock.acquire().await.unwrap().release().await.unwrap();
        assert_eq!(seen.count("store_errors_total kind=unreachable"), errors, "the store was not asked");
        assert_eq!(seen.gauge("holders class=other"), 2.0);
        drop((first, second));
        settle().await;
        assert_eq!(seen.gauge("holders class=other"), 0.0);
        store.heal();
        world.advance(secs(20)).await;
        lock.acquire().await.unwrap().release().await.unwrap();
        assert_eq!(seen.gauge("breaker_state"), 0.0);
    });
}
