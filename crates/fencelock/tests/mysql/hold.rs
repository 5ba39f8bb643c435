//! `fencelock_hold`: the check of the grant and the write in one transaction.

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::lab::{
    PATIENT, acquire, acquiring, client, connection, database, has_no_transaction, is_mariadb, refusals, soon, state,
    until_queued, with,
};

/// Far longer than anything here is waited for.
const LONG: u64 = 3_600_000;

async fn hold(user: &mut Conn, name: &str, token: i64) -> mysql_async::Result<()> {
    user.exec_drop("CALL fencelock_hold(?, ?)", (name, token)).await
}

#[tokio::test]
async fn a_grant_is_held_until_the_transaction_ends_and_no_other_is_granted_meanwhile() {
    let url = database();
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        for end in ["COMMIT", "ROLLBACK"] {
            let (one, other) = (client(&with(&url, PATIENT), LONG).await, client(&url, LONG).await);
            let mut user = connection(&url).await;
            user.query_drop(format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}")).await.unwrap();
            let guard = acquire(&one, "job").await;
            user.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT").await.unwrap();
            let waiting = acquiring(&other, "job");
            until_queued(&other, "job", 2).await;
            hold(&mut user, "job", guard.token().unwrap().to_i64()).await.unwrap();
            let releasing = tokio::spawn(guard.release());
            // While the release waits, the client's other names work, and its session is renewed.
            for _ in 0..20 {
                acquire(&one, "another").await.release().await.unwrap();
            }
            assert!(!releasing.is_finished() && !waiting.is_finished(), "{level} {end}");
            user.query_drop(end).await.unwrap();
            soon(releasing).await.unwrap().unwrap();
            soon(waiting).await.unwrap().unwrap().release().await.unwrap();
            until_queued(&one, "job", 0).await;
        }
    }
}

/// With such a snapshot, 30 writers that took `max(n) + 1` wrote six numbers.
#[tokio::test]
async fn a_snapshot_that_is_older_than_the_grant_holds_nothing_and_the_error_says_to_begin_later() {
    let url = database();
    let (one, other, mut user) = (client(&url, 60_000).await, client(&url, 60_000).await, connection(&url).await);
    drop(acquire(&one, "another").await);
    user.query_drop("CREATE TABLE mine (n INT) ENGINE = InnoDB").await.unwrap();
    for (refuses_changes, was_waiting) in [(0, false), (0, true), (1, false), (1, true)] {
        // MySQL has no such variable, and reads a comment.
        let set = format!("SET @a = 0 /*M! , SESSION innodb_snapshot_isolation = {refuses_changes} */");
        user.query_drop(set).await.unwrap();
        let before = acquire(&other, "job").await;
        let waiting = acquiring(&one, "job");
        until_queued(&other, "job", 2).await;
        let guard = if was_waiting {
            user.query_drop("BEGIN").await.unwrap();
            user.query_drop("SELECT MAX(n) FROM mine").await.unwrap();
            before.release().await.unwrap();
            soon(waiting).await.unwrap().unwrap()
        } else {
            before.release().await.unwrap();
            soon(waiting).await.unwrap().unwrap().release().await.unwrap();
            user.query_drop("BEGIN").await.unwrap();
            user.query_drop("SELECT MAX(n) FROM mine").await.unwrap();
            acquire(&one, "job").await
        };
        let token = guard.token().unwrap().to_i64();
        let error = hold(&mut user, "job", token).await.unwrap_err().to_string();
        assert!(error.contains("FL001") && error.contains("acquire first, begin then"), "{error}");
        has_no_transaction(&mut user).await;
        user.query_drop("BEGIN").await.unwrap();
        hold(&mut user, "job", token).await.unwrap();
        user.query_drop("COMMIT").await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_token_that_is_not_the_one_of_the_grant_is_refused() {
    let url = database();
    let (one, mut user) = (client(&url, 60_000).await, connection(&url).await);
    let guard = acquire(&one, "job").await;
    let token = guard.token().unwrap().to_i64();
    for (name, token) in
        [("job", token - 1), ("job", token << 12), ("job", 0), ("other", token), ("Job", token), ("job ", token)]
    {
        user.query_drop("BEGIN").await.unwrap();
        assert_eq!(state(hold(&mut user, name, token).await), "FL001", "{name} {token}");
    }
    for fraction in [format!("{token}.4"), format!("'{token}.4'"), format!("{}.6", token - 1)] {
        user.query_drop("BEGIN").await.unwrap();
        assert_eq!(
            state(user.query_drop(format!("CALL fencelock_hold('job', {fraction})")).await),
            "FL001",
            "{fraction}"
        );
    }
    user.query_drop("BEGIN").await.unwrap();
    hold(&mut user, "job", token).await.unwrap();
    user.query_drop("COMMIT").await.unwrap();
    guard.release().await.unwrap();
    user.query_drop("BEGIN").await.unwrap();
    assert_eq!(state(hold(&mut user, "job", token).await), "FL001");
}

#[tokio::test]
async fn a_hold_outside_of_a_transaction_is_an_error() {
    let url = database();
    let (one, mut user) = (client(&url, 60_000).await, connection(&url).await);
    let guard = acquire(&one, "job").await;
    let token = guard.token().unwrap().to_i64();
    match hold(&mut user, "job", token).await {
        // MySQL has no variable for it: there hold keeps nothing (docs/locks-in-mysql.md).
        Ok(()) => assert!(!is_mariadb(&mut user).await),
        refused => assert_eq!(state(refused), "25P01"),
    }
    user.query_drop("SET autocommit = 0").await.unwrap();
    hold(&mut user, "job", token).await.unwrap();
    user.query_drop("COMMIT").await.unwrap();
    guard.release().await.unwrap();
}

/// Otherwise the gap of the missing row, and the row of a waiter, would stay locked.
#[tokio::test]
async fn a_hold_that_fails_rolls_its_transaction_back_and_keeps_no_client_waiting() {
    let url = database();
    let (one, other, mut user) = (client(&url, 60_000).await, client(&url, 60_000).await, connection(&url).await);
    let guard = acquire(&one, "job").await;
    let waiting = acquiring(&other, "job");
    until_queued(&one, "job", 2).await;
    let waits: Option<i64> = user.query_first("SELECT MAX(seq) FROM fencelock_place").await.unwrap();
    for (name, token) in [("gone", 123), ("job", waits.unwrap())] {
        user.query_drop("BEGIN").await.unwrap();
        assert_eq!(state(hold(&mut user, name, token).await), "FL001", "{name}");
        has_no_transaction(&mut user).await;
        for number in 0..20 {
            let free = one.mutex(format!("{name} {number}")).unwrap().try_acquire().await.unwrap();
            free.release().await.unwrap();
        }
    }
    guard.release().await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// A release that waits for a transaction has the row at once when it ends: no waiter behind it locks that row to read
/// it.
#[tokio::test]
async fn a_reader_whose_grant_is_held_keeps_no_other_reader_waiting() {
    let url = database();
    let (one, other) = (client(&with(&url, PATIENT), LONG).await, client(&url, LONG).await);
    let mut user = connection(&url).await;
    let held = soon(one.rwlock("job").unwrap().read()).await.unwrap();
    let mut admin = connection(&url).await;
    let seq: Option<i64> = admin.query_first("SELECT seq FROM fencelock_place").await.unwrap();
    user.query_drop("BEGIN").await.unwrap();
    hold(&mut user, "job", seq.unwrap()).await.unwrap();
    let releasing = tokio::spawn(held.release());
    // The release waits at the server, on a connection of its own.
    let waits = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID() \
         AND (info LIKE 'CALL fencelock_await%' OR info LIKE '%FOR UPDATE%')";
    crate::lab::until("the release waits", async || admin.query_first::<u64, _>(waits).await.unwrap() > Some(0)).await;
    for _ in 0..20 {
        soon(other.rwlock("job").unwrap().read()).await.unwrap().release().await.unwrap();
    }
    assert!(!releasing.is_finished());
    user.query_drop("ROLLBACK").await.unwrap();
    soon(releasing).await.unwrap().unwrap();
}

/// The plain reads of an old snapshot still see the grant.
#[tokio::test]
async fn a_grant_that_ended_since_the_snapshot_of_the_transaction_is_refused() {
    let url = database();
    let (one, mut user) = (client(&url, 60_000).await, connection(&url).await);
    let guard = acquire(&one, "job").await;
    let token = guard.token().unwrap().to_i64();
    user.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT").await.unwrap();
    guard.release().await.unwrap();
    let seen: Option<i64> = user.query_first("SELECT COUNT(*) FROM fencelock_place").await.unwrap();
    assert_eq!(seen, Some(1));
    assert_eq!(state(hold(&mut user, "job", token).await), "FL001");
}

#[tokio::test]
async fn a_dead_holder_whose_grant_is_held_keeps_the_lock_until_the_transaction_ends() {
    let url = database();
    let (one, other) = (client(&url, 60_000).await, client(&url, 60_000).await);
    let mut user = connection(&url).await;
    let guard = acquire(&one, "job").await;
    user.query_drop("BEGIN").await.unwrap();
    hold(&mut user, "job", guard.token().unwrap().to_i64()).await.unwrap();
    let mut admin = connection(&url).await;
    let holder: Option<u64> = admin.query_first("SELECT session FROM fencelock_place").await.unwrap();
    admin.exec_drop("DELETE FROM fencelock_session WHERE id = ?", (holder.unwrap(),)).await.unwrap();
    let next = acquiring(&client(&url, 60_000).await, "job");
    until_queued(&other, "job", 1).await;
    assert!(!next.is_finished());
    refusals(&other, "job", "the holder is dead").await;
    let closed = other.queue("job").await.unwrap().closed.unwrap();
    assert!(closed.contains("fencelock_hold") && closed.contains("innodb_trx"), "{closed}");
    user.query_drop("COMMIT").await.unwrap();
    soon(next).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_fence_refuses_what_is_older_than_what_it_saw() {
    let url = database();
    let (one, mut user) = (client(&url, 60_000).await, connection(&url).await);
    drop(acquire(&one, "job").await);
    for (token, expected) in [(7_i64, None), (7, None), (9, None), (8, Some("FL002")), (9, None)] {
        let said = user.exec_drop("CALL fencelock_fence('stock', ?)", (token,)).await;
        assert_eq!(said.is_err().then(|| state(said)).as_deref(), expected, "{token}");
    }
    assert_eq!(state(user.query_drop("CALL fencelock_fence('stock', 11.6)").await), "FL002");
    user.query_drop("CALL fencelock_fence('stock', 11)").await.unwrap();
}

#[tokio::test]
async fn a_trigger_refuses_what_is_older_than_the_last_write_of_the_row() {
    let url = database();
    let (one, mut user) = (client(&url, 60_000).await, connection(&url).await);
    drop(acquire(&one, "job").await);
    for statement in [
        "CREATE TABLE stock (item INT PRIMARY KEY, left_over INT, token BIGINT) ENGINE = InnoDB",
        "CREATE TRIGGER stock_fenced BEFORE UPDATE ON stock FOR EACH ROW CALL fencelock_fenced(OLD.token, NEW.token)",
        "INSERT INTO stock VALUES (42, 10, NULL)",
        "CREATE TABLE printed (page INT, token BIGINT) ENGINE = InnoDB",
        "CREATE TRIGGER printed_fenced BEFORE INSERT ON printed FOR EACH ROW CALL fencelock_fence('printer', NEW.token)",
    ] {
        user.query_drop(statement).await.unwrap();
    }
    let writes = ["UPDATE stock SET left_over = left_over - 1, token = ?", "INSERT INTO printed VALUES (1, ?)"];
    for (token, expected) in [(Some(7_i64), None), (Some(9), None), (Some(8), Some("FL002")), (Some(9), None)] {
        for write in writes {
            let said = user.exec_drop(write, (token,)).await;
            assert_eq!(said.is_err().then(|| state(said)).as_deref(), expected, "{write} {token:?}");
        }
    }
    for write in writes {
        assert_eq!(state(user.exec_drop(write, (None::<i64>,)).await), "FL002", "{write}");
    }
    // A write that was refused, or undone, leaves nothing: neither in the table nor among the tokens that were seen.
    user.query_drop("BEGIN").await.unwrap();
    for write in writes {
        user.exec_drop(write, (20,)).await.unwrap();
    }
    user.query_drop("ROLLBACK").await.unwrap();
    let after: Option<(i64, i64, i64)> =
        user.query_first("SELECT left_over, token, (SELECT COUNT(*) FROM printed) FROM stock").await.unwrap();
    assert_eq!(after, Some((7, 9, 3)));
    for write in writes {
        user.exec_drop(write, (9,)).await.unwrap();
    }
    let column = "CREATE TRIGGER wrong BEFORE UPDATE ON stock FOR EACH ROW CALL fencelock_fenced(OLD.tokn, NEW.tokn)";
    assert_eq!(state(user.query_drop(column).await), "42S22");
}
