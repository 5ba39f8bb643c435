//! Servers that limit, refuse or lack something, and what is not for the procedures.

use fencelock::{ErrorKind, Name};
use fencelock_testbed::mysql::{Server, Settings};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};

use crate::lab::{
    STATEMENTS, acquire, acquiring, client, connection, database, refusals, refused, refused_because, soon, state,
    until, until_queued,
};

async fn refusal(url: &str, part: &str) -> fencelock::Error {
    refused_because(&format!("{url}?ttl_ms=60000"), part).await
}

#[tokio::test]
async fn a_server_whose_limits_are_short_costs_no_lock_and_no_wake_up() {
    let limits = ["--wait-timeout=2", "--innodb-lock-wait-timeout=1", "--lock-wait-timeout=1"];
    let modes =
        ["--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH", "--transaction-isolation=SERIALIZABLE"];
    let zones = ["--default-time-zone=+05:00", "--autocommit=0", "--character-set-server=latin1"];
    let settings = limits
        .iter()
        .chain(&STATEMENTS)
        .chain(&modes)
        .chain(&zones)
        .fold(Settings::default(), |settings, one| settings.with(one));
    let server = Server::start(settings).unwrap();
    let (one, other) = (client(&server.url(), 60_000).await, client(&server.url(), 60_000).await);
    let name = "stra\u{df}e 'x' \"y\" \\z `";
    let guard = acquire(&one, name).await;
    let waiting = acquiring(&other, name);
    until_queued(&one, name, 2).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_server_that_keeps_no_time_of_its_own_for_a_row_that_waited_is_refused() {
    let server = Server::start(Settings::default().with("--sysdate-is-now")).unwrap();
    let error = refusal(&server.url(), "--sysdate-is-now").await;
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

/// The same holds where the definer of the procedures may write on a read-only server.
#[tokio::test]
async fn a_server_that_is_read_only_grants_nothing_and_is_looked_at() {
    let server = Server::start(Settings::default()).unwrap();
    let admin = format!("mysql://root@{}/fencelock", server.address());
    let holder = client(&admin, 60_000).await;
    let guard = acquire(&holder, "job").await;
    server.sql("SET GLOBAL read_only = 1").unwrap();
    let error = refusal(&server.url(), "read-only").await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    // The holder's connection is older than the setting.
    let error = holder.mutex("other").unwrap().try_acquire().await.unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
    let mut user = connection(&server.url()).await;
    assert_eq!(user.query::<i64, _>("SELECT seq FROM fencelock_place").await.unwrap().len(), 1);
    server.sql("SET GLOBAL read_only = 0").unwrap();
    soon(guard.release()).await.unwrap();
}

#[tokio::test]
async fn a_call_inside_of_a_transaction_is_refused_and_the_transaction_continues() {
    let url = database();
    let one = client(&url, 60_000).await;
    drop(acquire(&one, "job").await);
    let mut user = connection(&url).await;
    user.query_drop("SET time_zone = '+00:00'").await.unwrap();
    user.query_drop("CREATE TABLE mine (a INT) ENGINE = InnoDB").await.unwrap();
    for begin in ["BEGIN", "SET autocommit = 0"] {
        user.query_drop(begin).await.unwrap();
        user.query_drop("INSERT INTO mine VALUES (1)").await.unwrap();
        assert_eq!(state(user.query_drop("CALL fencelock_close(1)").await), "25001", "{begin}");
        user.query_drop("ROLLBACK").await.unwrap();
        assert_eq!(user.query_first::<i64, _>("SELECT COUNT(*) FROM mine").await.unwrap(), Some(0), "{begin}");
    }
    user.query_drop("COMMIT").await.unwrap();
    user.query_drop("SET time_zone = '+01:00'").await.unwrap();
    assert_eq!(state(user.query_drop("CALL fencelock_close(1)").await), "FL003");
}

#[tokio::test]
async fn tables_of_another_engine_and_of_others_are_refused() {
    let url = database();
    drop(acquire(&client(&url, 60_000).await, "job").await);
    let mut admin = connection(&url).await;
    admin.query_drop("ALTER TABLE fencelock_session ENGINE = MyISAM").await.unwrap();
    let error = refusal(&url, "InnoDB").await;
    assert_eq!(error.kind(), ErrorKind::Layout, "{error}");
    admin.query_drop("ALTER TABLE fencelock_session ENGINE = InnoDB").await.unwrap();
    admin.query_drop("UPDATE fencelock_layout SET version = 9").await.unwrap();
    let error = refusal(&url, "layout 9").await;
    assert_eq!(error.kind(), ErrorKind::Layout, "{error}");
}

#[tokio::test]
async fn where_no_client_may_ring_waiters_look_and_get_the_lock() {
    let server = Server::start(Settings::default()).unwrap();
    // The definer may not end queries of other accounts.
    let mut maker = client(&server.url(), 60_000).await;
    drop(acquire(&maker, "job").await);
    server.sql("CREATE USER guest@'%'; GRANT EXECUTE ON fencelock.* TO guest@'%'").unwrap();
    let url = format!("mysql://guest@{}/fencelock", server.address());
    let (mut ear, mut user) = (connection(&url).await, connection(&url).await);
    ear.query_drop("SELECT GET_LOCK('fencelock_0123456789abcdef', 0)").await.unwrap();
    let refused: Option<i64> = user.query_first("CALL fencelock_try_bell('fencelock_0123456789abcdef')").await.unwrap();
    assert_eq!(refused, Some(1095));
    let (one, other) = (client(&url, 60_000).await, client(&url, 60_000).await);
    for _ in 0..3 {
        let guard = acquire(&one, "job").await;
        let waiting = acquiring(&other, "job");
        until_queued(&one, "job", 2).await;
        guard.release().await.unwrap();
        soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    }
    maker = client(&server.url(), 60_000).await;
    acquire(&maker, "job").await.release().await.unwrap();
}

#[tokio::test]
async fn connections_that_are_ended_at_the_server_cost_no_lock_and_no_wake_up() {
    let server = Server::start(Settings::default()).unwrap();
    let (one, other) = (client(&server.url(), 60_000).await, client(&server.url(), 60_000).await);
    for _ in 0..5 {
        let guard = acquire(&one, "job").await;
        let waiting = acquiring(&other, "job");
        until_queued(&one, "job", 2).await;
        let theirs = "SELECT id FROM information_schema.processlist WHERE user = 'fencelock'";
        for connection in server.sql(theirs).unwrap().lines() {
            // A connection may have ended by itself.
            let _ = server.sql(&format!("KILL {connection}"));
        }
        guard.check().unwrap();
        soon(guard.release()).await.unwrap();
        soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    }
}

/// The definer has more rights than the caller: a procedure must not end the query of a stranger that has a named lock.
#[tokio::test]
async fn a_bell_is_a_name_of_ours() {
    let url = database();
    drop(acquire(&client(&url, 60_000).await, "job").await);
    let mut user = connection(&url).await;
    user.query_drop("SET time_zone = '+00:00'").await.unwrap();
    for bell in ["theirs", "fencelock_", "fencelock_0123456789abcde,", "fencelock_0123456789abcdef0"] {
        assert_eq!(state(user.exec_drop("CALL fencelock_try_bell(?)", (bell,)).await), "45000", "{bell}");
        let opened = user.exec_drop("CALL fencelock_open(77, ?, 1000000, 'h', 1, 1)", (bell,)).await;
        assert_eq!(state(opened), "45000", "{bell}");
    }
}

#[tokio::test]
async fn a_bucket_that_a_foreign_transaction_locks_is_an_error_and_another_name_is_granted_meanwhile() {
    let url = database();
    let one = client(&url, 6_000).await;
    drop(acquire(&one, "job").await);
    until_queued(&one, "job", 0).await;
    let mut user = connection(&url).await;
    user.query_drop("BEGIN").await.unwrap();
    user.query_drop("SELECT * FROM fencelock_bucket WHERE b = CONV(LEFT(SHA2('job', 256), 3), 16, 10) FOR UPDATE")
        .await
        .unwrap();
    let error = one.mutex("job").unwrap().try_acquire().await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    // The connection serves one request at a time, and the withdrawal of the first one may take up the second's time.
    until("another name is granted", async || one.mutex("another").unwrap().try_acquire().await.is_ok()).await;
    user.query_drop("ROLLBACK").await.unwrap();
    until("it is free again", async || one.mutex("job").unwrap().try_acquire().await.is_ok()).await;
}

#[tokio::test]
async fn names_of_five_hundred_and_twelve_bytes_are_distinguished_by_the_last_one() {
    let one = client(&database(), 60_000).await;
    let name = |last: char| format!("{}{last}", "n".repeat(511));
    let (first, second) = (acquire(&one, &name('a')).await, acquire(&one, &name('A')).await);
    drop((first, second));
}

#[tokio::test]
async fn a_connection_is_encrypted_and_the_server_verified_by_its_name() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    // The server runs as another user.
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    std::fs::write(&certificate, cert.pem()).unwrap();
    std::fs::write(&key, signing_key.serialize_pem()).unwrap();
    let settings = Settings::default()
        .with(&format!("--ssl-cert={}", certificate.display()))
        .with(&format!("--ssl-key={}", key.display()));
    let server = Server::start(settings).unwrap();
    let at = |url: String, host: &str| {
        let url = url.replace("127.0.0.1", host);
        format!("{url}?sslmode=verify-full&tls_ca={}", certificate.display())
    };
    let one = client(&at(server.url(), "localhost"), 60_000).await;
    acquire(&one, "job").await.release().await.unwrap();
    let accepted = server.sql("SHOW GLOBAL STATUS LIKE 'Ssl_finished_accepts'").unwrap();
    assert!(!accepted.trim().ends_with("\t0"), "{accepted}");
    refused_because(&at(server.url(), "127.0.0.1"), "not trusted").await;
    let plain = Server::start(Settings::default().with("--skip-ssl")).unwrap();
    let error = refused_because(&at(plain.url(), "localhost"), "does not encrypt").await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn where_the_memory_may_lack_a_holder_no_client_is_granted_and_tokens_rise_over_a_restored_backup() {
    let url = database();
    let one = client(&url, 3_600_000).await;
    let guard = acquire(&one, "job").await;
    let before = guard.token().unwrap();
    guard.release().await.unwrap();
    let mut admin = connection(&url).await;
    admin.query_drop("UPDATE fencelock_bucket SET last = 0").await.unwrap();
    let guard = acquire(&one, "job").await;
    assert!(guard.token().unwrap() > before);
    guard.release().await.unwrap();
    // The state that a replica with another number finds, or a server with a restored dump.
    admin.query_drop("UPDATE fencelock_layout SET mark = 'another server'").await.unwrap();
    let other = client(&url, 60_000).await;
    for error in refusals(&other, "job", "no client is granted a lock until 2").await {
        assert!(error.contains(", because this server") && !error.contains("held by"), "{error}");
    }
    let waiting = acquiring(&other, "job");
    until_queued(&one, "job", 1).await;
    assert!(!waiting.is_finished());
    assert!(one.queue(&Name::new("job").unwrap()).await.unwrap().closed.is_some());
    admin.query_drop("UPDATE fencelock_layout SET quiet_until = 0").await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(one.queue(&Name::new("job").unwrap()).await.unwrap().closed, None);
}

/// Otherwise a client with a ttl of a day would cost a day at each failover.
#[tokio::test]
async fn a_session_that_ended_is_not_waited_for_after_a_failover() {
    let url = database();
    drop(acquire(&client(&url, 60_000).await, "job").await);
    let mut admin = connection(&url).await;
    admin
        .query_drop("UPDATE fencelock_layout SET mark = 'another server', longest = 86400000000, quiet_until = 0")
        .await
        .unwrap();
    let _next = client(&url, 60_000).await;
    let after: Option<(i64, i64)> = admin.query_first("SELECT longest, quiet_for FROM fencelock_layout").await.unwrap();
    assert_eq!(after, Some((60_000_000, 60_000_000)));
}

/// The answers of one call that begins a session, joins a queue or looks, in a session of the procedures' time zone.
async fn called(user: &mut Conn, call: &str) -> Vec<Option<i64>> {
    let row: Row = user.query_first(call).await.unwrap().unwrap();
    (0..row.len()).map(|at| row.get::<Option<i64>, _>(at).unwrap()).collect()
}

/// A repeated request for a waiting place gets the time of the next look, as the first one did: the time at which the holder may be
/// dead.
#[tokio::test]
async fn a_repeated_request_that_waits_gets_the_time_of_its_next_look() {
    let url = database();
    drop(client(&url, 60_000).await.mutex("made").unwrap().try_acquire().await.unwrap());
    let mut user = connection(&url).await;
    user.query_drop("SET time_zone = '+00:00'").await.unwrap();
    for (session, bell) in [(77, "fencelock_0000000000000077"), (78, "fencelock_0000000000000078")] {
        called(&mut user, &format!("CALL fencelock_open({session}, '{bell}', 60000000, 'h', 1, 1)")).await;
    }
    let enter =
        |session, again| format!("CALL fencelock_enter({session}, 1, 'job', 1, {session}, 1, 1, 1, {again}, NULL)");
    assert_eq!(called(&mut user, &enter(77, 0)).await[0], Some(0));
    let (first, again) = (called(&mut user, &enter(78, 0)).await, called(&mut user, &enter(78, 1)).await);
    assert_eq!(first[..2], again[..2]);
    for answer in [first, again] {
        assert!(answer[0] == Some(1) && answer[2].is_some_and(|look_in| look_in > 0), "{answer:?}");
    }
}

/// A look that fails at its second name has notified the contender that it granted at the first.
#[tokio::test]
async fn a_look_that_fails_at_one_name_tells_whom_it_let_in_at_another() {
    let url = database();
    drop(client(&url, 60_000).await.mutex("made").unwrap().try_acquire().await.unwrap());
    let (mut user, mut ear, mut other) = (connection(&url).await, connection(&url).await, connection(&url).await);
    user.query_drop("SET time_zone = '+00:00', innodb_lock_wait_timeout = 1").await.unwrap();
    for session in 77..80 {
        let open = format!("CALL fencelock_open({session}, 'fencelock_00000000000000{session}', 60000000, 'h', 1, 1)");
        called(&mut user, &open).await;
    }
    for (session, name) in [(77, "a"), (77, "b"), (78, "a"), (79, "b")] {
        let number = if name == "a" { 1 } else { 2 };
        let enter = format!("CALL fencelock_enter({session}, 1, '{name}', 1, {number}, 1, 1, 1, 0, NULL)");
        called(&mut user, &enter).await;
    }
    user.query_drop("UPDATE fencelock_session SET expires = 1 WHERE id = 77").await.unwrap();
    other.query_drop("START TRANSACTION").await.unwrap();
    other.query_drop("SELECT * FROM fencelock_session WHERE id = 79 FOR UPDATE").await.unwrap();
    ear.query_drop("DO GET_LOCK('fencelock_0000000000000078', 10)").await.unwrap();
    let sleeps =
        format!("SELECT COUNT(*) FROM information_schema.processlist WHERE id = {} AND state = 'User sleep'", ear.id());
    let listens = tokio::spawn(async move { ear.query_drop("DO SLEEP(3600)").await });
    // A ring before the sleep would end nothing.
    until("the listener sleeps", async || other.query_first::<u64, _>(&sleeps).await.unwrap() == Some(1)).await;
    let failed = user.query_drop(r#"CALL fencelock_look(78, '[["61", 1], ["62", 1]]')"#).await.unwrap_err();
    assert!(matches!(failed, mysql_async::Error::Server(error) if error.code == 1205));
    // The ring ends the sleep, which MariaDB reports as a success.
    let _ = soon(listens).await.unwrap();
    other.query_drop("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn a_table_with_a_column_of_another_release_is_refused_as_another_layout() {
    let url = database();
    acquire(&client(&url, 60_000).await, "job").await.release().await.unwrap();
    let altered = "ALTER TABLE fencelock_session ADD COLUMN other INT NOT NULL";
    connection(&url).await.query_drop(altered).await.unwrap();
    let error = refused(&url).await;
    assert!(error.kind() == ErrorKind::Layout && error.to_string().contains("1136"), "{error}");
}
