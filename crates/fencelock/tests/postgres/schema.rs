//! The schema is made once, and refused when its owner is another role; and the conditions for a server.

use std::time::Duration;

use fencelock::postgres::{Migration, Schema};
use fencelock::{Client, ErrorKind};
use fencelock_testbed::Proxy;
use fencelock_testbed::postgres::{Server, Settings, shared};

use crate::lab::{
    acquire, client, code, connection, database, migrated, queued, refused, refused_because, server, with,
};

#[tokio::test]
async fn many_first_clients_make_one_schema() {
    let (url, _) = database();
    let clients = futures_util::future::join_all((0..8).map(|_| client(&url, 60_000))).await;
    for client in &clients {
        acquire(client, "job").await.release().await.unwrap();
    }
    assert_eq!(migrated(async || Schema::of(&url).unwrap().migrate(&[]).await).await, Migration::UpToDate);
}

#[tokio::test]
async fn printed_statements_make_the_same_schema_and_a_database_has_several() {
    let (url, _) = database();
    let user = connection(&url).await;
    let odd = with(&url, "schema=odd%20%22name%22");
    user.batch_execute(&Schema::of(&odd).unwrap().statements(&["fencelock"])).await.unwrap();
    assert_eq!(migrated(async || Schema::of(&odd).unwrap().migrate(&[]).await).await, Migration::UpToDate);
    let (one, other) = (client(&odd, 60_000).await, client(&url, 60_000).await);
    let _here = acquire(&one, "job").await;
    let _there = acquire(&other, "job").await;
}

#[tokio::test]
async fn looking_makes_nothing_and_shows_empty_queues() {
    let (url, _) = database();
    let looker = Client::builder().session_when_needed(true).connect(&url).await.unwrap();
    assert_eq!(queued(&looker, "job").await, 0);
    let user = connection(&url).await;
    let there: i64 =
        user.query_one("SELECT count(*) FROM pg_namespace WHERE nspname = 'fencelock'", &[]).await.unwrap().get(0);
    assert_eq!(there, 0);
    let holder = client(&url, 60_000).await;
    let _guard = acquire(&holder, "job").await;
    assert_eq!(queued(&looker, "job").await, 1);
}

#[tokio::test]
async fn a_schema_of_another_version_or_program_or_damaged_is_refused() {
    let (url, _) = database();
    client(&url, 60_000).await;
    let user = connection(&url).await;
    user.batch_execute("UPDATE fencelock.layout SET version = 9").await.unwrap();
    let error = refused(&url).await;
    assert!(error.kind() == ErrorKind::Layout && error.to_string().contains("layout 9"), "{error}");
    user.batch_execute("UPDATE fencelock.layout SET version = 8; DROP FUNCTION fencelock.renew").await.unwrap();
    let error = refused(&url).await;
    assert!(error.kind() == ErrorKind::Layout && error.to_string().contains("damaged"), "{error}");
    user.batch_execute("DELETE FROM fencelock.layout").await.unwrap();
    let error = refused(&url).await;
    assert!(error.kind() == ErrorKind::Layout && error.to_string().contains("--schema-only"), "{error}");
    user.batch_execute("CREATE SCHEMA other; CREATE TABLE other.things (a int)").await.unwrap();
    let error = refused(&with(&url, "schema=other")).await;
    assert!(error.kind() == ErrorKind::Layout && error.to_string().contains("not ours"), "{error}");
    user.batch_execute("CREATE SCHEMA empty").await.unwrap();
    client(&with(&url, "schema=empty"), 60_000).await;
}

#[tokio::test]
async fn a_migration_that_is_interrupted_leaves_nothing_and_is_made_up_for() {
    let (url, _) = database();
    let user = connection(&url).await;
    let half = Schema::of(&url).unwrap().statements(&[]).replace("COMMIT;", "SELECT 1/0; COMMIT;");
    assert_eq!(code(user.batch_execute(&half).await), "22012");
    user.batch_execute("ROLLBACK").await.unwrap();
    client(&url, 60_000).await;
}

/// As when eight processes come first, and the machine is busy.
#[tokio::test]
async fn a_client_that_waits_too_long_for_the_maker_of_the_schema_gets_that_error() {
    let (url, _) = database();
    let user = connection(&url).await;
    // The lock of a client that makes the schema.
    user.batch_execute("SELECT pg_advisory_lock(7378415037781730660)").await.unwrap();
    let error = Schema::of(&url).unwrap().migrate(&[]).await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("another client makes the schema"), "{error}");
    user.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    client(&url, 60_000).await;
    // Any role may take that lock: where the schema exists, no client waits for it.
    user.batch_execute("SELECT pg_advisory_lock(7378415037781730660)").await.unwrap();
    client(&url, 60_000).await;
}

/// The server shows the rows of the functions before it finds the functions, while the commit of their maker is on its way.
#[tokio::test]
async fn a_look_while_another_client_makes_the_schema_shows_an_empty_queue() {
    let (url, _) = database();
    let holder = client(&url, 60_000).await;
    let _guard = acquire(&holder, "job").await;
    let user = connection(&url).await;
    let asked = "SELECT pg_get_functiondef('fencelock.version()'::regprocedure)";
    let version: String = user.query_one(asked, &[]).await.unwrap().get(0);
    let missing = "CREATE OR REPLACE FUNCTION fencelock.version() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN RAISE undefined_function; END $$";
    user.batch_execute(&format!("SELECT pg_advisory_lock(7378415037781730660); {missing}")).await.unwrap();
    let looker = Client::builder().session_when_needed(true).connect(&url).await.unwrap();
    assert_eq!(queued(&looker, "job").await, 0);
    user.batch_execute(&format!("{version}; SELECT pg_advisory_unlock_all()")).await.unwrap();
    assert_eq!(queued(&looker, "job").await, 1);
}

/// A server process sees the new functions only in a transaction that begins after the maker's commit.
#[tokio::test]
async fn a_client_that_connects_while_another_one_makes_the_schema_waits_and_finds_it() {
    let (url, _) = database();
    client(&url, 60_000).await;
    let user = connection(&url).await;
    let asked = "SELECT pg_get_functiondef('fencelock.version()'::regprocedure)";
    let version: String = user.query_one(asked, &[]).await.unwrap().get(0);
    let missing = "CREATE OR REPLACE FUNCTION fencelock.version() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN RAISE undefined_function; END $$";
    user.batch_execute(&format!("SELECT pg_advisory_lock(7378415037781730660); {missing}")).await.unwrap();
    let connecting = tokio::spawn(async move { client(&url, 60_000).await });
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    while user.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(!connecting.is_finished(), "{:?}", connecting.await);
    }
    user.batch_execute(&format!("BEGIN; {version}; COMMIT; SELECT pg_advisory_unlock_all()")).await.unwrap();
    connecting.await.unwrap();
}

/// A client that stops then would keep all other clients from the database.
#[tokio::test]
async fn a_client_that_makes_the_schema_is_never_idle_in_a_transaction() {
    let own = server(Settings::default());
    let proxy = Proxy::start(own.address()).unwrap();
    proxy.delay(Duration::from_millis(30));
    let url = own.url().replace(&own.address().to_string(), &proxy.address().to_string());
    let connecting = tokio::spawn(async move { client(&url, 60_000).await });
    let onlooker = connection(&own.url()).await;
    while !connecting.is_finished() {
        let idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
        assert_eq!(onlooker.query_one(idle, &[]).await.unwrap().get::<_, i64>(0), 0);
    }
    acquire(&connecting.await.unwrap(), "job").await.release().await.unwrap();
}

#[tokio::test]
async fn a_database_without_utf8_a_missing_one_and_a_wrong_password_are_each_reported() {
    let (url, name) = database();
    let address = shared().address();
    let latin = format!("latin_{name}");
    let owner = "postgres://postgres@".to_owned() + &format!("{address}/postgres");
    let create = format!("CREATE DATABASE {latin} OWNER fencelock ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    connection(&owner).await.batch_execute(&create).await.unwrap();
    let error = refused(&url.replace(&name, &latin)).await;
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("UTF-8"), "{error}");
    let error = refused(&url.replace(&name, "no_such_database")).await;
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("no database of that name"), "{error}");
}

#[tokio::test]
async fn a_standby_and_a_read_only_role_take_no_locks_and_a_standby_shows_them() {
    let primary = server(Settings::default());
    let holder = client(&primary.url(), 60_000).await;
    let _guard = acquire(&holder, "job").await;
    let standby = Server::start(Settings { standby_of: Some(primary.address()), ..Settings::default() }).unwrap();
    let looker = Client::builder().session_when_needed(true).connect(&standby.url()).await.unwrap();
    crate::lab::until("the standby has it", async || queued(&looker, "job").await == 1).await;
    let error = refused_because(&with(&standby.url(), "ttl_ms=60000"), "standby").await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    // The URL names both in any order: the client finds the one that takes writes.
    let both = format!("postgres://fencelock:secret@{},{}/fencelock", standby.address(), primary.address());
    let other = client(&both, 60_000).await;
    assert_eq!(queued(&other, "job").await, 1);
    primary.sql("postgres", "ALTER ROLE fencelock SET default_transaction_read_only = on").unwrap();
    refused_because(&with(&primary.url(), "ttl_ms=60000"), "read-only").await;
}

/// Settings of a role or a database for its sessions change nothing.
#[tokio::test]
async fn settings_of_a_role_do_not_get_in_the_way() {
    let own = server(Settings::default());
    own.sql(
        "postgres",
        "ALTER ROLE fencelock SET default_transaction_isolation = 'serializable';
         ALTER ROLE fencelock SET statement_timeout = '2s';
         ALTER ROLE fencelock SET lock_timeout = '1ms';
         ALTER ROLE fencelock SET idle_in_transaction_session_timeout = '1ms';
         ALTER ROLE fencelock SET idle_session_timeout = '2s';
         ALTER ROLE fencelock SET synchronous_commit = off;
         ALTER ROLE fencelock SET search_path = 'nowhere'",
    )
    .unwrap();
    let (one, other) = (client(&own.url(), 60_000).await, client(&own.url(), 60_000).await);
    for _ in 0..20 {
        let guard = acquire(&one, "job").await;
        let waiting = crate::lab::acquiring(&other, "job");
        crate::lab::until_queued(&one, "job", 2).await;
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
}
