//! ShedLock's table, shared with the statements of its provider for MariaDB and MySQL with `usingDbTime`, in sessions that are not in
//! UTC.

use std::sync::atomic::{AtomicUsize, Ordering};

use fencelock::mysql::{Migration, Schema};
use fencelock::{ErrorKind, Loss};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::lab::{OFTEN, acquire, acquiring, client, connection, database, migrated, refused, soon, until, with};
use crate::refused::until_refused_by;

/// The table of ShedLock's documentation.
const TABLE: &str = "CREATE TABLE shedlock (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, \
     locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))";
const NOW: &str = "UTC_TIMESTAMP(3)";
const LONG: u64 = 60_000;

async fn with_table(ddl: &str) -> (String, String) {
    let url = database();
    connection(&url).await.query_drop(ddl).await.unwrap();
    let layout = with(&url, "layout=shedlock");
    (url, layout)
}

/// A provider's connection, in the zone of its program.
async fn provider(url: &str, zone: &str) -> Conn {
    let mut user = connection(url).await;
    user.query_drop(format!("SET time_zone = '{zone}'")).await.unwrap();
    user
}

async fn takes(user: &mut Conn, name: &str, by: &str) -> bool {
    let until = format!("TIMESTAMPADD(MICROSECOND, 60000000, {NOW})");
    let insert =
        format!("INSERT IGNORE INTO shedlock(name, lock_until, locked_at, locked_by) VALUES (?, {until}, {NOW}, ?)");
    user.exec_drop(insert, (name, by)).await.unwrap();
    if user.affected_rows() == 1 {
        return true;
    }
    let update = format!(
        "UPDATE shedlock SET lock_until = {until}, locked_at = {NOW}, locked_by = ? WHERE name = ? AND lock_until <= {NOW}"
    );
    user.exec_drop(update, (by, name)).await.unwrap();
    user.affected_rows() == 1
}

async fn releases(user: &mut Conn, name: &str, by: &str) -> bool {
    let update = format!(
        "UPDATE shedlock SET lock_until = IF({NOW} > locked_at, {NOW}, locked_at) WHERE name = ? AND locked_by = ?"
    );
    user.exec_drop(update, (name, by)).await.unwrap();
    user.affected_rows() == 1
}

async fn extends(user: &mut Conn, name: &str, by: &str) -> bool {
    let update = format!(
        "UPDATE shedlock SET lock_until = TIMESTAMPADD(MICROSECOND, 120000000, {NOW}) WHERE name = ? AND locked_by = ? AND lock_until > {NOW}"
    );
    user.exec_drop(update, (name, by)).await.unwrap();
    user.affected_rows() == 1
}

#[tokio::test]
async fn providers_of_shedlock_and_fencelocks_exclude_each_other() {
    // A `datetime` reads the same in every zone, a `timestamp` by the `zone` of the URL.
    for (ddl, zone, options) in [
        (TABLE.to_owned(), "+05:00", "zone=%2B05:00"),
        (TABLE.replace("TIMESTAMP(3) NOT", "DATETIME(3) NOT"), "-03:00", ""),
    ] {
        let (url, layout) = with_table(&ddl).await;
        let layout = if options.is_empty() { layout } else { with(&layout, options) };
        let inside = AtomicUsize::new(0);
        let works = || {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
            inside.fetch_sub(1, Ordering::SeqCst);
        };
        let theirs = async |by: &str| {
            let mut user = provider(&url, zone).await;
            for _ in 0..25 {
                until("the lock is free", async || takes(&mut user, "nightly", by).await).await;
                works();
                assert!(extends(&mut user, "nightly", by).await && releases(&mut user, "nightly", by).await);
            }
        };
        let ours = async || {
            let client = client(&layout, LONG).await;
            for _ in 0..25 {
                let guard = acquire(&client, "nightly").await;
                works();
                guard.release().await.unwrap();
            }
        };
        soon(async { tokio::join!(theirs("vm-1"), theirs("vm-2"), ours(), ours()) }).await;
    }
}

#[tokio::test]
async fn a_row_is_never_deleted_and_its_holder_is_shown_and_not_ended() {
    let (url, layout) = with_table(TABLE).await;
    let (mut user, client) = (provider(&url, "+00:00").await, client(&layout, LONG).await);
    assert!(takes(&mut user, "nightly", "vm-1").await);
    until_refused_by("vm-1", &client, "nightly").await;
    let waiting = acquiring(&client, "nightly");
    assert!(releases(&mut user, "nightly", "vm-1").await);
    let guard = soon(waiting).await.unwrap().unwrap();
    // A client of ShedLock, which is known by its host, ends no lock of another process of that host.
    assert!(!releases(&mut user, "nightly", "vm-1").await && !extends(&mut user, "nightly", "vm-1").await);
    assert!(!takes(&mut user, "nightly", "vm-1").await, "another client took our lock");
    assert_eq!(client.names("", None, 10).await.unwrap().len(), 1);
    guard.release().await.unwrap();
    assert_eq!(client.names("", None, 10).await.unwrap().len(), 0);
    let rows: Vec<String> = user.query("SELECT name FROM shedlock").await.unwrap();
    assert_eq!(rows, ["nightly"], "a provider that has met the name inserts no row any more");
    assert!(takes(&mut user, "nightly", "vm-1").await);
}

#[tokio::test]
async fn a_lock_is_kept_for_its_shortest_time_at_least() {
    let (url, layout) = with_table(TABLE).await;
    let mut user = provider(&url, "+00:00").await;
    let client = client(&with(&layout, "lock_at_least_for_ms=600000"), LONG).await;
    acquire(&client, "nightly").await.release().await.unwrap();
    let left: Option<bool> =
        user.query_first("SELECT lock_until = locked_at + INTERVAL 10 MINUTE FROM shedlock").await.unwrap();
    assert_eq!(left, Some(true));
    assert!(!takes(&mut user, "nightly", "vm-1").await);
    assert!(soon(client.mutex("nightly").unwrap().try_acquire()).await.unwrap_err().is_contention());
}

#[tokio::test]
async fn a_holder_whose_row_is_changed_is_notified() {
    let (url, layout) = with_table(TABLE).await;
    let (mut user, client) = (provider(&url, "+00:00").await, client(&with(&layout, OFTEN), LONG).await);
    let guard = acquire(&client, "nightly").await;
    user.query_drop("UPDATE shedlock SET locked_by = 'vm-1'").await.unwrap();
    assert_eq!(soon(guard.lost()).await, Loss::Removed);
}

#[tokio::test]
async fn migrate_makes_a_table_that_shedlock_uses_and_other_types_are_refused() {
    let url = database();
    let layout = with(&url, "layout=shedlock");
    assert_eq!(migrated(async || Schema::of(&layout).unwrap().migrate(&[]).await).await, Migration::Made);
    let mut user = provider(&url, "+05:00").await;
    assert!(takes(&mut user, "nightly", "vm-1").await && releases(&mut user, "nightly", "vm-1").await);
    acquire(&client(&layout, LONG).await, "nightly").await.release().await.unwrap();
    let (_, layout) = with_table(
        &TABLE.replace("locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)", "locked_at BIGINT NOT NULL"),
    )
    .await;
    let error = refused(&layout).await;
    assert!(error.kind() == ErrorKind::Layout && error.to_string().contains("locked_at"), "{error}");
}
