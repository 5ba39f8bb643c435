//! The store `postgres:` through PgBouncer. A pooler that changes servers, and one without room: `tests/deep/postgres/pooled.rs`.

use fencelock::{ErrorKind, Guard};
use fencelock_testbed::postgres::{KIND, LIMITS, Pooler};
use tokio::task::JoinHandle;

use crate::lab::{
    LONG, acquire, acquiring, client, code, connection, database, migrated, refused, soon, until_queued, with,
};

/// A database of its own, by a pooler in this mode.
fn behind(mode: &str) -> (Pooler, String) {
    let (direct, _) = database();
    let server = KIND.shared().address();
    let pooler = Pooler::start(server, mode).unwrap();
    let url = direct.replace(&server.to_string(), &pooler.address().to_string());
    (pooler, url)
}

async fn granted(waiter: JoinHandle<Result<Guard, fencelock::Error>>) -> Guard {
    soon(waiter).await.unwrap().unwrap()
}

#[tokio::test]
async fn behind_a_pooler_waiters_are_served_in_order_and_nothing_outlives_a_transaction() {
    // All clients share a connection of the server: each finds the settings that the last one left there.
    let (_pooler, url) = behind("transaction\ndefault_pool_size = 1");
    let (one, other) = (client(&url, LONG).await, client(&url, LONG).await);
    let guard = acquire(&one, "job").await;
    assert!(one.capability().layout.contains("waiters look every 50 ms"), "{:?}", one.capability());
    let token = guard.token().unwrap().to_i64();
    let user = connection(&url).await;
    user.batch_execute(&format!("BEGIN; SELECT fencelock.hold('job', {token}); COMMIT")).await.unwrap();
    let first = acquiring(&other, "job");
    until_queued(&one, "job", 2).await;
    let second = acquiring(&one, "job");
    until_queued(&one, "job", 3).await;
    soon(guard.release()).await.unwrap();
    let first = granted(first).await;
    assert!(!second.is_finished() && first.token().unwrap().to_i64() > token);
    soon(first.release()).await.unwrap();
    soon(granted(second).await.release()).await.unwrap();
    let left = "SELECT (SELECT count(*) FROM pg_prepared_statements) || ' ' || (SELECT count(*) FROM pg_listening_channels()) || \
        current_setting('search_path') || current_setting('lock_timeout') || current_setting('enable_seqscan')";
    let left = user.simple_query(left).await.unwrap();
    let left = left.iter().find_map(|said| match said {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    assert_eq!(left, Some("0 0\"$user\", public0on"));
}

/// The same with settings that another client of the pooler left on a connection of the server.
#[tokio::test]
async fn behind_a_pooler_the_limits_of_a_database_do_not_reach_a_request() {
    let (_pooler, url) = behind("transaction\ndefault_pool_size = 1");
    let user = connection(&url).await;
    for (limit, value) in LIMITS {
        user.batch_execute(&format!("SET {limit} = '{value}'")).await.unwrap();
    }
    let (one, other) = (client(&url, LONG).await, client(&url, LONG).await);
    let guard = acquire(&one, "job").await;
    let waiter = acquiring(&other, "job");
    until_queued(&one, "job", 2).await;
    soon(guard.release()).await.unwrap();
    soon(granted(waiter).await.release()).await.unwrap();
}

#[tokio::test]
async fn a_pooler_in_session_mode_works_and_one_in_statement_mode_is_refused() {
    for mode in
        ["session", "session\nignore_startup_parameters = options", "transaction\nignore_startup_parameters = options"]
    {
        let (_pooler, url) = behind(mode);
        let (one, other) = (client(&url, LONG).await, client(&url, LONG).await);
        let guard = acquire(&one, "job").await;
        let waiter = acquiring(&other, "job");
        until_queued(&one, "job", 2).await;
        soon(guard.release()).await.unwrap();
        soon(granted(waiter).await.release()).await.unwrap();
    }
    let (_pooler, url) = behind("statement");
    let error = refused(&url).await;
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("pool_mode = transaction"), "{error}");
}

#[tokio::test]
async fn behind_a_pooler_lock_tables_work_and_advisory_locks_are_refused() {
    let (_pooler, url) = behind("transaction\ndefault_pool_size = 1");
    let table = with(&url, "layout=distributed_lock");
    migrated(async || fencelock::postgres::Schema::of(&table).unwrap().migrate(&[]).await).await;
    let guard = acquire(&client(&table, LONG).await, "job").await;
    let refusal = client(&table, LONG).await.mutex("job").unwrap().try_acquire().await.unwrap_err();
    assert!(refusal.is_contention(), "{refusal}");
    soon(guard.release()).await.unwrap();
    let advisory = refused(&with(&url, "layout=advisory&key=.net")).await;
    assert!(advisory.kind() == ErrorKind::Unsupported && advisory.to_string().contains("layout=fair"), "{advisory}");
}

#[tokio::test]
async fn behind_a_pooler_a_refused_request_ends_its_transaction() {
    let (_pooler, url) = behind("transaction\ndefault_pool_size = 1");
    let one = client(&url, LONG).await;
    drop(acquire(&one, "job").await);
    let user = connection(&url).await;
    assert_eq!(code(user.batch_execute("BEGIN; SELECT fencelock.hold('job', 1)").await), "FL001");
    user.batch_execute("ROLLBACK").await.unwrap();
    soon(acquire(&one, "job").await.release()).await.unwrap();
}

#[tokio::test]
async fn behind_a_pooler_a_request_that_fails_leaves_its_connection_usable() {
    let (_pooler, url) = behind("transaction\ndefault_pool_size = 2");
    let table = with(&url, "layout=distributed_lock");
    migrated(async || fencelock::postgres::Schema::of(&table).unwrap().migrate(&[]).await).await;
    let one = client(&table, LONG).await;
    soon(acquire(&one, "job").await.release()).await.unwrap();
    let user = connection(&url).await;
    user.batch_execute("BEGIN; LOCK TABLE distributed_lock IN ACCESS EXCLUSIVE MODE").await.unwrap();
    one.mutex("job").unwrap().try_acquire().await.unwrap_err();
    user.batch_execute("ROLLBACK").await.unwrap();
    soon(acquire(&one, "job").await.release()).await.unwrap();
}
