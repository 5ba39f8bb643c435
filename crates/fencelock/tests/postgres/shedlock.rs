//! ShedLock's table, shared with the statements of its provider for PostgreSQL with `usingDbTime`, in sessions that are not in
//! UTC.

use std::sync::atomic::{AtomicUsize, Ordering};

use fencelock::postgres::{Migration, Schema};
use fencelock::{ErrorKind, Loss};

use crate::lab::{LONG, OFTEN, acquire, acquiring, client, connection, database, migrated, refused, soon, until, with};
use crate::refused::until_refused_by;

/// The table of ShedLock's documentation.
const TABLE: &str = "CREATE TABLE shedlock (name varchar(64) NOT NULL, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL, PRIMARY KEY (name))";
const NOW: &str = "timezone('utc', CURRENT_TIMESTAMP)";

async fn with_table(ddl: &str) -> (String, String) {
    let (url, _) = database();
    connection(&url).await.batch_execute(ddl).await.unwrap();
    let layout = with(&url, "layout=shedlock");
    (url, layout)
}

/// A provider's connection, in the zone of its JVM.
async fn provider(url: &str) -> tokio_postgres::Client {
    let user = connection(url).await;
    user.batch_execute("SET TIME ZONE 'America/New_York'").await.unwrap();
    user
}

async fn takes(user: &tokio_postgres::Client, name: &str, by: &str) -> bool {
    let sql = format!(
        "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES ($1, {NOW} + interval '1 minute', {NOW}, $2) \
         ON CONFLICT (name) DO UPDATE SET lock_until = {NOW} + interval '1 minute', locked_at = {NOW}, locked_by = $2 \
         WHERE shedlock.name = $1 AND shedlock.lock_until <= {NOW}"
    );
    user.execute(&sql, &[&name, &by]).await.unwrap() == 1
}

async fn releases(user: &tokio_postgres::Client, name: &str, by: &str) -> bool {
    let sql = format!("UPDATE shedlock SET lock_until = {NOW} WHERE name = $1 AND locked_by = $2");
    user.execute(&sql, &[&name, &by]).await.unwrap() == 1
}

async fn extends(user: &tokio_postgres::Client, name: &str, by: &str) -> bool {
    let sql = format!(
        "UPDATE shedlock SET lock_until = {NOW} + interval '2 minutes' WHERE name = $1 AND locked_by = $2 AND lock_until > {NOW}"
    );
    user.execute(&sql, &[&name, &by]).await.unwrap() == 1
}

#[tokio::test]
async fn providers_of_shedlock_and_fencelocks_exclude_each_other_in_every_zone() {
    let (url, layout) = with_table(TABLE).await;
    let inside = AtomicUsize::new(0);
    let works = || {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
        inside.fetch_sub(1, Ordering::SeqCst);
    };
    let theirs = async |by: &str| {
        let user = provider(&url).await;
        for _ in 0..25 {
            until("the lock is free", async || takes(&user, "nightly", by).await).await;
            works();
            assert!(extends(&user, "nightly", by).await && releases(&user, "nightly", by).await);
        }
    };
    let ours = async || {
        let client = client(&layout, 60_000).await;
        for _ in 0..25 {
            let guard = acquire(&client, "nightly").await;
            works();
            guard.release().await.unwrap();
        }
    };
    soon(async { tokio::join!(theirs("vm-1"), theirs("vm-2"), ours(), ours()) }).await;
}

#[tokio::test]
async fn a_row_is_never_deleted_and_its_holder_is_shown_and_not_ended() {
    let (url, layout) = with_table(TABLE).await;
    let (user, client) = (provider(&url).await, client(&layout, LONG).await);
    assert!(takes(&user, "nightly", "vm-1").await);
    until_refused_by("vm-1", &client, "nightly").await;
    let waiting = acquiring(&client, "nightly");
    assert!(releases(&user, "nightly", "vm-1").await);
    let guard = soon(waiting).await.unwrap().unwrap();
    // A client of ShedLock, which is known by its host, ends no lock of another process of that host.
    assert!(!releases(&user, "nightly", "vm-1").await && !extends(&user, "nightly", "vm-1").await);
    assert!(!takes(&user, "nightly", "vm-1").await, "another client took our lock");
    assert_eq!(client.names("", None, 10).await.unwrap().len(), 1);
    guard.release().await.unwrap();
    assert_eq!(client.names("", None, 10).await.unwrap().len(), 0);
    let rows: i64 = user.query_one("SELECT count(*) FROM shedlock", &[]).await.unwrap().get(0);
    assert_eq!(rows, 1, "a provider that has met the name inserts no row any more");
    assert!(takes(&user, "nightly", "vm-1").await);
}

#[tokio::test]
async fn a_lock_is_kept_for_its_shortest_time_at_least() {
    let (url, layout) = with_table(TABLE).await;
    let user = provider(&url).await;
    let client = client(&with(&layout, "lock_at_least_for_ms=600000"), LONG).await;
    acquire(&client, "nightly").await.release().await.unwrap();
    let left = "SELECT lock_until - locked_at = interval '10 minutes' FROM shedlock";
    assert!(user.query_one(left, &[]).await.unwrap().get::<_, bool>(0));
    assert!(!takes(&user, "nightly", "vm-1").await);
    assert!(soon(client.mutex("nightly").unwrap().try_acquire()).await.unwrap_err().is_contention());
}

#[tokio::test]
async fn a_holder_whose_row_is_changed_is_notified() {
    let (url, layout) = with_table(TABLE).await;
    let (user, client) = (provider(&url).await, client(&with(&layout, OFTEN), LONG).await);
    let guard = acquire(&client, "nightly").await;
    user.batch_execute("UPDATE shedlock SET locked_by = 'vm-1'").await.unwrap();
    assert_eq!(soon(guard.lost()).await, Loss::Removed);
}

#[tokio::test]
async fn a_table_whose_times_would_shift_is_refused_and_migrate_makes_the_one_of_shedlock() {
    for (changed, told) in [
        (TABLE.replace("lock_until timestamp", "lock_until timestamptz"), "each session reads another time"),
        (TABLE.replace("locked_at timestamp", "locked_at timestamptz"), "each session reads another time"),
        (TABLE.replace(", PRIMARY KEY (name)", ""), "ADD UNIQUE"),
    ] {
        let (_, layout) = with_table(&changed).await;
        let error = refused(&layout).await;
        assert!(error.kind() == ErrorKind::Layout && error.to_string().contains(told), "{changed}: {error}");
    }
    let (url, _) = database();
    let layout = with(&url, "layout=shedlock");
    assert_eq!(migrated(async || Schema::of(&layout).unwrap().migrate(&[]).await).await, Migration::Made);
    assert!(takes(&provider(&url).await, "nightly", "vm-1").await);
}
