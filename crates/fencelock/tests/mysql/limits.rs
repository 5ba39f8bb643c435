//! Servers that let requests wait, end them, or give neither connections nor named locks.

use fencelock::{Client, ErrorKind};
use fencelock_testbed::mysql::{Server, Settings};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::lab::{
    STATEMENTS, acquire, acquiring, client, connection, database, end_requests, refused_because, soon, transactions,
    until, until_queued, with,
};

#[tokio::test]
async fn requests_that_are_ended_at_the_server_leave_no_transaction_open_and_cost_no_lock() {
    end_requests(2, 1, 40).await;
}

/// `ALTER TABLE` waits for the transactions that use the table, and later statements wait for `ALTER TABLE`.
#[tokio::test]
async fn a_waiting_alteration_is_reported_and_costs_no_lock() {
    let url = database();
    let (one, name) = (client(&with(&url, "request_deadline_ms=9000"), 60_000).await, "job");
    let held = acquire(&one, "held").await;
    let (mut user, mut admin) = (connection(&url).await, connection(&url).await);
    user.query_drop("BEGIN").await.unwrap();
    user.query_drop("SELECT COUNT(*) FROM fencelock_place").await.unwrap();
    let altered = tokio::spawn(async move { admin.query_drop("ALTER TABLE fencelock_place COMMENT = 'mine'").await });
    let waits = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND state LIKE '%metadata lock%' AND info LIKE 'ALTER%'";
    until("the alteration waits", async || user.query_first::<u64, _>(waits).await.unwrap() == Some(1)).await;
    let error = one.mutex(name).unwrap().try_acquire().await.unwrap_err();
    assert!(error.is_retryable() && error.kind() == ErrorKind::Busy, "{error}");
    held.check().unwrap();
    user.query_drop("COMMIT").await.unwrap();
    soon(altered).await.unwrap().unwrap();
    soon(held.release()).await.unwrap();
    until("it is free again", async || one.mutex(name).unwrap().try_acquire().await.is_ok()).await;
}

/// The client waits by its own ttl: 7 s with that of a minute.
#[tokio::test]
async fn a_row_that_is_kept_for_longer_than_the_servers_limits_is_still_waited_for() {
    let limits = ["--innodb-lock-wait-timeout=1", "--lock-wait-timeout=1"];
    let settings = limits.iter().chain(&STATEMENTS).fold(Settings::default(), |settings, one| settings.with(one));
    let server = Server::start(settings).unwrap();
    let one = client(&server.url(), 60_000).await;
    drop(acquire(&one, "job").await);
    until_queued(&one, "job", 0).await;
    let mut user = connection(&server.url()).await;
    let mut admin = connection(&format!("mysql://root@{}/fencelock", server.address())).await;
    user.query_drop("BEGIN").await.unwrap();
    user.query_drop("SELECT b FROM fencelock_bucket FOR UPDATE").await.unwrap();
    let waiting = acquiring(&one, "job");
    let long = "trx_state = 'LOCK WAIT' AND trx_wait_started < NOW() - INTERVAL 2 SECOND";
    until("it waited for longer", async || transactions(&mut admin, long).await == 1).await;
    assert!(!waiting.is_finished());
    user.query_drop("ROLLBACK").await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// A stranger has the named lock that would wake the waiter. The waiter polls instead.
#[tokio::test]
async fn a_waiter_that_is_refused_its_named_lock_looks_and_gets_the_lock() {
    let url = database();
    let (one, other) = (client(&url, 60_000).await, client(&url, 60_000).await);
    let guard = acquire(&one, "job").await;
    other.mutex("another").unwrap().acquire().await.unwrap().release().await.unwrap();
    let mut stranger = connection(&url).await;
    let bells: Vec<String> = stranger.query("SELECT CAST(bell AS CHAR) FROM fencelock_session").await.unwrap();
    assert_eq!(bells.len(), 2);
    for bell in &bells {
        stranger.exec_drop("SELECT GET_LOCK(?, 0)", (bell,)).await.unwrap();
    }
    let waiting = acquiring(&other, "job");
    until_queued(&one, "job", 2).await;
    guard.release().await.unwrap();
    let guard = soon(waiting).await.unwrap().unwrap();
    // A release ends queries of the bell's owner: the stranger's connection survives that.
    let has: Option<u64> = stranger.exec_first("SELECT IS_USED_LOCK(?) = CONNECTION_ID()", (&bells[0],)).await.unwrap();
    assert_eq!(has, Some(1));
    drop(stranger);
    let waiting = acquiring(&one, "job");
    until_queued(&one, "job", 2).await;
    guard.release().await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// The system probes a silent connection after whole seconds, and a request is given up sooner.
#[tokio::test]
async fn a_client_of_a_short_ttl_connects() {
    let url = database();
    drop(acquire(&client(&url, 60_000).await, "job").await);
    let one = client(&url, 2_500).await;
    until("it has the lock", async || one.mutex("job").unwrap().try_acquire().await.is_ok()).await;
}

#[tokio::test]
async fn tables_that_another_client_seems_to_make_are_waited_for_and_reported() {
    let url = database();
    let mut stranger = connection(&url).await;
    let lock = "SELECT GET_LOCK(CONCAT('fencelock make ', LEFT(SHA2(DATABASE(), 256), 32)), 0)";
    assert_eq!(stranger.query_first::<u8, _>(lock).await.unwrap(), Some(1));
    let error = Client::connect(&format!("{url}?ttl_ms=3000")).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unreachable && error.is_retryable(), "{error}");
    drop(stranger);
    acquire(&client(&url, 60_000).await, "job").await.release().await.unwrap();
}

/// A holder keeps its lock, and releases it to a waiter; a client without a connection gets the reason.
#[tokio::test]
async fn a_server_without_a_connection_to_spare_is_reported_as_that_and_costs_no_lock() {
    let server = Server::start(Settings::default().with("--max-connections=8")).unwrap();
    let one = client(&server.url(), 60_000).await;
    let other = client(&server.url(), 60_000).await;
    let guard = acquire(&one, "job").await;
    acquire(&other, "another").await.release().await.unwrap();
    let (mut strangers, mut clients): (Vec<Conn>, Vec<Client>) = (Vec::new(), Vec::new());
    let opts = mysql_async::Opts::from_url(&format!("{}?prefer_socket=false", server.url())).unwrap();
    // The server counts a connection for a while after its end, so a client may still be accepted when strangers are refused.
    let error = loop {
        while let Ok(stranger) = Conn::new(opts.clone()).await {
            strangers.push(stranger);
        }
        match Client::connect(&format!("{}?ttl_ms=60000", server.url())).await {
            Ok(client) => clients.push(client),
            Err(error) if error.to_string().contains("max_connections") => break error,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    };
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    // The waiter has no connection to listen on, and polls.
    let waiting = acquiring(&other, "job");
    until_queued(&one, "job", 2).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    drop((strangers, clients));
    // The server notices that they are gone when it may.
    client(&server.url(), 6_000).await;
}

#[tokio::test]
async fn a_server_without_a_prepared_statement_to_spare_is_reported_as_that_and_another_try_helps() {
    let server = Server::start(Settings::default()).unwrap();
    let guard = acquire(&client(&server.url(), 60_000).await, "job").await;
    server.sql("SET GLOBAL max_prepared_stmt_count = 0").unwrap();
    let error = refused_because(&format!("{}?ttl_ms=6000", server.url()), "max_prepared_stmt_count").await;
    assert!(error.kind() == ErrorKind::Exhausted && error.is_retryable(), "{error}");
    server.sql("SET GLOBAL max_prepared_stmt_count = 16382").unwrap();
    guard.release().await.unwrap();
    acquire(&client(&server.url(), 6_000).await, "job").await.release().await.unwrap();
}
