//! Cycles of many clients at once, also while their server is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fencelock::Client;
use fencelock_testbed::mysql::{Server, Settings};
use fencelock_testbed::within;

use super::lab::{client, database};

/// The first one makes the tables, which takes a loaded machine longer than a client waits.
async fn clients(url: &str, count: usize) -> Vec<Client> {
    futures_util::future::join_all((0..count).map(|_| client(url, 60_000))).await
}

/// Cycles of all clients, each by four tasks, over `names` names. With readers, three of the four tasks read.
async fn cycles(url: &str, names: u64, count: u64, with_readers: bool) {
    let inside: Arc<Vec<AtomicI64>> = Arc::new((0..names).map(|_| AtomicI64::new(0)).collect());
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for client in clients(url, 8).await.into_iter().flat_map(|client| vec![client; 4]) {
        let (inside, next) = (Arc::clone(&inside), Arc::clone(&next));
        tasks.push(tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::SeqCst);
                if number >= count {
                    return;
                }
                let which = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let here = &inside[(which % names) as usize];
                let lock = client.rwlock(format!("job/{}", which % names)).unwrap();
                if with_readers && number % 4 > 0 {
                    let guard = lock.read().await.unwrap();
                    assert!(here.fetch_add(1, Ordering::SeqCst) >= 0, "a reader together with a writer");
                    tokio::task::yield_now().await;
                    here.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                } else {
                    let guard = lock.write().await.unwrap();
                    assert_eq!(here.swap(-1000, Ordering::SeqCst), 0, "two holders");
                    tokio::task::yield_now().await;
                    here.store(0, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// No error of the server reaches a caller, and no waiter depends on a look: hand-overs by looks alone would take half an
/// hour.
#[tokio::test(flavor = "multi_thread")]
async fn contended_cycles_over_one_name_and_many_end_without_an_error_and_without_a_lost_ring() {
    for (names, with_readers, count) in [(1, true, 400), (1, false, 400), (64, false, 3000), (4, true, 800)] {
        let start = Instant::now();
        cycles(&database(), names, count, with_readers).await;
        within(
            Duration::from_secs(120),
            start.elapsed(),
            &format!("{count} cycles over {names}, readers {with_readers}"),
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_under_load_costs_no_lock_and_admits_no_client_twice() {
    let server = Arc::new(Server::start(Settings::default()).unwrap());
    let url = server.url();
    let held = Arc::new(AtomicI64::new(0));
    let done = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for client in clients(&url, 8).await {
        let (held, done) = (Arc::clone(&held), Arc::clone(&done));
        tasks.push(tokio::spawn(async move {
            while done.load(Ordering::SeqCst) < 600 {
                let Ok(guard) = client.mutex("job").unwrap().acquire().await else { continue };
                assert_eq!(held.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                tokio::task::yield_now().await;
                held.fetch_sub(1, Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
                // A failed release is repeated in the background.
                drop(guard);
            }
        }));
    }
    for at in [100, 200, 300, 400] {
        while done.load(Ordering::SeqCst) < at {
            tokio::task::yield_now().await;
        }
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || {
            server.kill();
            server.heal().unwrap();
        })
        .await
        .unwrap();
    }
    for task in tasks {
        task.await.unwrap();
    }
}
