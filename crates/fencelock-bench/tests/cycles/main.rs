//! A million contended cycles over one name, and a million over 64, in each database: the server ends no request of ours in favour of
//! another one, and none that waited in vain for a row. `cargo xtask deep cycles` runs them in a release build; `FENCELOCK_CYCLES` is another
//! number of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use fencelock::Client;
use fencelock_testbed::{mysql, postgres};

const CYCLES: u64 = 1_000_000;
const CLIENTS: usize = 16;
/// The tasks of each client.
const TASKS: usize = 4;

/// Acquires and releases locks of random names until all cycles are done. An error of the server ends the test.
async fn cycle(client: Client, count: u64, next: Arc<AtomicU64>, holders: Arc<Vec<AtomicI64>>) {
    loop {
        let number = next.fetch_add(1, Ordering::SeqCst);
        if number >= count {
            return;
        }
        let which = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % holders.len() as u64;
        let holders = &holders[usize::try_from(which).unwrap()];
        let guard = client.mutex(format!("job/{which}")).unwrap().acquire().await.unwrap();
        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two holders");
        tokio::task::yield_now().await;
        holders.fetch_sub(1, Ordering::SeqCst);
        guard.release().await.unwrap();
    }
}

async fn cycles(url: &str, names: usize) {
    let (next, holders) = (Arc::default(), Arc::new((0..names).map(|_| AtomicI64::new(0)).collect::<Vec<_>>()));
    let count = std::env::var("FENCELOCK_CYCLES").map_or(CYCLES, |count| count.parse().unwrap());
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let client = Client::connect(url).await.unwrap();
        for _ in 0..TASKS {
            tasks.spawn(cycle(client.clone(), count, Arc::clone(&next), Arc::clone(&holders)));
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    println!("{count} cycles over {names} names in {:.0} s", start.elapsed().as_secs_f64());
}

/// The requests that the server ended since its start: deadlocks (1213) and waits that timed out (1205).
async fn in_mysql(names: usize) {
    // Nothing here is about a loss of power, and the disk would take most of the time.
    let settings = mysql::Settings::default().with("--innodb-flush-log-at-trx-commit=0");
    let server = mysql::Server::start(settings).unwrap();
    cycles(&format!("{}?ttl_ms=60000", server.url()), names).await;
    for error in ["lock_deadlocks", "lock_timeouts"] {
        let count = format!("SELECT count FROM information_schema.innodb_metrics WHERE name = '{error}'");
        assert_eq!(server.sql(&count).unwrap().trim(), "0", "{error}");
    }
}

/// The requests that the server ended since its start: deadlocks (40P01). An error of another kind ends a cycle.
async fn in_postgres(names: usize) {
    let server = postgres::Server::start(postgres::Settings::default().with("fsync = off")).unwrap();
    cycles(&format!("{}?ttl_ms=60000", server.url()), names).await;
    let count = "SELECT coalesce(sum(deadlocks), 0)::bigint FROM pg_stat_database";
    assert_eq!(server.sql("postgres", count).unwrap().trim(), "0", "deadlocks");
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_ends_no_request_in_contended_cycles_over_one_name() {
    in_mysql(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_ends_no_request_in_contended_cycles_over_64_names() {
    in_mysql(64).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_ends_no_request_in_contended_cycles_over_one_name() {
    in_postgres(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_ends_no_request_in_contended_cycles_over_64_names() {
    in_postgres(64).await;
}
