//! Bad input and edges: modes and collations of the server, accounts that may too little, tables that another client
//! locked.

use fencelock::mysql::Schema;
use fencelock::{Client, ErrorKind};
use fencelock_testbed::mysql::{Server, Settings};
use mysql_async::prelude::Queryable;

use crate::lab::{
    OFTEN, acquire, acquiring, client, connection, database, is_mariadb, migrated, refused, soon, transactions, until,
    with,
};
use crate::tables::TABLE;

const LONG: u64 = 60_000;

async fn refusal(client: &Client, name: &str) -> fencelock::Error {
    soon(client.mutex(name).unwrap().try_acquire()).await.expect_err("it is held")
}

/// The number of the server's error.
fn number<T: std::fmt::Debug>(answer: mysql_async::Result<T>) -> u16 {
    match answer.unwrap_err() {
        mysql_async::Error::Server(error) => error.code,
        error => panic!("{error}"),
    }
}

/// The server's modes do not affect other programs' layouts. On a read-only server these layouts grant nothing.
#[tokio::test]
async fn layouts_of_others_are_the_same_under_every_mode_and_grant_nothing_on_a_replica() {
    let modes = "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,PIPES_AS_CONCAT";
    let server = Server::start(Settings::default().with(modes).with("--autocommit=0")).unwrap();
    let layouts = ["layout=distributed_lock", "layout=shedlock", "layout=get_lock&key=exact"];
    for layout in &layouts[..2] {
        // As an administrator would make them by hand: in a session with the server's modes.
        server.sql(&Schema::of(&with(&server.url(), layout)).unwrap().statements(&[])).unwrap();
    }
    let name = "'x' \"y\" \\z `%_";
    for layout in layouts {
        let url = with(&server.url(), layout);
        let (one, other) = (client(&url, LONG).await, client(&url, LONG).await);
        let guard = acquire(&one, name).await;
        assert!(refusal(&other, name).await.is_contention(), "{layout}");
        if layout != layouts[2] {
            assert_eq!(one.names("", None, 10).await.unwrap()[0].as_str(), name, "{layout}");
        }
        let waiting = acquiring(&other, name);
        guard.release().await.unwrap();
        soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    }
    server.sql("SET GLOBAL read_only = 1").unwrap();
    for layout in layouts {
        let url = with(&server.url(), &format!("{layout}&ttl_ms={LONG}"));
        until(&format!("{layout} is refused, as the server is read-only"), async || {
            let error = match Client::connect(&url).await {
                Ok(client) => soon(client.mutex(name).unwrap().try_acquire()).await.unwrap_err(),
                Err(error) => error,
            };
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{layout}: {error}");
            error.to_string().contains("read-only")
        })
        .await;
    }
}

/// Procedures keep the mode in which they are made.
#[tokio::test]
async fn statements_that_an_administrator_runs_in_a_session_of_other_modes_make_the_same_procedures() {
    let server = Server::start(Settings::default().with("--sql-mode=ORACLE,ANSI_QUOTES,NO_BACKSLASH_ESCAPES")).unwrap();
    server.sql(&Schema::of(&server.url()).unwrap().statements(&["fencelock"])).unwrap();
    let modes = server.sql("SELECT DISTINCT sql_mode FROM information_schema.routines").unwrap();
    assert_eq!(modes.trim(), "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION");
    acquire(&client(&server.url(), LONG).await, "job").await.release().await.unwrap();
}

/// Names that are equal by the collation of the key are one lock: fewer locks are held at once, never more.
#[tokio::test]
async fn names_that_the_collation_of_the_table_takes_for_one_are_one_lock() {
    for (layout, ends, ddl) in [
        ("layout=distributed_lock", "SELECT CAST(MIN(expire_time) AS CHAR) FROM distributed_lock", TABLE),
        (
            "layout=shedlock",
            "SELECT CAST(MIN(lock_until) AS CHAR) FROM shedlock",
            "CREATE TABLE shedlock (name VARCHAR(64) PRIMARY KEY, lock_until DATETIME(3) NOT NULL, locked_at DATETIME(3) NOT NULL, locked_by VARCHAR(255) NOT NULL) ",
        ),
    ] {
        let url = database();
        let ddl = format!("{ddl} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci");
        let mut user = connection(&url).await;
        user.query_drop(ddl).await.unwrap();
        let (one, other) =
            (client(&with(&with(&url, layout), OFTEN), LONG).await, client(&with(&url, layout), LONG).await);
        let guard = acquire(&one, "job").await;
        for alike in ["Job", "job  ", "j\u{f6}b"] {
            for client in [&one, &other] {
                assert!(refusal(client, alike).await.is_contention(), "{layout}: {alike}");
            }
        }
        // Renewed together with another one, and released under its own name alone.
        let different = acquire(&one, "jobs").await;
        let waiting = acquiring(&other, "JOB");
        let first: Option<String> = user.query_first(ends).await.unwrap();
        until("the rows were renewed", async || user.query_first(ends).await.unwrap() != first).await;
        guard.check().unwrap();
        different.check().unwrap();
        guard.release().await.unwrap();
        let theirs = soon(waiting).await.unwrap().unwrap();
        assert!(refusal(&one, "job").await.is_contention(), "{layout}");
        theirs.check().unwrap();
        theirs.release().await.unwrap();
        different.release().await.unwrap();
    }
}

/// A client has locked a whole table, as some backups do: other clients get an error, and no lock is lost.
#[tokio::test]
async fn locked_tables_are_waited_for_and_reported() {
    let url = database();
    let (one, mut user) = (client(&with(&url, "request_deadline_ms=9000"), LONG).await, connection(&url).await);
    let held = acquire(&one, "held").await;
    user.query_drop("LOCK TABLES fencelock_place READ").await.unwrap();
    let error = one.mutex("job").unwrap().try_acquire().await.unwrap_err();
    assert!(error.is_retryable() && error.kind() == ErrorKind::Busy, "{error}");
    held.check().unwrap();
    user.query_drop("UNLOCK TABLES").await.unwrap();
    soon(held.release()).await.unwrap();
    until("it is free again", async || one.mutex("job").unwrap().try_acquire().await.is_ok()).await;

    user.query_drop(TABLE).await.unwrap();
    let theirs = client(&with(&url, "layout=distributed_lock"), LONG).await;
    user.query_drop("LOCK TABLES distributed_lock WRITE").await.unwrap();
    assert!(refusal(&theirs, "job").await.is_contention());
    let waiting = acquiring(&theirs, "job");
    user.query_drop("UNLOCK TABLES").await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// In a session with `LOCK TABLES` in force the procedures can lock no row, and grant nothing.
#[tokio::test]
async fn a_session_in_which_lock_tables_is_in_force_calls_no_procedure() {
    let url = database();
    let one = client(&url, LONG).await;
    let guard = acquire(&one, "job").await;
    let token = guard.token().unwrap().to_i64();
    let mut user = connection(&url).await;
    user.query_drop("SET time_zone = '+00:00'").await.unwrap();
    user.query_drop("CREATE TABLE mine (a INT) ENGINE = InnoDB").await.unwrap();
    user.query_drop("LOCK TABLES mine WRITE").await.unwrap();
    let refused = if is_mariadb(&mut user).await { 1644 } else { 1100 };
    assert_eq!(number(user.exec_drop("CALL fencelock_hold('job', ?)", (token,)).await), refused);
    assert_eq!(number(user.query_drop("CALL fencelock_close(1)").await), 1100);
    user.query_drop("INSERT INTO mine VALUES (1)").await.unwrap();
    user.query_drop("UNLOCK TABLES").await.unwrap();
    user.query_drop("BEGIN").await.unwrap();
    user.exec_drop("CALL fencelock_hold('job', ?)", (token,)).await.unwrap();
    user.query_drop("COMMIT").await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn the_error_for_an_account_without_rights_lists_what_it_needs() {
    let server = Server::start(Settings::default()).unwrap();
    let at = |user: &str| format!("mysql://{user}:secret@{}/fencelock", server.address());
    let admin = Schema::of(&format!("mysql://root@{}/fencelock", server.address())).unwrap();
    server
        .sql(
            "CREATE USER maker@'%' IDENTIFIED BY 'secret'; GRANT CREATE, SELECT, INSERT, UPDATE, DELETE, EXECUTE ON fencelock.* TO maker@'%'; \
             CREATE USER caller@'%' IDENTIFIED BY 'secret'; GRANT SELECT ON fencelock.* TO caller@'%'; \
             CREATE USER stranger@'%' IDENTIFIED BY 'secret'",
        )
        .unwrap();
    // No CREATE ROUTINE, no CREATE, and nothing at all in this database.
    let error = refused(&at("maker")).await;
    assert!(
        error.kind() == ErrorKind::Denied && error.to_string().contains("fencelock migrate URL --grant"),
        "{error}"
    );
    let error = refused(&at("caller")).await;
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("fencelock migrate"), "{error}");
    let error = refused(&at("stranger")).await;
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("may not use this database"), "{error}");
    // The procedures exist, and the user may not call them.
    migrated(async || admin.migrate(&[]).await).await;
    let error = refused(&at("caller")).await;
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("EXECUTE"), "{error}");
    migrated(async || admin.migrate(&["caller"]).await).await;
    acquire(&client(&at("caller"), LONG).await, "job").await.release().await.unwrap();
}

#[tokio::test]
async fn an_account_that_needs_tls_or_another_login_gets_that_error() {
    let server = Server::start(Settings::default()).unwrap();
    server
        .sql("CREATE USER safe@'%' IDENTIFIED BY 'secret' REQUIRE SSL; GRANT ALL ON fencelock.* TO safe@'%'")
        .unwrap();
    server
        .sql("INSTALL SONAME 'auth_ed25519'; CREATE USER other@'%' IDENTIFIED VIA ed25519 USING PASSWORD('secret')")
        .unwrap();
    let at = |user: &str| format!("mysql://{user}:secret@{}/fencelock", server.address());
    let error = refused(&at("safe")).await;
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("TLS"), "{error}");
    let error = refused(&at("other")).await;
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("ed25519"), "{error}");
    server.sql("SET GLOBAL require_secure_transport = 1").unwrap();
    let error = refused(&at("fencelock")).await;
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("TLS"), "{error}");
}

/// The server refuses such a request (1020) where a session keeps snapshots isolated, as MariaDB 11.6.2 and newer do by default.
#[tokio::test]
async fn an_acquire_waits_for_the_release_of_the_row_that_it_adds_where_snapshots_are_isolated() {
    let server = Server::start(Settings::default().with("--loose-innodb-snapshot-isolation=1")).unwrap();
    let (holder, other) = (client(&server.url(), LONG).await, client(&server.url(), LONG).await);
    let _held = acquire(&holder, "job").await;
    let mut root = connection(&format!("mysql://root@{}/fencelock", server.address())).await;
    let mut releasing = connection(&server.url()).await;
    releasing.query_drop("BEGIN").await.unwrap();
    for table in ["queue", "place"] {
        releasing.query_drop(format!("DELETE FROM fencelock_{table} WHERE name = 'job'")).await.unwrap();
    }
    let arrives = acquiring(&other, "job");
    until("the arrival waits", async || transactions(&mut root, "trx_state = 'LOCK WAIT'").await == 1).await;
    releasing.query_drop("COMMIT").await.unwrap();
    soon(arrives).await.unwrap().unwrap().release().await.unwrap();
}
