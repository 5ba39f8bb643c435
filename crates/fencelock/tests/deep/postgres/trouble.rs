//! A server that is killed, started again, replaced or copied, and whose clock jumps: its data that is lost, its data that is kept, and
//! the errors that clients get.

use std::time::Duration;

use fencelock::postgres::{Migration, Schema};
use fencelock::{ErrorKind, Loss};
use fencelock_testbed::postgres::{Server, Settings};

use super::lab::{acquire, acquiring, client, connection, queued, server, soon, until, until_queued};

#[tokio::test]
async fn no_acknowledged_grant_is_lost_when_the_server_is_killed_and_no_lock_is_left_behind() {
    let own = server(Settings::default());
    for is_killed in [true, false] {
        let (one, other) = (client(&own.url(), 60_000).await, client(&own.url(), 60_000).await);
        let guards = futures_util::future::join_all((0..50).map(|number| {
            let one = one.clone();
            async move { acquire(&one, &format!("job {number}")).await }
        }))
        .await;
        let waiting = acquiring(&other, "job 7");
        until_queued(&other, "job 7", 2).await;
        // The release precedes the crash: the place may return with the server, and the client releases it again.
        let brief = acquire(&one, "brief").await;
        brief.release().await.unwrap();
        if is_killed {
            own.kill();
        } else {
            own.stop_immediately().unwrap();
        }
        own.restart().unwrap();
        own.wait_until_serving().unwrap();
        for (number, guard) in guards.into_iter().enumerate() {
            guard.check().unwrap();
            assert!(queued(&other, &format!("job {number}")).await >= 1);
            soon(guard.release()).await.unwrap();
        }
        soon(waiting).await.unwrap().unwrap().release().await.unwrap();
        until_queued(&other, "brief", 0).await;
        acquire(&other, "brief").await.release().await.unwrap();
    }
}

/// The tables are empty then. A holder may still be at work until its lease ends.
#[tokio::test]
async fn a_crash_ends_every_lock_in_unlogged_tables_and_no_client_is_granted_before_the_holders_know() {
    let own = server(Settings::default());
    let schema = Schema::of(&own.url()).unwrap();
    assert_eq!(schema.clone().unlogged().migrate(&[]).await.unwrap(), Migration::Made);
    let (one, other) = (client(&own.url(), 3_000).await, client(&own.url(), 3_000).await);
    for _ in 0..2 {
        let guard = acquire(&one, "job").await;
        let waiting = acquiring(&other, "job");
        until_queued(&other, "job", 2).await;
        own.kill();
        own.restart().unwrap();
        own.wait_until_serving().unwrap();
        let next = soon(waiting).await.unwrap().unwrap();
        assert!(guard.check().is_err(), "two hold it");
        assert!(next.token() > guard.token());
        next.release().await.unwrap();
    }
}

/// A session that the first crash forgot may live longer than any session that the server knows at the second.
#[tokio::test]
async fn the_time_without_grants_is_cut_short_by_no_second_crash_and_no_clearing_up() {
    let own = server(Settings::default());
    Schema::of(&own.url()).unwrap().unlogged().migrate(&[]).await.unwrap();
    let _forgotten = acquire(&client(&own.url(), 3_600_000).await, "job").await;
    for _ in 0..2 {
        own.kill();
        own.restart().unwrap();
        own.wait_until_serving().unwrap();
        let other = client(&own.url(), 10_000).await;
        let user = connection(&own.url()).await;
        user.batch_execute("SELECT fencelock.clear_up(0)").await.unwrap();
        let asked = "SELECT quiet_until > clock_timestamp() + interval '50 minutes' FROM fencelock.layout";
        assert!(user.query_one(asked, &[]).await.unwrap().get::<_, bool>(0));
        let busy = other.mutex("job").unwrap().try_acquire().await.unwrap_err();
        assert!(busy.is_contention(), "{busy}");
    }
    // Clean-up caps a quiet time that a clock in the future has set.
    let user = connection(&own.url()).await;
    user.batch_execute(
        "UPDATE fencelock.layout SET quiet_until = quiet_until + interval '1 day'; SELECT fencelock.clear_up(0)",
    )
    .await
    .unwrap();
    let asked = "SELECT quiet_until < clock_timestamp() + interval '61 minutes' FROM fencelock.layout";
    assert!(user.query_one(asked, &[]).await.unwrap().get::<_, bool>(0));
}

/// A crash may restore a released place. Its client releases it again after the reconnect.
#[tokio::test]
async fn a_place_that_its_session_does_not_know_is_given_up_when_it_comes_back() {
    let own = server(Settings::default());
    let (one, other) = (client(&own.url(), 60_000).await, client(&own.url(), 60_000).await);
    let guard = acquire(&one, "kept").await;
    acquire(&one, "job").await.release().await.unwrap();
    // The state after a lost release that was not on disk yet: the row of the place exists again.
    let user = connection(&own.url()).await;
    user.batch_execute(
        "INSERT INTO fencelock.place SELECT fencelock._home('job'), 'job', nextval('fencelock.number'), true, false, 1, 1, session, client, number + 1000, since, NULL
         FROM fencelock.place WHERE name = 'kept'",
    )
    .await
    .unwrap();
    assert_eq!(queued(&other, "job").await, 1);
    own.restart().unwrap();
    own.wait_until_serving().unwrap();
    soon(acquire(&other, "job")).await.release().await.unwrap();
    guard.check().unwrap();
    guard.release().await.unwrap();
}

/// As after a failover to a standby that had not received the grant.
#[tokio::test]
async fn the_holder_of_a_grant_that_the_server_forgot_is_notified_with_the_next_connection() {
    let own = server(Settings::default());
    let one = client(&own.url(), 60_000).await;
    let (forgotten, kept) = (acquire(&one, "job").await, acquire(&one, "kept").await);
    connection(&own.url()).await.batch_execute("DELETE FROM fencelock.place WHERE name = 'job'").await.unwrap();
    own.restart().unwrap();
    own.wait_until_serving().unwrap();
    assert_eq!(soon(forgotten.lost()).await, Loss::Removed);
    kept.check().unwrap();
}

/// A standby that has the schema, and receives nothing more.
async fn deaf_standby(primary: &Server) -> Server {
    let standby = Server::start(Settings { standby_of: Some(primary.address()), ..Settings::default() }).unwrap();
    until("the standby has it", async || {
        standby.sql("fencelock", "SELECT version FROM fencelock.layout").is_ok_and(|said| !said.trim().is_empty())
    })
    .await;
    standby.sql("postgres", "ALTER SYSTEM SET primary_conninfo = 'host=127.0.0.1 port=1'").unwrap();
    standby.sql("postgres", "SELECT pg_reload_conf()").unwrap();
    until("it listens no more", async || {
        standby.sql("postgres", "SELECT count(*) FROM pg_stat_wal_receiver").is_ok_and(|said| said.trim() == "0")
    })
    .await;
    standby
}

#[tokio::test]
async fn tokens_rise_over_a_failover_that_lost_the_last_grants() {
    let primary = server(Settings::default());
    let one = client(&primary.url(), 4000).await;
    acquire(&one, "job").await.release().await.unwrap();
    let standby = deaf_standby(&primary).await;
    let mut last = None;
    for _ in 0..20 {
        let guard = acquire(&one, "job").await;
        last = guard.token();
        guard.release().await.unwrap();
    }
    primary.kill();
    standby.promote().unwrap();
    let other = client(&standby.url(), 4000).await;
    let guard = acquire(&other, "job").await;
    assert!(guard.token() > last, "{:?} after {last:?}", guard.token());
}

#[tokio::test]
async fn after_a_failover_no_client_is_granted_while_a_forgotten_holder_may_believe_in_its_lock() {
    let primary = server(Settings::default());
    let one = client(&primary.url(), 8000).await;
    acquire(&one, "job").await.release().await.unwrap();
    let standby = deaf_standby(&primary).await;
    let forgotten = acquire(&one, "job").await;
    primary.kill();
    standby.promote().unwrap();
    let other = client(&standby.url(), 4000).await;
    assert!(other.mutex("another").unwrap().try_acquire().await.is_err_and(|error| error.is_contention()));
    let waiting = [acquiring(&other, "job"), acquiring(&other, "another")];
    for waiting in waiting {
        soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    }
    assert!(forgotten.check().is_err(), "the lock was granted to another client before its holder was notified");
    acquire(&other, "at once").await.release().await.unwrap();
}

/// A restored dump lacks the grants since the dump, and its holders do not know of the restored server.
#[tokio::test]
async fn where_a_dump_was_read_in_no_client_is_granted_before_a_ttl_has_passed_and_no_token_falls() {
    let own = server(Settings::default());
    let one = client(&own.url(), 4000).await;
    let dumped = acquire(&one, "job").await;
    let port = own.address().port();
    let shell = |line: &str| {
        let said = std::process::Command::new("sh").args(["-ec", line]).output().unwrap();
        assert!(said.status.success(), "{said:?}");
    };
    let dump = tempfile::NamedTempFile::new().unwrap();
    let path = dump.path().display();
    shell(&format!("pg_dump -h 127.0.0.1 -p {port} -U postgres fencelock > {path}"));
    let mut last = None;
    for _ in 0..20 {
        let later = acquire(&one, "another").await;
        last = last.max(later.token());
        later.release().await.unwrap();
    }
    own.sql("postgres", "CREATE DATABASE copy OWNER fencelock").unwrap();
    shell(&format!("psql -Xqh 127.0.0.1 -p {port} -U postgres copy < {path}"));
    let copy = client(&format!("postgres://fencelock:secret@{}/copy", own.address()), 4000).await;
    let is_quiet = |database: &str| {
        let asked = "SELECT quiet_until > clock_timestamp() - interval '1 minute' FROM fencelock.layout";
        own.sql(database, asked).unwrap().trim() == "t"
    };
    assert!(is_quiet("copy"));
    for name in ["job", "another"] {
        let guard = acquire(&copy, name).await;
        assert!(guard.token() > last, "{:?} after {last:?}", guard.token());
        guard.release().await.unwrap();
    }
    assert!(!is_quiet("fencelock"), "the other continues");
    dumped.check().unwrap();
}

/// The error has the server's reason, and the lock is granted once the reason ends.
#[tokio::test]
async fn another_clients_transaction_that_keeps_the_rows_is_reported_and_costs_no_session() {
    let own = server(Settings::default());
    let one = client(&own.url(), 4000).await;
    let held = acquire(&one, "held").await;
    let foreign = connection(&own.url()).await;
    foreign.batch_execute("BEGIN; LOCK TABLE fencelock.bucket IN EXCLUSIVE MODE").await.unwrap();
    let error = soon(one.mutex("job").unwrap().acquire_within(Duration::from_secs(2))).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::TimedOut), "{error:?}");
    // The message of the store, or of the end of the wait.
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    let told = format!("{error}: {cause}");
    assert!(told.contains("another transaction"), "{told}");
    // Requests that wait in line behind each other do not keep the session from being renewed.
    let waiting: Vec<_> = (0..8).map(|number| acquiring(&one, &format!("job {number}"))).collect();
    let lost = tokio::time::timeout(Duration::from_secs(6), held.lost()).await;
    assert!(lost.is_err(), "the session was lost: {lost:?}");
    foreign.batch_execute("COMMIT").await.unwrap();
    for waiting in waiting {
        soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    }
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_clock_that_went_back_delays_no_client_beyond_a_ttl_and_one_that_jumps_ahead_is_reported() {
    let own = server(Settings { own_clock: true, ..Settings::default() });
    let (dying, other) = (client(&own.url(), 4000).await, client(&own.url(), 4000).await);
    let guard = acquire(&dying, "job").await;
    let token = guard.token();
    own.set_clock(-3600).unwrap();
    // The client dies without a close: the row of its session stays, and expires in an hour.
    connection(&own.url())
        .await
        .batch_execute("UPDATE fencelock.session SET id = 7 WHERE id = (SELECT session FROM fencelock.place WHERE name = 'job'); UPDATE fencelock.place SET session = 7 WHERE name = 'job'")
        .await
        .unwrap();
    std::mem::forget(guard);
    let next = soon(acquire(&other, "job")).await;
    assert!(next.token() > token, "tokens rise");
    own.set_clock(3600).unwrap();
    assert!(matches!(soon(next.lost()).await, Loss::Expired | Loss::Removed | Loss::Unconfirmed));
}
