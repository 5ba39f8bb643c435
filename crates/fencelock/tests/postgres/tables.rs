//! Lock tables of other clients, shared with programs that write them by hand.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use fencelock::postgres::{Migration, Schema};
use fencelock::{Client, ErrorKind, Loss};
use futures_util::future::join_all;
use tokio_postgres::error::SqlState;

use crate::lab::{LONG, OFTEN, acquire, acquiring, client, connection, database, migrated, refused, soon, until, with};

/// The table of tutorials.
const TABLE: &str = "CREATE TABLE distributed_lock (id bigserial PRIMARY KEY, lock_key varchar(64) NOT NULL UNIQUE, lock_value varchar(255) NOT NULL, \
     expire_time timestamptz NOT NULL, created_at timestamptz DEFAULT now())";

/// A database with this table: its URL, and that of the layout.
async fn with_table(ddl: &str) -> (String, String) {
    let (url, _) = database();
    connection(&url).await.batch_execute(ddl).await.unwrap();
    let layout = with(&url, "layout=distributed_lock");
    (url, layout)
}

/// A program of the tutorial: whether it has the lock, which it takes for a minute.
async fn takes(user: &tokio_postgres::Client, key: &str, value: &str) -> bool {
    user.execute("DELETE FROM distributed_lock WHERE expire_time < now()", &[]).await.unwrap();
    let insert =
        "INSERT INTO distributed_lock (lock_key, lock_value, expire_time) VALUES ($1, $2, now() + interval '1 minute')";
    match user.execute(insert, &[&key, &value]).await {
        Ok(_) => true,
        Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => false,
        Err(error) => panic!("{error:?}"),
    }
}

/// The release. Returns whether the user had the lock.
async fn releases(user: &tokio_postgres::Client, key: &str, value: &str) -> bool {
    let delete = "DELETE FROM distributed_lock WHERE lock_key = $1 AND lock_value = $2";
    user.execute(delete, &[&key, &value]).await.unwrap() == 1
}

async fn rows(user: &tokio_postgres::Client) -> Vec<(String, String)> {
    let rows = user.query("SELECT lock_key, lock_value FROM distributed_lock ORDER BY 1", &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
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
        let user = connection(&url).await;
        for round in 0..25 {
            let value = format!("{name}-{round}");
            until("the lock is free", async || takes(&user, "job", &value).await).await;
            works();
            // The next one may have come only after this.
            tokio::task::yield_now().await;
            assert!(releases(&user, "job", &value).await, "a client deleted the row of another one");
        }
    };
    let ours = async || {
        let client = client(&layout, 60_000).await;
        for _ in 0..25 {
            let guard = acquire(&client, "job").await;
            works();
            tokio::task::yield_now().await;
            guard.release().await.unwrap();
        }
    };
    soon(async { tokio::join!(theirs("a"), theirs("b"), ours(), ours()) }).await;
    assert_eq!(counted.load(Ordering::SeqCst), 100);
    assert_eq!(rows(&connection(&url).await).await, []);
}

#[tokio::test]
async fn another_clients_row_is_left_alone_until_it_expires_and_taken_over_then() {
    let (url, layout) = with_table(TABLE).await;
    let (user, client) = (connection(&url).await, client(&layout, LONG).await);
    assert!(takes(&user, "job", "theirs").await);
    let error = refusal(&client, "job").await;
    assert!(error.is_contention() && !error.to_string().contains("theirs"), "{error}");
    let waiting = acquiring(&client, "job");
    assert_eq!(rows(&user).await, [("job".to_owned(), "theirs".to_owned())]);
    let queue = client.queue("job").await.unwrap();
    assert_eq!(queue.contenders[0].foreign.unwrap().what, "a row of another program");
    let shown = format!("{queue:?}");
    assert!(!shown.contains("theirs"), "{shown}");
    user.execute("UPDATE distributed_lock SET expire_time = now() - interval '1 second'", &[]).await.unwrap();
    let guard = soon(waiting).await.unwrap().unwrap();
    assert!(!releases(&user, "job", "theirs").await, "who expired released a lock of others");
    assert!(!takes(&user, "job", "theirs").await, "another client took our lock");
    assert!(guard.token().is_none());
    let held = client.queue("job").await.unwrap();
    assert_eq!(held.contenders[0].id.client, client.owner().client);
    guard.release().await.unwrap();
    assert_eq!(rows(&user).await, []);
}

#[tokio::test]
async fn a_holder_whose_row_is_deleted_or_taken_is_notified_and_releases_nothing_of_others() {
    let (url, layout) = with_table(TABLE).await;
    let (user, client) = (connection(&url).await, client(&with(&layout, OFTEN), LONG).await);
    for change in [
        "DELETE FROM distributed_lock",
        "UPDATE distributed_lock SET lock_value = 'theirs', expire_time = now() + interval '1 hour'",
    ] {
        let guard = acquire(&client, "job").await;
        user.batch_execute(change).await.unwrap();
        assert_eq!(soon(guard.lost()).await, Loss::Removed);
        guard.release().await.unwrap_err();
    }
    assert_eq!(rows(&user).await, [("job".to_owned(), "theirs".to_owned())]);
}

#[tokio::test]
async fn columns_of_whole_seconds_never_say_less_than_the_holder_believes_and_renewals_count() {
    let (url, layout) = with_table(&TABLE.replace("expire_time timestamptz", "expire_time timestamptz(0)")).await;
    let user = connection(&url).await;
    let client = client(&with(&layout, OFTEN), 60_000).await;
    let ends = async || -> (bool, String) {
        let row = user.query_one("SELECT expire_time > clock_timestamp() + interval '60 s' - $1::text::interval, expire_time::text FROM distributed_lock", &[&"0"]);
        let row = row.await.unwrap();
        (row.get(0), row.get(1))
    };
    for _ in 0..5 {
        let before = user.query_one("SELECT (clock_timestamp() + interval '60 s')::text", &[]).await.unwrap();
        let guard = acquire(&client, "job").await;
        let is_enough = "SELECT expire_time >= $1::text::timestamptz FROM distributed_lock";
        assert!(user.query_one(is_enough, &[&before.get::<_, String>(0)]).await.unwrap().get::<_, bool>(0));
        let (_, first) = ends().await;
        // Within a second, most renewals change nothing in the row.
        until("the row was renewed", async || ends().await.1 != first).await;
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn times_without_a_zone_are_those_of_the_zone_that_is_given_and_the_error_proposes_that_of_the_role() {
    let without = TABLE.replace("expire_time timestamptz", "expire_time timestamp");
    let (url, layout) = with_table(&without).await;
    let user = connection(&url).await;
    let tokyo = "ALTER DATABASE %I SET TimeZone = ''Asia/Tokyo''";
    user.batch_execute(&format!("DO $$ BEGIN EXECUTE format('{tokyo}', current_database()); END $$")).await.unwrap();
    let error = refused(&layout).await;
    assert!(error.kind() == ErrorKind::Layout && error.to_string().contains("zone=Asia/Tokyo"), "{error}");
    // In summer, sessions of the zone CET are two hours ahead of UTC, and `AT TIME ZONE 'CET'` is one.
    for zone in ["Mars/Olympus", "CET", "WET"] {
        let error = refused(&with(&layout, &format!("zone={zone}"))).await;
        assert!(error.kind() == ErrorKind::Config && error.to_string().contains("pg_timezone_names"), "{error}");
    }
    let error = refused(&with(&layout, "zone=localtime")).await;
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("each machine"), "{error}");
    let (user, client) = (connection(&url).await, client(&with(&layout, "zone=Asia/Tokyo"), LONG).await);
    let guard = acquire(&client, "job").await;
    assert!(!takes(&user, "job", "theirs").await, "it looks expired there");
    guard.release().await.unwrap();
    assert!(takes(&user, "job", "theirs").await);
    assert!(refusal(&client, "job").await.is_contention());
}

#[tokio::test]
async fn a_transaction_that_stays_open_at_one_row_holds_up_no_other_lock() {
    let (url, layout) = with_table(TABLE).await;
    let (user, client) = (connection(&url).await, client(&layout, LONG).await);
    user.batch_execute("BEGIN; INSERT INTO distributed_lock (lock_key, lock_value, expire_time) VALUES ('job', 'theirs', now() + interval '1 hour')")
        .await
        .unwrap();
    assert!(refusal(&client, "job").await.is_contention());
    let waiting = acquiring(&client, "job");
    acquire(&client, "other").await.release().await.unwrap();
    user.batch_execute("ROLLBACK").await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn names_that_the_tables_key_takes_for_one_lock_are_refused_together() {
    for (key, names, kind) in [
        ("char(64)", ["job", "job  "], Some(ErrorKind::Config)),
        ("varchar(64)", ["job", "job  "], None),
        ("varchar(64) COLLATE any_case", ["Job", "job"], Some(ErrorKind::Unsupported)),
    ] {
        let any_case = "CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)";
        let (_, layout) = with_table(&format!("{any_case}; {}", TABLE.replace("varchar(64)", key))).await;
        let client = client(&layout, LONG).await;
        let both = soon(client.multi_lock(names).unwrap().acquire()).await;
        assert_eq!(both.as_ref().err().map(fencelock::Error::kind), kind, "{key}: {both:?}");
        drop(both);
        soon(client.multi_lock(["job"]).unwrap().acquire()).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_table_with_which_two_could_hold_one_lock_is_refused_with_a_remedy() {
    for (changed, kind, told) in [
        ("CREATE TABLE other ()".to_owned(), ErrorKind::Layout, "CREATE TABLE IF NOT EXISTS \"distributed_lock\""),
        (TABLE.replace(" NOT NULL UNIQUE", ""), ErrorKind::Layout, "ADD UNIQUE (\"lock_key\")"),
        (
            format!(
                "{}; CREATE UNIQUE INDEX ON distributed_lock (lock_key) WHERE id > 0",
                TABLE.replace(" UNIQUE", "")
            ),
            ErrorKind::Layout,
            "ADD UNIQUE",
        ),
        (
            format!(
                "CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false); {}; \
                 CREATE UNIQUE INDEX ON distributed_lock (lock_key COLLATE any_case)",
                TABLE.replace(" UNIQUE", "")
            ),
            ErrorKind::Layout,
            "ADD UNIQUE",
        ),
        (TABLE.replace("expire_time", "expires"), ErrorKind::Layout, "`columns`"),
        (TABLE.replace("lock_value varchar(255)", "lock_value varchar(20)"), ErrorKind::Layout, "36 characters"),
        (TABLE.replace("expire_time timestamptz", "expire_time bigint"), ErrorKind::Layout, "is a timestamp"),
        (TABLE.replace("lock_key varchar(64)", "lock_key integer"), ErrorKind::Layout, "are text"),
        (TABLE.replace("CREATE TABLE", "CREATE UNLOGGED TABLE"), ErrorKind::Config, "SET LOGGED"),
        (
            format!(
                "{} PARTITION BY LIST (lock_key); CREATE UNLOGGED TABLE part_one PARTITION OF distributed_lock DEFAULT",
                TABLE.replace("bigserial PRIMARY KEY", "bigserial")
            ),
            ErrorKind::Config,
            "part_one",
        ),
        (
            format!("{TABLE}; CREATE RULE kept AS ON DELETE TO distributed_lock DO INSTEAD NOTHING"),
            ErrorKind::Config,
            "kept",
        ),
    ] {
        let (_, layout) = with_table(&changed).await;
        let error = refused(&layout).await;
        assert!(error.kind() == kind && error.to_string().contains(told), "{changed}: {error}");
    }
    let further = TABLE.replace("created_at timestamptz DEFAULT now()", "tenant text NOT NULL");
    let client = client(&with_table(&further).await.1, LONG).await;
    let error = soon(client.mutex("job").unwrap().acquire()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Layout && error.to_string().contains("tenant"), "{error}");
    let error = client.mutex("x".repeat(65)).unwrap().try_acquire().await.unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidName && error.to_string().contains("64"), "{error}");
    let error = client.rwlock("job").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[tokio::test]
async fn a_table_of_other_names_and_types_is_made_by_migrate_granted_and_listed() {
    let (url, _) = database();
    connection(&url).await.batch_execute("CREATE SCHEMA app").await.unwrap();
    let layout = with(&url, "layout=distributed_lock&table=app.Locks&columns=name,owner,until");
    let schema = Schema::of(&layout).unwrap();
    assert!(schema.clone().unlogged().migrate(&[]).await.unwrap_err().to_string().contains("logged"));
    assert_eq!(migrated(async || schema.migrate(&["fencelock"]).await).await, Migration::Made);
    let other = Schema::of(&with(&url, "layout=distributed_lock&table=app.other")).unwrap();
    for made in join_all((0..4).map(|_| other.migrate(&[]))).await {
        made.unwrap();
    }
    assert_eq!(migrated(async || schema.migrate(&[]).await).await, Migration::UpToDate);
    let user = connection(&url).await;
    user.batch_execute("ALTER TABLE app.\"Locks\" ALTER owner TYPE uuid USING owner::uuid; INSERT INTO app.\"Locks\" VALUES ('job/expired', gen_random_uuid(), now() - interval '1 s')").await.unwrap();
    let client = client(&layout, LONG).await;
    let held = [acquire(&client, "job/a").await, acquire(&client, "job/b").await, acquire(&client, "c").await];
    let mut names: Vec<_> = client.names("job/", None, 100).await.unwrap().iter().map(ToString::to_string).collect();
    names.sort_unstable();
    assert_eq!(names, ["job/a", "job/b"]);
    let queue = client.queue(held[0].name().as_str()).await.unwrap();
    let error = client.break_grant(held[0].name().as_str(), &queue.contenders[0], "stuck").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    user.batch_execute("REVOKE ALL ON app.\"Locks\" FROM fencelock").await.unwrap();
    let error = refused(&layout).await;
    assert!(
        error.kind() == ErrorKind::Denied && error.to_string().contains("SELECT, INSERT, UPDATE, DELETE"),
        "{error}"
    );
}
