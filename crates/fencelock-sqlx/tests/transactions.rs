//! Transactions of sqlx on a real server.

use std::time::Duration;

use fencelock::{Client, Guard};
use fencelock_sqlx::{Error, Hold, fence, in_transaction};
use fencelock_testbed::PATIENCE;
use fencelock_testbed::postgres::KIND;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection, PgPool};

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it has to come")
}

/// A database of this test's own on the server that all share.
fn database() -> String {
    let shared = KIND.shared();
    format!("postgres://fencelock:secret@{}/{}", shared.address(), shared.namespace().trim_start_matches('/'))
}

async fn client(url: &str, options: &str) -> Client {
    soon(Client::connect(&format!("{url}?ttl_ms=60000{options}"))).await.unwrap()
}

async fn acquire(client: &Client, name: &str) -> Guard {
    soon(client.mutex(name).unwrap().acquire()).await.unwrap()
}

async fn pool(url: &str) -> PgPool {
    PgPoolOptions::new().max_connections(2).acquire_timeout(PATIENCE).connect(url).await.unwrap()
}

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

#[tokio::test]
async fn a_grant_is_held_until_the_transaction_ends() {
    let url = database();
    let (one, pool) = (client(&url, "").await, pool(&url).await);
    for level in LEVELS {
        let guard = acquire(&one, "job").await;
        let mut transaction =
            pool.begin_with(sqlx::AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {level}"))).await.unwrap();
        Hold::of(&guard).unwrap().run(&mut transaction).await.unwrap();
        let releasing = tokio::spawn(guard.release());
        // Twenty other cycles prove that the release had enough time.
        for _ in 0..20 {
            acquire(&one, "another").await.release().await.unwrap();
        }
        assert!(!releasing.is_finished(), "{level}");
        transaction.commit().await.unwrap();
        soon(releasing).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn an_ended_grant_is_refused_by_name() {
    let url = database();
    let (one, pool) = (client(&url, "").await, pool(&url).await);
    for level in LEVELS {
        let guard = acquire(&one, "job").await;
        let token = guard.token().unwrap();
        guard.release().await.unwrap();
        let mut transaction =
            pool.begin_with(sqlx::AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {level}"))).await.unwrap();
        let refused = Hold::new("job", token).run(&mut transaction).await.unwrap_err();
        assert!(matches!(refused, Error::NotHeld(_)), "{level}: {refused}");
        assert!(refused.to_string().contains("the lock job is not held"), "{refused}");
    }
}

#[tokio::test]
async fn a_transaction_that_is_idle_for_longer_than_its_limit_is_ended() {
    let url = database();
    let one = client(&url, "").await;
    let guard = acquire(&one, "job").await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    Hold::of(&guard).unwrap().limit(Duration::ZERO).run(&mut transaction).await.unwrap();
    soon(guard.release()).await.unwrap();
    sqlx::query("SELECT 1").execute(&mut *transaction).await.unwrap_err();
}

#[tokio::test]
async fn locks_in_a_schema_of_another_name_are_held_there() {
    let url = database();
    let one = client(&url, "&schema=the%20locks").await;
    let guard = acquire(&one, "job").await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    Hold::of(&guard).unwrap().schema("the locks").run(&mut transaction).await.unwrap();
    fence(&mut transaction, "the locks", "file", guard.token().unwrap()).await.unwrap();
    transaction.commit().await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    let refused = Hold::of(&guard).unwrap().run(&mut transaction).await.unwrap_err();
    assert!(matches!(refused, Error::Database(_)), "{refused}");
    drop(transaction);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_token_that_is_older_than_one_that_was_seen_is_refused_by_name() {
    let url = database();
    let one = client(&url, "").await;
    let first = acquire(&one, "job").await;
    let old = first.token().unwrap();
    first.release().await.unwrap();
    let guard = acquire(&one, "job").await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    for (token, is_taken) in [(old, true), (guard.token().unwrap(), true), (old, false)] {
        let told = fence(&mut connection, "fencelock", "file", token).await;
        assert!(if is_taken { told.is_ok() } else { matches!(told, Err(Error::Stale(_))) }, "{token:?}: {told:?}");
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_in_a_transaction_excludes_others_until_that_ends() {
    let url = database();
    let (_schema, pool) = (client(&url, "").await, pool(&url).await);
    let mut one = pool.begin().await.unwrap();
    in_transaction(&mut one, "fencelock", "job").await.unwrap();
    let mut other = pool.begin().await.unwrap();
    sqlx::query("SET LOCAL lock_timeout = '50ms'").execute(&mut *other).await.unwrap();
    let refused = sqlx::Error::from(in_transaction(&mut other, "fencelock", "job").await.unwrap_err());
    assert_eq!(refused.as_database_error().and_then(|said| said.code()).as_deref(), Some("55P03"));
    other.rollback().await.unwrap();
    one.commit().await.unwrap();
    let mut other = pool.begin().await.unwrap();
    in_transaction(&mut other, "fencelock", "job").await.unwrap();
}

/// Its token is a number as any other.
#[tokio::test]
async fn a_guard_of_another_store_holds_nothing() {
    let url = database();
    let _schema = client(&url, "").await;
    let elsewhere = Client::connect("memory:").await.unwrap();
    let guard = acquire(&elsewhere, "job").await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let refused = Hold::of(&guard).unwrap().run(&mut connection).await.unwrap_err();
    assert!(matches!(refused, Error::NotHeld(_)), "{refused}");
}
