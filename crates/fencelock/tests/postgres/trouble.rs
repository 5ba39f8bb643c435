//! A server in trouble: its data that is kept, and the errors that clients get. Servers that end:
//! `tests/deep/postgres/trouble.rs`.

use fencelock::ErrorKind;
use fencelock::postgres::{Migration, Schema};
use fencelock_testbed::postgres::Settings;

use crate::lab::{
    acquire, acquiring, client, connection, database, migrated, refused, refused_because, server, soon, until,
    until_queued, with,
};

#[tokio::test]
async fn tables_that_are_unlogged_in_part_are_refused() {
    let (url, _) = database();
    // The table is refused even if nothing else has changed since the last session.
    acquire(&client(&url, 60_000).await, "job").await.release().await.unwrap();
    connection(&url).await.batch_execute("ALTER TABLE fencelock.place SET UNLOGGED").await.unwrap();
    let error = refused(&url).await;
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("logged in part"), "{error}");
}

#[tokio::test]
async fn a_table_with_a_column_of_another_release_is_refused_as_another_layout() {
    let (url, _) = database();
    let one = client(&url, 60_000).await;
    acquire(&one, "job").await.release().await.unwrap();
    // A session that closes meanwhile would deadlock with the deletion and the alteration.
    one.close().await.unwrap();
    let altered = "ALTER TABLE fencelock.session ADD COLUMN other text NOT NULL";
    connection(&url).await.batch_execute(&format!("DELETE FROM fencelock.session; {altered}")).await.unwrap();
    let error = refused(&url).await;
    assert!(error.kind() == ErrorKind::Layout && error.to_string().contains("23502"), "{error}");
}

#[tokio::test]
async fn logged_tables_do_not_become_unlogged_ones_unasked() {
    let (url, _) = database();
    let schema = Schema::of(&url).unwrap();
    migrated(async || schema.migrate(&[]).await).await;
    let error = schema.unlogged().migrate(&[]).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("SET UNLOGGED"), "{error}");
    connection(&url)
        .await
        .batch_execute("ALTER TABLE fencelock.bucket SET UNLOGGED; ALTER TABLE fencelock.place SET UNLOGGED; ALTER TABLE fencelock.session SET UNLOGGED")
        .await
        .unwrap();
    assert_eq!(migrated(async || Schema::of(&url).unwrap().unlogged().migrate(&[]).await).await, Migration::UpToDate);
}

#[tokio::test]
async fn a_connection_that_is_ended_at_the_server_costs_no_lock_and_no_wake_up() {
    let own = server(Settings::default());
    let (one, other) = (client(&own.url(), 60_000).await, client(&own.url(), 60_000).await);
    for _ in 0..5 {
        let guard = acquire(&one, "job").await;
        let waiting = acquiring(&other, "job");
        until_queued(&one, "job", 2).await;
        own.sql(
            "postgres",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'fencelock'",
        )
        .unwrap();
        guard.check().unwrap();
        soon(guard.release()).await.unwrap();
        soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_with_no_connection_left_says_so_and_one_that_has_one_again_gives_the_lock() {
    let own = server(Settings::default().with("max_connections = 8").with("superuser_reserved_connections = 3"));
    let first = client(&own.url(), 60_000).await;
    let (url, mut taken) = (own.url(), Vec::new());
    // The server counts a connection for a while after its end.
    until("four more are connected", async || {
        if let Ok((user, connection)) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await {
            tokio::spawn(connection);
            taken.push(user);
        }
        taken.len() == 4
    })
    .await;
    let error = refused_because(&with(&own.url(), "ttl_ms=60000"), "max_connections").await;
    assert!(error.kind() == ErrorKind::Exhausted && error.is_retryable(), "{error}");
    acquire(&first, "job").await.release().await.unwrap();
    drop(taken);
    let second = client(&own.url(), 60_000).await;
    acquire(&second, "job").await.release().await.unwrap();
}

#[tokio::test]
async fn a_listener_that_lost_its_message_looks() {
    let own = server(Settings::default());
    let (one, other) = (client(&own.url(), 60_000).await, client(&own.url(), 60_000).await);
    let guard = acquire(&one, "job").await;
    let waiting = acquiring(&other, "job");
    until_queued(&one, "job", 2).await;
    // Grants without a notification, as when the releasing client died between the two.
    let user = connection(&own.url()).await;
    user.batch_execute(
        "BEGIN; DELETE FROM fencelock.place WHERE name = 'job' AND granted; UPDATE fencelock.place SET granted = true WHERE name = 'job'; COMMIT",
    )
    .await
    .unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    std::mem::forget(guard);
}

/// A departure grants no more than a thousand at once. The readers behind them poll.
#[tokio::test]
async fn a_crowd_of_readers_is_let_in_when_the_writer_leaves() {
    let (url, _) = database();
    let one = client(&url, 60_000).await;
    let page = one.rwlock("page").unwrap();
    let writer = page.write().await.unwrap();
    let reading = (0..1200).map(|_| {
        let page = page.clone();
        tokio::spawn(async move { page.read().await })
    });
    let reading: Vec<_> = reading.collect();
    until_queued(&one, "page", 1201).await;
    writer.release().await.unwrap();
    let read = soon(futures_util::future::join_all(reading)).await;
    assert!(read.into_iter().all(|guard| guard.unwrap().is_ok()));
}

/// A client that clears up may stand still between its look at the clock and its look at the sessions.
#[tokio::test]
async fn a_session_that_is_renewed_during_a_clean_up_lives_as_long_as_promised() {
    let (url, _) = database();
    client(&url, 60_000).await;
    let (foreign, sweeper) = (connection(&url).await, connection(&url).await);
    foreign.batch_execute("SELECT fencelock.open(7, 'fencelock_0000000000000007', 60000, '', 0, 7)").await.unwrap();
    foreign.batch_execute("BEGIN; LOCK TABLE fencelock.session IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let sweeping = tokio::spawn(async move { sweeper.batch_execute("SELECT fencelock.clear_up(0)").await });
    let waits = "SELECT FROM pg_locks WHERE NOT granted AND relation = 'fencelock.session'::regclass";
    until("it waits", async || !foreign.query(waits, &[]).await.unwrap().is_empty()).await;
    foreign.batch_execute("SELECT fencelock.renew(7, 60000, '{}')").await.unwrap();
    let expires = "SELECT expires::text FROM fencelock.session WHERE id = 7";
    let told: String = foreign.query_one(expires, &[]).await.unwrap().get(0);
    foreign.batch_execute("COMMIT").await.unwrap();
    soon(sweeping).await.unwrap().unwrap();
    assert_eq!(foreign.query_one(expires, &[]).await.unwrap().get::<_, String>(0), told);
}

/// Rows of sessions that were renewed stay for as long as any transaction is open anywhere, and every renewal is followed by a sweep.
#[tokio::test]
async fn a_sweep_does_not_walk_over_all_sessions_but_once_a_round() {
    let (url, _) = database();
    let one = client(&url, 60_000).await;
    let _guard = acquire(&one, "job").await;
    let user = connection(&url).await;
    user.batch_execute("SET enable_seqscan = off; SET enable_bitmapscan = off").await.unwrap();
    let walked = "SELECT coalesce(sum(seq_scan), 0)::bigint FROM pg_stat_xact_user_tables WHERE relid = 'fencelock.session'::regclass";
    // Counts of earlier transactions of this connection may still be included.
    let so_far = async || user.query_one(walked, &[]).await.unwrap().get::<_, i64>(0);
    for (from, times) in [(0, 2), (256, 0), (1024, 0), (3840, 0)] {
        user.batch_execute("BEGIN").await.unwrap();
        let before = so_far().await;
        user.batch_execute(&format!("SELECT fencelock.clear_up({from})")).await.unwrap();
        assert_eq!(so_far().await - before, times, "{from}");
        user.batch_execute("COMMIT").await.unwrap();
    }
}

/// By default a system takes two hours to find out that a host is gone. A request that was cut short by that keeps its bucket locked.
#[tokio::test]
async fn the_server_soon_asks_after_a_host_that_is_silent() {
    let own = server(Settings::default());
    let _one = client(&own.url(), 4000).await;
    let port = format!(":{:04X}", own.address().port());
    until("the server's ends of connections ask within ten seconds", async || {
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let ends = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut open = ends.filter(|fields| fields[1].ends_with(&port) && fields[3] == "01").peekable();
        // The timer, 2 for that of the question, and in how many hundredths of a second it ends.
        let asks = |fields: Vec<&str>| match fields[5].split_once(':') {
            Some(("02", when)) => u64::from_str_radix(when, 16).is_ok_and(|when| when < 1000),
            _ => false,
        };
        open.peek().is_some() && open.all(asks)
    })
    .await;
}
