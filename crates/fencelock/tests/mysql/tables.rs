//! Lock tables of other clients, shared with programs that write them by hand.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use fencelock::mysql::{Migration, Schema};
use fencelock::{Client, ErrorKind, Loss, Name};
use fencelock_testbed::mysql::{Server, Settings};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::lab::{
    OFTEN, acquire, acquiring, client, connection, database, is_mariadb, migrated, refused, soon, until, with,
};

/// The table of tutorials.
pub(crate) const TABLE: &str = "CREATE TABLE distributed_lock (id BIGINT AUTO_INCREMENT PRIMARY KEY, lock_key VARCHAR(64) NOT NULL UNIQUE, lock_value VARCHAR(255) NOT NULL, \
     expire_time DATETIME NOT NULL, created_at DATETIME DEFAULT CURRENT_TIMESTAMP)";

/// No test waits for this.
const LONG: u64 = 60_000;

/// A database with this table: its URL, and that of the layout.
async fn with_table(ddl: &str) -> (String, String) {
    let url = database();
    connection(&url).await.query_drop(ddl).await.unwrap();
    let layout = with(&url, "layout=distributed_lock");
    (url, layout)
}

/// A program of the tutorial: whether it has the lock, which it takes for a minute. The program repeats a statement that
/// the server rolled back.
async fn takes(user: &mut Conn, key: &str, value: &str) -> bool {
    loop {
        let cleaned = user.query_drop("DELETE FROM distributed_lock WHERE expire_time < NOW()").await;
        let insert = "INSERT INTO distributed_lock (lock_key, lock_value, expire_time) VALUES (?, ?, DATE_ADD(NOW(), INTERVAL 1 MINUTE))";
        let taken = match cleaned {
            Ok(()) => user.exec_drop(insert, (key, value)).await,
            undone => undone,
        };
        match taken {
            Ok(()) => return true,
            Err(mysql_async::Error::Server(error)) if error.code == 1062 => return false,
            Err(mysql_async::Error::Server(error)) if error.code == 1213 => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The release. Returns whether the user had the lock.
async fn releases(user: &mut Conn, key: &str, value: &str) -> bool {
    loop {
        let delete = "DELETE FROM distributed_lock WHERE lock_key = ? AND lock_value = ?";
        match user.exec_drop(delete, (key, value)).await {
            Ok(()) => return user.affected_rows() == 1,
            Err(mysql_async::Error::Server(error)) if error.code == 1213 => {}
            Err(error) => panic!("{error}"),
        }
    }
}

async fn rows(user: &mut Conn) -> Vec<(String, String)> {
    user.query("SELECT lock_key, lock_value FROM distributed_lock ORDER BY 1").await.unwrap()
}

async fn refusal(client: &Client, name: &str) -> fencelock::Error {
    soon(client.mutex(name).unwrap().try_acquire()).await.expect_err("it is held")
}

#[tokio::test]
async fn programs_of_the_tutorial_and_fencelocks_exclude_each_other() {
    let (url, layout) = with_table(TABLE).await;
    let (inside, counted) = (AtomicUsize::new(0), AtomicI64::new(0));
    let works = || {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
        counted.fetch_add(1, Ordering::SeqCst);
        inside.fetch_sub(1, Ordering::SeqCst);
    };
    let theirs = async |name: &str| {
        let mut user = connection(&url).await;
        for round in 0..25 {
            let value = format!("{name}-{round}");
            until("the lock is free", async || takes(&mut user, "job", &value).await).await;
            works();
            // The next one may have come only after this.
            tokio::task::yield_now().await;
            assert!(releases(&mut user, "job", &value).await, "a client deleted the row of another one");
        }
    };
    let ours = async || {
        let client = client(&layout, LONG).await;
        for _ in 0..25 {
            let guard = acquire(&client, "job").await;
            works();
            tokio::task::yield_now().await;
            soon(guard.release()).await.unwrap();
        }
    };
    soon(async { tokio::join!(theirs("a"), theirs("b"), ours(), ours()) }).await;
    assert_eq!(counted.load(Ordering::SeqCst), 100);
    assert_eq!(rows(&mut connection(&url).await).await, []);
}

#[tokio::test]
async fn another_clients_row_is_left_alone_until_it_expires_and_taken_over_then() {
    let (url, layout) = with_table(TABLE).await;
    let (mut user, client) = (connection(&url).await, client(&layout, LONG).await);
    assert!(takes(&mut user, "job", "theirs").await);
    let error = refusal(&client, "job").await;
    assert!(error.is_contention() && !error.to_string().contains("theirs"), "{error}");
    let waiting = acquiring(&client, "job");
    assert_eq!(rows(&mut user).await, [("job".to_owned(), "theirs".to_owned())]);
    let queue = client.queue("job").await.unwrap();
    assert_eq!(queue.contenders[0].foreign.unwrap().what, "a row of another program");
    let shown = format!("{queue:?}");
    assert!(!shown.contains("theirs"), "{shown}");
    user.query_drop("UPDATE distributed_lock SET expire_time = DATE_SUB(NOW(), INTERVAL 1 SECOND)").await.unwrap();
    let guard = soon(waiting).await.unwrap().unwrap();
    assert!(!releases(&mut user, "job", "theirs").await, "who expired released a lock of others");
    assert!(!takes(&mut user, "job", "theirs").await, "another client took our lock");
    assert!(guard.token().is_none());
    let held = client.queue("job").await.unwrap();
    assert_eq!(held.contenders[0].id.client, client.owner().client);
    guard.release().await.unwrap();
    assert_eq!(rows(&mut user).await, []);
}

#[tokio::test]
async fn a_holder_whose_row_is_deleted_or_taken_is_notified_and_releases_nothing_of_others() {
    let (url, layout) = with_table(TABLE).await;
    let (mut user, client) = (connection(&url).await, client(&with(&layout, OFTEN), LONG).await);
    for change in [
        "DELETE FROM distributed_lock",
        "UPDATE distributed_lock SET lock_value = 'theirs', expire_time = DATE_ADD(NOW(), INTERVAL 1 HOUR)",
    ] {
        let guard = acquire(&client, "job").await;
        user.query_drop(change).await.unwrap();
        assert_eq!(soon(guard.lost()).await, Loss::Removed);
        guard.release().await.unwrap_err();
    }
    assert_eq!(rows(&mut user).await, [("job".to_owned(), "theirs".to_owned())]);
}

/// A renewal within the same second finds the row and changes nothing in it.
#[tokio::test]
async fn ends_of_whole_seconds_never_say_less_than_the_holder_believes_and_renewals_count() {
    let (url, layout) = with_table(TABLE).await;
    let mut user = connection(&url).await;
    let client = client(&with(&layout, OFTEN), LONG).await;
    for _ in 0..3 {
        let before: String =
            user.query_first("SELECT CAST(SYSDATE(6) + INTERVAL 60 SECOND AS CHAR)").await.unwrap().unwrap();
        let held = [acquire(&client, "job").await, acquire(&client, "other").await, acquire(&client, "third").await];
        let least = "SELECT CAST(MIN(expire_time) AS CHAR), MIN(expire_time >= ?) FROM distributed_lock";
        let (first, is_enough): (String, bool) = user.exec_first(least, (before,)).await.unwrap().unwrap();
        assert!(is_enough, "{first}");
        until("the rows were renewed", async || {
            let row: (String, bool) = user.exec_first(least, ("2000-01-01",)).await.unwrap().unwrap();
            row.0 != first
        })
        .await;
        for guard in held {
            guard.check().unwrap();
            guard.release().await.unwrap();
        }
    }
}

/// Columns of type `TIMESTAMP` are moments, and are the same in every session.
#[tokio::test]
async fn times_are_those_of_the_zone_that_the_others_mean() {
    let (url, layout) = with_table(TABLE).await;
    let at = |zone: &str| with(&layout, &format!("zone={zone}"));
    let error = refused(&at("Mars/Olympus")).await;
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("tzinfo"), "{error}");
    let (mut user, ahead) = (connection(&url).await, client(&at("+09:00"), LONG).await);
    user.query_drop("SET time_zone = '+09:00'").await.unwrap();
    let guard = acquire(&ahead, "job").await;
    assert!(!takes(&mut user, "job", "theirs").await, "it looks expired there");
    guard.release().await.unwrap();
    assert!(takes(&mut user, "job", "theirs").await);
    assert!(refusal(&ahead, "job").await.is_contention());
    let (url, layout) = with_table(&TABLE.replace("expire_time DATETIME", "expire_time TIMESTAMP")).await;
    let error = refused(&with(&layout, "zone=SYSTEM")).await;
    assert!(error.kind() == ErrorKind::Layout && error.to_string().contains("leave the option"), "{error}");
    let (mut user, client) = (connection(&url).await, client(&layout, LONG).await);
    user.query_drop("SET time_zone = '-05:00'").await.unwrap();
    let guard = acquire(&client, "job").await;
    assert!(!takes(&mut user, "job", "theirs").await, "it looks expired there");
    guard.release().await.unwrap();
    assert!(takes(&mut user, "job", "theirs").await && refusal(&client, "job").await.is_contention());
}

/// For a tutorial's `datetime` and ShedLock's `timestamp`, the zone of a session decides which time is read and written.
#[tokio::test]
async fn the_error_proposes_the_zone_that_sessions_of_the_server_have_and_other_words_for_it_are_refused() {
    let shedlock = TABLE.replace("distributed_lock", "shedlock").replace("expire_time DATETIME", "a TIMESTAMP");
    let shedlock = shedlock.replace("created_at DATETIME DEFAULT CURRENT_TIMESTAMP", "b TIMESTAMP(3)");
    // The abbreviation of the second zone is no zone's name; the abbreviation of the third is the name of another zone.
    for (option, sessions, system) in [
        ("--default-time-zone=+05:00", "+05:00", "UTC"),
        ("--default-time-zone=SYSTEM", "SYSTEM", "Asia/Karachi"),
        ("--default-time-zone=SYSTEM", "SYSTEM", "UTC-5"),
        ("--init-connect=SET time_zone = '+05:00'", "+05:00", "UTC"),
    ] {
        let settings = Settings { system_zone: Some(system.to_owned()), ..Settings::default() };
        let server = Server::start(settings.with(option)).unwrap();
        server.sql(&format!("USE fencelock; {TABLE}; {shedlock}")).unwrap();
        let proposed = format!("zone={sessions}");
        for layout in ["layout=distributed_lock", "layout=shedlock&columns=lock_key,a,b,lock_value"] {
            let url = with(&server.url(), layout);
            let error = refused(&url).await;
            assert!(error.kind() == ErrorKind::Layout && error.to_string().contains(&proposed), "{error}");
            if sessions != "SYSTEM" {
                let error = refused(&with(&url, "zone=System")).await;
                assert!(error.kind() == ErrorKind::Config && error.to_string().contains(&proposed), "{error}");
            }
        }
        let mut user = connection(&server.url()).await;
        let client = async |layout| client(&with(&with(&server.url(), layout), &proposed), LONG).await;
        let shared = client("layout=shedlock&columns=lock_key,a,b,lock_value").await;
        let guard = acquire(&shared, "job").await;
        let is_right = "SELECT a BETWEEN UTC_TIMESTAMP() AND UTC_TIMESTAMP() + INTERVAL 2 MINUTE FROM shedlock";
        assert_eq!(user.query_first(is_right).await.unwrap(), Some(1), "{sessions} {system}");
        guard.release().await.unwrap();
        let shared = client("layout=distributed_lock").await;
        let guard = acquire(&shared, "job").await;
        assert!(!takes(&mut user, "job", "theirs").await, "{sessions} {system}: two hold");
        guard.release().await.unwrap();
        assert!(takes(&mut user, "job", "theirs").await && refusal(&shared, "job").await.is_contention());
    }
}

#[tokio::test]
async fn a_transaction_that_stays_open_at_one_row_keeps_no_other_lock_for_ever() {
    let (url, layout) = with_table(TABLE).await;
    let (mut user, client) = (connection(&url).await, client(&layout, LONG).await);
    // The statement does not delete expired rows first: without an index on them, that would lock the whole table.
    let theirs = "INSERT INTO distributed_lock (lock_key, lock_value, expire_time) VALUES ('job', 'theirs', NOW() + INTERVAL 1 HOUR)";
    user.query_drop("START TRANSACTION").await.unwrap();
    user.query_drop(theirs).await.unwrap();
    assert!(refusal(&client, "job").await.is_contention());
    let waiting = acquiring(&client, "job");
    acquire(&client, "other").await.release().await.unwrap();
    user.query_drop("ROLLBACK").await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// Tables of both layouts with a key of this type.
async fn clients_of_both_layouts(key: &str) -> [Client; 2] {
    let (url, layout) = with_table(&TABLE.replace("VARCHAR(64)", key)).await;
    let shedlock = TABLE.replace("distributed_lock", "shedlock").replace("expire_time DATETIME", "a DATETIME(3)");
    let shedlock = shedlock.replace("created_at DATETIME DEFAULT CURRENT_TIMESTAMP", "b DATETIME(3)");
    let shedlock = shedlock.replace("VARCHAR(64)", key);
    connection(&url).await.query_drop(shedlock).await.unwrap();
    [client(&layout, LONG).await, client(&with(&url, "layout=shedlock&columns=lock_key,a,b,lock_value"), LONG).await]
}

#[tokio::test]
async fn names_that_the_collation_takes_for_one_lock_are_refused_together_and_others_are_not() {
    const WIDE: &str = "VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4";
    for (key, one, other) in [
        (format!("{WIDE}_general_ci"), "Job|\u{e9}|job |n", "job|E|job|m"),
        (format!("{WIDE}_unicode_ci"), "stra\u{df}e|job  |n", "STRASSE|Job|m"),
        (format!("{WIDE}_general_nopad_ci"), "Job|job ", "job|job"),
        (format!("{WIDE}_uca1400_as_cs"), "job  |Job|\u{e9}", "job|job|e"),
        (format!("{WIDE}_uca1400_nopad_ai_ci"), "job  |Job|\u{e9}", "job|job|e"),
        (format!("{WIDE}_german2_ci"), "stra\u{df}e|job ", "strasse|job"),
        (format!("{WIDE}_bin"), "job |Job", "job|job"),
        ("CHAR(64) CHARACTER SET latin1".to_owned(), "\u{c9}|job |n", "e|JOB|m"),
        ("VARBINARY(512)".to_owned(), "Job|job ", "job|job"),
    ] {
        // MySQL has neither of these collations.
        let is_mariadbs = key.contains("nopad") || key.contains("uca1400");
        if is_mariadbs && !is_mariadb(&mut connection(&database()).await).await {
            continue;
        }
        for client in clients_of_both_layouts(&key).await {
            for (one, other) in one.split('|').zip(other.split('|')) {
                let [found, second] = [one, other].map(|name| Name::new(name).unwrap());
                let (found, second) = (client.key(&found).await.unwrap(), client.key(&second).await.unwrap());
                let both = soon(client.multi_lock([one, other]).unwrap().acquire()).await;
                match both {
                    Ok(both) => assert!(both.release().await.is_ok() && found != second, "{key}: {one}, {other}"),
                    Err(error) => {
                        assert!(error.kind() == ErrorKind::Config && found == second, "{key}: {one}, {other}: {error}");
                        soon(client.multi_lock([one, other]).unwrap().try_acquire()).await.unwrap_err();
                    }
                }
                let are_one = client.mutex(one).unwrap().acquire().await.unwrap();
                let busy = client.mutex(other).unwrap().try_acquire().await.is_err();
                assert_eq!(busy, found == second, "{key}: {one}, {other}");
                are_one.release().await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn callers_of_names_that_the_collation_takes_for_each_others_all_finish() {
    for one in clients_of_both_layouts("VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci").await {
        let rounds = async |names: [&str; 2]| {
            for _ in 0..25 {
                let both = one.multi_lock(names).unwrap().acquire().await.unwrap();
                both.release().await.unwrap();
            }
        };
        soon(async { tokio::join!(rounds(["a", "B"]), rounds(["A", "b"]), rounds(["b ", "A "])) }).await;
    }
}

#[tokio::test]
async fn a_table_with_which_two_could_hold_one_lock_is_refused_with_a_remedy() {
    for (changed, kind, told) in [
        ("CREATE TABLE other (a INT)".to_owned(), ErrorKind::Layout, "CREATE TABLE IF NOT EXISTS `distributed_lock`"),
        (TABLE.replace(" NOT NULL UNIQUE", ""), ErrorKind::Layout, "ADD UNIQUE (`lock_key`)"),
        (TABLE.replace(" NOT NULL UNIQUE", ", UNIQUE (lock_key(8))"), ErrorKind::Layout, "whole length"),
        (TABLE.replace(" NOT NULL UNIQUE", ", UNIQUE (lock_key, id)"), ErrorKind::Layout, "ADD UNIQUE"),
        (TABLE.replace("expire_time", "expires"), ErrorKind::Layout, "`columns`"),
        (TABLE.replace("lock_value VARCHAR(255)", "lock_value VARCHAR(20)"), ErrorKind::Layout, "36 characters"),
        (TABLE.replace("expire_time DATETIME", "expire_time BIGINT"), ErrorKind::Layout, "a datetime"),
        (TABLE.replace("lock_key VARCHAR(64)", "lock_key INT"), ErrorKind::Layout, "varchar"),
        (format!("{TABLE} ENGINE=MyISAM"), ErrorKind::Config, "InnoDB"),
    ] {
        let (_, layout) = with_table(&changed).await;
        let error = refused(&layout).await;
        assert!(error.kind() == kind && error.to_string().contains(told), "{changed}: {error}");
    }
    let further = TABLE.replace("created_at DATETIME DEFAULT CURRENT_TIMESTAMP", "tenant INT NOT NULL");
    let tenants = client(&with_table(&further).await.1, LONG).await;
    let error = soon(tenants.mutex("job").unwrap().acquire()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Layout && error.to_string().contains("tenant"), "{error}");
    let unique = TABLE.replace("created_at DATETIME DEFAULT CURRENT_TIMESTAMP", "tenant INT NOT NULL DEFAULT 1 UNIQUE");
    let ours = client(&with_table(&unique).await.1, LONG).await;
    let held = acquire(&ours, "job").await;
    let error = soon(ours.mutex("other").unwrap().acquire()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Layout && error.to_string().contains("another unique key"), "{error}");
    held.release().await.unwrap();
    let error = ours.mutex("x".repeat(65)).unwrap().try_acquire().await.unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidName && error.to_string().contains("64"), "{error}");
    let error = ours.rwlock("job").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[tokio::test]
async fn a_table_of_other_names_is_made_by_migrate_granted_and_listed() {
    let server = Server::start(Settings::default()).unwrap();
    server.sql("CREATE USER worker IDENTIFIED BY 'secret'").unwrap();
    let options = "layout=distributed_lock&table=app.Locks&columns=name,owner,until";
    let admin = with(&format!("mysql://root@{}/fencelock", server.address()), options);
    server.sql("CREATE DATABASE app").unwrap();
    let schema = Schema::of(&admin).unwrap();
    assert_eq!(migrated(async || schema.migrate(&["fencelock", "worker@%"]).await).await, Migration::Made);
    assert_eq!(migrated(async || schema.migrate(&[]).await).await, Migration::UpToDate);
    server.sql(&schema.statements(&["worker"])).unwrap();
    server.sql("INSERT INTO app.Locks VALUES ('job/expired', 'x', NOW() - INTERVAL 1 SECOND)").unwrap();
    let client = client(&with(&server.url(), options), LONG).await;
    let held = [acquire(&client, "job/a").await, acquire(&client, "job/b ").await, acquire(&client, "c").await];
    let mut names: Vec<_> = client.names("job/", None, 100).await.unwrap().iter().map(ToString::to_string).collect();
    names.sort_unstable();
    assert_eq!(names, ["job/a", "job/b "]);
    let queue = client.queue("job/a").await.unwrap();
    let error = client.break_grant("job/a", &queue.contenders[0], "stuck").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    for guard in held {
        guard.release().await.unwrap();
    }
    server.sql("REVOKE INSERT ON app.Locks FROM fencelock").unwrap();
    let error = soon(client.mutex("job").unwrap().acquire()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("SELECT, INSERT"), "{error}");
}

/// The server says everything in the language of `lc_messages`.
#[tokio::test]
async fn a_lock_that_is_held_is_busy_in_every_language_of_the_server() {
    let server = Server::start(Settings::default().with("--lc-messages=ja_JP")).unwrap();
    let mut user = connection(&server.url()).await;
    user.query_drop(TABLE).await.unwrap();
    for layout in ["layout=distributed_lock", "layout=get_lock&key=exact", "layout=fair"] {
        let url = with(&server.url(), layout);
        let (one, other) = (client(&url, LONG).await, client(&url, LONG).await);
        let guard = acquire(&one, "job").await;
        let error = other.mutex("job").unwrap().try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{layout}: {error}");
        guard.release().await.unwrap();
        acquire(&other, "job").await.release().await.unwrap();
    }
    user.query_drop("DROP TABLE distributed_lock").await.unwrap();
    let unique = TABLE.replace("created_at DATETIME DEFAULT CURRENT_TIMESTAMP", "tenant INT NOT NULL DEFAULT 1 UNIQUE");
    user.query_drop(unique).await.unwrap();
    let ours = client(&with(&server.url(), "layout=distributed_lock"), LONG).await;
    let guard = acquire(&ours, "job").await;
    let error = ours.mutex("other").unwrap().acquire().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Layout && error.to_string().contains("another unique key"), "{error}");
    guard.release().await.unwrap();
}
