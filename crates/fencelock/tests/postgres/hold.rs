//! `fencelock.hold`: the check of the grant and the write in one transaction.

use std::time::Instant;

use fencelock::postgres::HOLD;
use fencelock::{ErrorKind, Name};

use crate::lab::{
    AS_CLIENTS, LONG, PATIENCE, PATIENT, acquire, acquiring, client, code, connection, database, patient_user, queued,
    refusals, soon, until, until_queued, with,
};

#[tokio::test]
async fn a_transaction_that_keeps_the_lock_of_a_dead_holder_is_named_by_errors_queues_and_lists() {
    let (url, _) = database();
    for (begin, transactions) in [("BEGIN", 1), ("BEGIN", 2), ("BEGIN; SAVEPOINT one", 2)] {
        let (one, other, admin) = (client(&url, 60_000).await, client(&url, 60_000).await, connection(&url).await);
        let guard = acquire(&one, "job").await;
        let token = guard.token().unwrap().to_i64();
        let users = [patient_user(&format!("{url}?application_name=idler")).await, patient_user(&url).await];
        for user in &users[..transactions] {
            user.batch_execute(begin).await.unwrap();
            user.execute(HOLD, &[&"job", &token]).await.unwrap();
        }
        let process: i32 = users[0].query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        let dead = "DELETE FROM fencelock.session WHERE id = (SELECT session FROM fencelock.place WHERE name = 'job')";
        admin.batch_execute(dead).await.unwrap();
        let named =
            [format!("idler (process {process} of the server, idle in transaction since 2"), "`hold`".to_owned()];
        for error in refusals(&other, "job", "held by").await {
            assert!(named.iter().all(|part| error.contains(part)), "{error}");
        }
        let queue = other.queue(&Name::new("job").unwrap()).await.unwrap();
        assert!(queue.contenders[0].owner.as_ref().unwrap().to_string().starts_with(&named[0]), "{queue:?}");
        assert_eq!(other.names("", None, 10).await.unwrap().len(), 1);
        for user in &users[..transactions] {
            user.batch_execute("ROLLBACK").await.unwrap();
        }
        soon(soon(acquiring(&other, "job")).await.unwrap().unwrap().release()).await.unwrap();
        drop(guard);
    }
}

#[tokio::test]
async fn hold_limits_an_idle_transaction_to_a_minute_unless_a_limit_is_set() {
    let (url, _) = database();
    let (one, user) = (client(&url, 60_000).await, connection(&url).await);
    let guard = acquire(&one, "job").await;
    let token = guard.token().unwrap().to_i64();
    for (before, argument, limit) in [
        ("", "", "1min"),
        ("", ", NULL", "1min"),
        ("", ", interval '10 minutes'", "10min"),
        ("", ", '0'", "0"),
        ("SET LOCAL idle_in_transaction_session_timeout = '2h'", "", "2h"),
    ] {
        user.batch_execute(&format!("BEGIN; {before}; SELECT fencelock.hold('job', {token}{argument})")).await.unwrap();
        let set = user.query_one("SHOW idle_in_transaction_session_timeout", &[]).await.unwrap();
        assert_eq!(set.get::<_, &str>(0), limit, "{before} {argument}");
        user.batch_execute("ROLLBACK").await.unwrap();
    }
    soon(guard.release()).await.unwrap();
}

#[tokio::test]
async fn a_grant_is_held_until_the_transaction_ends_and_no_other_is_granted_meanwhile() {
    let (url, _) = database();
    for end in ["COMMIT", "ROLLBACK"] {
        let (one, other) = (client(&with(&url, PATIENT), LONG).await, client(&url, LONG).await);
        let guard = acquire(&one, "job").await;
        let waiting = acquiring(&other, "job");
        until_queued(&other, "job", 2).await;
        let user = patient_user(&url).await;
        user.batch_execute("BEGIN").await.unwrap();
        user.execute(HOLD, &[&"job", &guard.token().unwrap().to_i64()]).await.unwrap();
        let releasing = tokio::spawn(guard.release());
        // While the release waits, the client's other names work, and its session is renewed.
        for _ in 0..20 {
            acquire(&one, "another").await.release().await.unwrap();
        }
        assert!(!releasing.is_finished() && !waiting.is_finished());
        user.batch_execute(end).await.unwrap();
        soon(releasing).await.unwrap().unwrap();
        soon(waiting).await.unwrap().unwrap().release().await.unwrap();
        until_queued(&one, "job", 0).await;
    }
}

#[tokio::test]
async fn a_token_that_is_not_the_one_of_the_grant_is_refused() {
    let (url, _) = database();
    let (one, user) = (client(&url, 60_000).await, connection(&url).await);
    let guard = acquire(&one, "job").await;
    let token = guard.token().unwrap().to_i64();
    let waiting = acquiring(&one, "job");
    until_queued(&one, "job", 2).await;
    for (name, token) in [("job", token - 1), ("job", token << 12), ("job", 0), ("other", token)] {
        assert_eq!(code(user.execute(HOLD, &[&name, &token]).await), "FL001", "{name} {token}");
    }
    user.execute(HOLD, &[&"job", &token]).await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(code(user.execute(HOLD, &[&"job", &token]).await), "FL001");
    let next = soon(waiting).await.unwrap().unwrap();
    user.execute(HOLD, &[&"job", &next.token().unwrap().to_i64()]).await.unwrap();
}

/// Above READ COMMITTED, `hold` refuses a grant that ended or began since the snapshot: a hold never lacks its grant.
#[tokio::test]
async fn above_read_committed_a_grant_that_changed_since_the_snapshot_is_refused() {
    let (url, _) = database();
    let one = client(&url, 60_000).await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let user = connection(&url).await;
        let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM pg_class");
        let guard = acquire(&one, "job").await;
        let token = guard.token().unwrap().to_i64();
        user.batch_execute(&begin).await.unwrap();
        user.execute(HOLD, &[&"job", &token]).await.unwrap();
        user.batch_execute("COMMIT").await.unwrap();
        user.batch_execute(&begin).await.unwrap();
        guard.release().await.unwrap();
        assert_eq!(code(user.execute(HOLD, &[&"job", &token]).await), "40001", "{level}");
        user.batch_execute("ROLLBACK").await.unwrap();
        user.batch_execute(&begin).await.unwrap();
        let guard = acquire(&one, "job").await;
        let refused = code(user.execute(HOLD, &[&"job", &guard.token().unwrap().to_i64()]).await);
        assert_eq!(refused, "FL001", "{level}");
        user.batch_execute("ROLLBACK").await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_dead_holders_lock_is_not_passed_on_before_its_transaction_ends() {
    let (url, _) = database();
    let (dying, other) = (client(&url, 60_000).await, client(&url, 60_000).await);
    let guard = acquire(&dying, "job").await;
    let user = patient_user(&url).await;
    user.batch_execute("BEGIN; CREATE TABLE written (by text)").await.unwrap();
    user.execute(HOLD, &[&"job", &guard.token().unwrap().to_i64()]).await.unwrap();
    let waiting = acquiring(&other, "job");
    until_queued(&other, "job", 2).await;
    std::mem::forget(guard);
    the_holders_session_expires(&url).await;
    for _ in 0..30 {
        acquire(&other, "another").await.release().await.unwrap();
    }
    assert!(!waiting.is_finished(), "a rival was granted while a transaction held");
    user.batch_execute("INSERT INTO written VALUES ('the dead'); COMMIT").await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    drop(dying);
}

/// A transaction may last long, and each look locks the bucket: a hundred waiters with ten looks a second would keep the server
/// busy.
#[tokio::test]
async fn behind_a_dead_holder_that_a_transaction_keeps_only_the_first_waiter_looks_often() {
    let (url, _) = database();
    let (holder, user) = (client(&url, 60_000).await, connection(&url).await);
    let guard = acquire(&holder, "job").await;
    let other = connection(&url).await;
    let enter = async |number: i64| -> Vec<i64> {
        let entered = "SELECT fencelock.enter(7, 1, 'job', 7, $1, 1, 1, true, false, NULL)";
        other.query_one(entered, &[&number]).await.unwrap().get(0)
    };
    other.batch_execute(AS_CLIENTS).await.unwrap();
    other.batch_execute("SELECT fencelock.open(7, 'fencelock_0000000000000007', 60000, '', 0, 7)").await.unwrap();
    user.batch_execute("BEGIN").await.unwrap();
    user.execute(HOLD, &[&"job", &guard.token().unwrap().to_i64()]).await.unwrap();
    the_holders_session_expires(&url).await;
    let (first, second) = (enter(1).await, enter(2).await);
    assert_eq!((first[2], second[2]), (100, 1000));
    let seqs = [first[1], second[1]];
    let look = "SELECT r_look_in FROM fencelock.look(7, '{job}', ARRAY[cardinality($1::bigint[])], array_fill(7::bigint, ARRAY[cardinality($1)]), $1, $2)";
    for (numbers, seqs, due) in
        [(vec![1_i64], vec![seqs[0]], 100), (vec![2], vec![seqs[1]], 1000), (vec![2, 1], vec![seqs[1], seqs[0]], 100)]
    {
        let looked: i64 = other.query_one(look, &[&numbers, &seqs]).await.unwrap().get(0);
        assert_eq!(looked, due, "{numbers:?}");
    }
    user.batch_execute("COMMIT").await.unwrap();
    std::mem::forget(guard);
}

/// Ends the session of the holder of `job` as time would, and keeps it from being renewed.
async fn the_holders_session_expires(url: &str) {
    let owner = connection(url).await;
    let ended =
        "DELETE FROM fencelock.session WHERE id = (SELECT session FROM fencelock.place WHERE name = 'job' AND granted)";
    assert_eq!(owner.execute(ended, &[]).await.unwrap(), 1);
}

#[tokio::test]
async fn a_break_waits_for_the_transaction_and_a_release_that_may_not_wait_says_why() {
    let (url, _) = database();
    let (one, other) = (client(&url, 30_000).await, client(&url, 60_000).await);
    let guard = acquire(&one, "job").await;
    let user = connection(&url).await;
    user.batch_execute("BEGIN").await.unwrap();
    user.execute(HOLD, &[&"job", &guard.token().unwrap().to_i64()]).await.unwrap();
    // Longer than a request may take. The machine can stand still for that long: then the release has no answer that says why.
    let mut kept = soon(guard.release_or_keep()).await.unwrap_err();
    let start = Instant::now();
    while !kept.error().to_string().contains("a transaction holds this grant") {
        assert!(kept.error().kind() == ErrorKind::Unreachable && start.elapsed() < PATIENCE, "{kept:?}");
        kept = soon(kept.into_guard().release_or_keep()).await.unwrap_err();
    }
    assert_eq!(queued(&other, "job").await, 1);
    user.batch_execute("COMMIT").await.unwrap();
    // The error has the guard. Its drop releases the lock in the background, unless the last request of the release did.
    drop(kept);
    until_queued(&other, "job", 0).await;
}

/// A downgrade would grant other contenders the lock, so the transaction blocks it like a release.
#[tokio::test]
async fn a_writer_that_a_transaction_holds_does_not_become_a_reader() {
    let (url, _) = database();
    let one = client(&url, 30_000).await;
    let writer = one.rwlock("page").unwrap().write().await.unwrap();
    let user = connection(&url).await;
    user.batch_execute("BEGIN").await.unwrap();
    user.execute(HOLD, &[&"page", &writer.token().unwrap().to_i64()]).await.unwrap();
    let error = soon(writer.downgrade_or_keep()).await.unwrap_err();
    assert!(error.to_string().contains("a transaction holds this grant"), "{error}");
    user.batch_execute("COMMIT").await.unwrap();
    soon(error.into_guard().release()).await.unwrap();
    until_queued(&one, "page", 0).await;
}

#[tokio::test]
async fn a_limit_ends_a_transaction_that_does_nothing() {
    let (url, _) = database();
    let (one, user) = (client(&url, 60_000).await, connection(&url).await);
    let guard = acquire(&one, "job").await;
    user.batch_execute("BEGIN").await.unwrap();
    let token = guard.token().unwrap().to_i64();
    user.batch_execute(&format!("SELECT fencelock.hold('job', {token}, interval '200 milliseconds')")).await.unwrap();
    soon(guard.release()).await.unwrap();
    until("its connection is ended", async || user.batch_execute("SELECT 1").await.is_err()).await;
}

#[tokio::test]
async fn a_fence_refuses_older_tokens_in_any_order_of_the_writes() {
    let (url, _) = database();
    let (one, user) = (client(&url, 60_000).await, connection(&url).await);
    let older = acquire(&one, "job").await.release_with_token().await;
    let newer = acquire(&one, "job").await.release_with_token().await;
    let fence = "SELECT fencelock.fence($1, $2)";
    user.execute(fence, &[&"stock", &older]).await.unwrap();
    user.execute(fence, &[&"stock", &older]).await.unwrap();
    user.execute(fence, &[&"stock", &newer]).await.unwrap();
    assert_eq!(code(user.execute(fence, &[&"stock", &older]).await), "FL002");
    user.execute(fence, &[&"another", &older]).await.unwrap();
    user.batch_execute(
        "CREATE TABLE stock (item text, left_over int, token bigint);
         INSERT INTO stock VALUES ('book', 3, NULL);
         CREATE TRIGGER fenced BEFORE UPDATE ON stock FOR EACH ROW EXECUTE FUNCTION fencelock.fenced('token')",
    )
    .await
    .unwrap();
    let write = "UPDATE stock SET left_over = left_over - 1, token = $1";
    user.execute(write, &[&newer]).await.unwrap();
    assert_eq!(code(user.execute(write, &[&older]).await), "FL002");
    assert_eq!(code(user.execute(write, &[&None::<i64>]).await), "FL002");
    user.execute(write, &[&newer]).await.unwrap();
    // The trigger of a missing column would let every write pass, so each write fails.
    for argument in ["'tokn'", ""] {
        let trigger = format!(
            "CREATE OR REPLACE TRIGGER fenced BEFORE UPDATE ON stock FOR EACH ROW EXECUTE FUNCTION fencelock.fenced({argument})"
        );
        user.batch_execute(&trigger).await.unwrap();
        assert_eq!(code(user.execute(write, &[&newer]).await), "42703", "{argument}");
    }
}

#[tokio::test]
async fn a_lock_in_a_transaction_excludes_its_own_kind_until_the_transaction_ends() {
    let (url, _) = database();
    client(&url, 60_000).await;
    let (one, other) = (connection(&url).await, connection(&url).await);
    one.batch_execute("BEGIN; SELECT fencelock.in_transaction('job')").await.unwrap();
    other.batch_execute("SELECT fencelock.in_transaction('another')").await.unwrap();
    other.batch_execute("SET lock_timeout = 50").await.unwrap();
    assert_eq!(code(other.batch_execute("SELECT fencelock.in_transaction('job')").await), "55P03");
    one.batch_execute("COMMIT").await.unwrap();
    other.batch_execute("SELECT fencelock.in_transaction('job')").await.unwrap();
    assert_eq!(code(other.batch_execute("SELECT fencelock.in_transaction(NULL)").await), "22004");
}

/// The snapshot of such a transaction is older than its wait for the lock, and lacks the last holder's commit.
#[tokio::test]
async fn a_lock_in_a_transaction_above_read_committed_is_refused_since_its_reads_would_be_older_than_the_lock() {
    let (url, _) = database();
    client(&url, 60_000).await;
    let user = connection(&url).await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        user.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}")).await.unwrap();
        assert_eq!(code(user.batch_execute("SELECT fencelock.in_transaction('job')").await), "FL003", "{level}");
        user.batch_execute("ROLLBACK").await.unwrap();
    }
}

/// A helper of the tests of fences.
trait Token {
    async fn release_with_token(self) -> i64;
}

impl Token for fencelock::Guard {
    async fn release_with_token(self) -> i64 {
        let token = self.token().unwrap().to_i64();
        self.release().await.unwrap();
        token
    }
}
