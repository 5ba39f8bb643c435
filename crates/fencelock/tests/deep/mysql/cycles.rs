//! Very many contended cycles, over one name and over 64: the server may undo requests in favour of others, and nobody is told.
//!
//! `FENCELOCK_MYSQL_CYCLES=1000000` runs a million of each; the nightly row does fewer.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use fencelock::Client;
use fencelock_testbed::mysql::{Server, Settings};

/// How many cycles there are over one name, and how many over 64, where nothing else is said.
const CYCLES: u64 = 20_000;
const CLIENTS: usize = 16;
/// Of each client.
const TASKS: usize = 4;

fn wanted() -> u64 {
    let said = std::env::var("FENCELOCK_MYSQL_CYCLES").ok();
    said.map_or(CYCLES, |said| said.parse().expect("FENCELOCK_MYSQL_CYCLES is a number"))
}

/// How many requests the server ended with this error since its start: `lock_deadlocks` (1213) or `lock_timeouts` (1205).
fn ended(server: &Server, error: &str) -> u64 {
    let counted =
        server.sql(&format!("SELECT count FROM information_schema.innodb_metrics WHERE name = '{error}'")).unwrap();
    counted.trim().parse().expect("the server counts them")
}

async fn cycle(client: Client, names: u64, next: Arc<AtomicU64>, inside: Arc<Vec<AtomicI64>>) {
    let count = wanted();
    loop {
        let number = next.fetch_add(1, Ordering::SeqCst);
        if number >= count {
            return;
        }
        let which = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % names;
        let here = &inside[usize::try_from(which).unwrap()];
        // An error of the server, such as a deadlock, would be one of these.
        let guard = client.mutex(format!("job/{which}")).unwrap().acquire().await.unwrap();
        assert_eq!(here.fetch_add(1, Ordering::SeqCst), 0, "two holders");
        tokio::task::yield_now().await;
        here.fetch_sub(1, Ordering::SeqCst);
        guard.release().await.unwrap();
    }
}

async fn run(names: u64) {
    // Nothing here is about the power going, and the disk would be most of it.
    let settings = Settings::default().with("--innodb-flush-log-at-trx-commit=0");
    let server = Server::start(settings).unwrap();
    let (next, inside) = (Arc::default(), Arc::new((0..names).map(|_| AtomicI64::new(0)).collect::<Vec<_>>()));
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let client = Client::connect(&format!("{}?ttl_ms=60000", server.url())).await.unwrap();
        for _ in 0..TASKS {
            tasks.spawn(cycle(client.clone(), names, Arc::clone(&next), Arc::clone(&inside)));
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let took = start.elapsed().as_secs_f64();
    let count = wanted();
    println!(
        "{count} cycles over {names} names in {took:.0} s: {} requests that the server undid (1213), {} that waited in vain (1205), none told",
        ended(&server, "lock_deadlocks"),
        ended(&server, "lock_timeouts"),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn contended_cycles_over_one_name_tell_nobody_of_a_deadlock() {
    run(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contended_cycles_over_64_names_tell_nobody_of_a_deadlock() {
    run(64).await;
}
