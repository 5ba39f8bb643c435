//! Rights: a role that may call the functions and nothing else, and its attempts to do more.

use fencelock::ErrorKind;
use fencelock::postgres::{Migration, Schema};
use fencelock_testbed::postgres::{OWNER, Settings, shared};

use crate::lab::{
    AS_CLIENTS, acquire, acquiring, client, code, connection, database, migrated, queued, refused, server, soon, until,
    until_queued,
};

/// A role of this test's own that may connect, and nothing else.
async fn role(database: &str) -> String {
    let role = format!("app_{database}");
    sql("postgres", &format!("CREATE ROLE {role} LOGIN PASSWORD 'secret'"));
    role
}

fn sql(database: &str, statements: &str) {
    let address = shared().address();
    let told = std::process::Command::new("psql")
        .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h", "127.0.0.1", "-d", database, "-c", statements])
        .args(["-p", &address.port().to_string()])
        .output()
        .unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
}

#[tokio::test]
async fn the_error_for_a_role_without_rights_names_them_and_execute_alone_suffices_to_lock() {
    let (owner, database) = database();
    let role = role(&database).await;
    let url = owner.replace("fencelock:secret", &format!("{role}:secret"));
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.to_string().contains("fencelock migrate"), "{error}");
    let schema = Schema::of(&owner).unwrap();
    assert_eq!(migrated(async || schema.migrate(&[]).await).await, Migration::Made);
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert_eq!(migrated(async || schema.migrate(&[&role]).await).await, Migration::UpToDate);
    let app = client(&url, 60_000).await;
    let guard = acquire(&app, "job").await;
    let user = connection(&url).await;
    let token = guard.token().unwrap().to_i64();
    user.batch_execute("BEGIN").await.unwrap();
    user.execute(fencelock::postgres::HOLD, &[&"job", &token]).await.unwrap();
    user.batch_execute("COMMIT").await.unwrap();
    for forbidden in [
        "SELECT * FROM fencelock.session",
        "DELETE FROM fencelock.place",
        "UPDATE fencelock.bucket SET low = 0",
        "SELECT nextval('fencelock.number')",
        "SELECT fencelock._settle(0, 'job', 0, NULL)",
        "SELECT fencelock._again(0, 'job', 0, 1)",
        "CREATE TABLE fencelock.mine (a int)",
    ] {
        assert_eq!(code(user.batch_execute(forbidden).await), "42501", "{forbidden}");
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_grant_by_a_role_that_may_not_pass_rights_on_is_an_error() {
    let (owner, database) = database();
    let (role, other) = (role(&database).await, role(&format!("other_{database}")).await);
    let table = format!("{owner}?layout=distributed_lock&table=public.mine");
    for url in [&owner, &table] {
        let schema = Schema::of(url).unwrap();
        migrated(async || schema.migrate(&[&role]).await).await;
        let not_owner = Schema::of(&url.replace("fencelock:secret", &format!("{role}:secret"))).unwrap();
        assert_eq!(migrated(async || not_owner.migrate(&[]).await).await, Migration::UpToDate);
        let error = not_owner.migrate(&[&other]).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("as the owner"), "{error}");
        assert_eq!(migrated(async || schema.migrate(&[&other]).await).await, Migration::UpToDate);
        assert_eq!(migrated(async || not_owner.migrate(&[&other]).await).await, Migration::UpToDate);
    }
}

#[tokio::test]
async fn temporary_tables_of_the_same_names_get_no_client_a_grant() {
    let (owner, _) = database();
    let one = client(&owner, 60_000).await;
    let guard = acquire(&one, "job").await;
    let rogue = connection(&owner).await;
    rogue
        .batch_execute(
            "CREATE TEMP TABLE session (id bigint, expires timestamptz, ttl interval, epoch bigint, bell text, host text, pid bigint, client bigint);
             CREATE TEMP TABLE place (bucket integer, name text, seq bigint, granted boolean, awaited boolean, weight bigint, capacity bigint, session bigint, client bigint, number bigint, since timestamptz, purpose text);
             INSERT INTO session VALUES (7, now() + interval '1 day', interval '1 day', 1, 'bell', '', 0, 7);
             SET client_min_messages = warning",
        )
        .await
        .unwrap();
    let entered = "SELECT fencelock.enter(7, 1, 'job', 7, 1, 1, 1, true, false, NULL)";
    rogue.batch_execute("SET search_path = pg_temp, fencelock").await.unwrap();
    assert_eq!(code(rogue.query_one(entered, &[]).await), "FL003");
    rogue.batch_execute("SET search_path = pg_catalog, pg_temp").await.unwrap();
    let answer: Vec<i64> = rogue.query_one(entered, &[]).await.unwrap().get(0);
    assert_eq!(answer, [5, 0, 0], "the session is not there");
    assert_eq!(queued(&one, "job").await, 1);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn the_functions_refuse_every_isolation_but_read_committed() {
    let (url, _) = database();
    client(&url, 60_000).await;
    let user = connection(&url).await;
    user.batch_execute(AS_CLIENTS).await.unwrap();
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for call in [
            "open(7, 'bell', 1000, '', 0, 7)",
            "resume(7, 1000)",
            "renew(7, 1000, '{}')",
            "enter(7, 1, 'job', 7, 1, 1, 1, true, false, NULL)",
            "leave_unrung(7, 'job', 7, 1, 1, false)",
            "batch_unrung(7, 1, '{1}', '{job}', '{7}', '{1}', '{1}', '{1}', '{1}', '{t}', '{f}', '{NULL}')",
            "lighten(7, 'job', 7, 1, 1, 1)",
            "look(7, '{}', '{}', '{}', '{}', '{}')",
            "break('job', 7, 1, 1, '', '')",
            "close(7)",
            "clear_up(0)",
        ] {
            user.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}")).await.unwrap();
            let refused = code(user.batch_execute(&format!("SELECT fencelock.{call}")).await);
            assert_eq!(refused, "FL003", "{level} {call}");
            user.batch_execute("ROLLBACK").await.unwrap();
        }
    }
}

/// A release and a withdrawal need the session, which no reader is shown. A client that knows the request alone ends
/// nothing.
#[tokio::test]
async fn the_shown_ids_of_a_holder_do_not_suffice_to_give_up_its_lock() {
    let (url, _) = database();
    let (one, user) = (client(&url, 60_000).await, connection(&url).await);
    user.batch_execute(AS_CLIENTS).await.unwrap();
    let guard = acquire(&one, "job").await;
    let shown = user.query_one("SELECT r_client, r_number, r_seq FROM fencelock.show('job', 0, 1)", &[]).await.unwrap();
    let (client_id, number, seq): (i64, i64, i64) = (shown.get(0), shown.get(1), shown.get(2));
    let left: i32 = user
        .query_one("CALL fencelock.leave(7, 'job', $1, $2, $3, false)", &[&client_id, &number, &seq])
        .await
        .unwrap()
        .get(0);
    assert_eq!(left, 0);
    let withdraw = "CALL fencelock.batch(7, NULL, '{2}', '{job}', ARRAY[$1::bigint], ARRAY[$2::bigint], '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}')";
    user.query_one(withdraw, &[&client_id, &number]).await.unwrap();
    assert_eq!(queued(&one, "job").await, 1);
    soon(guard.release()).await.unwrap();
}

#[tokio::test]
async fn a_role_fills_an_empty_schema_of_its_own_without_the_right_to_make_another() {
    let (owner, database) = database();
    let role = role(&database).await;
    sql(&database, &format!("CREATE SCHEMA fencelock AUTHORIZATION {role}"));
    let app = client(&owner.replace("fencelock:secret", &format!("{role}:secret")), 60_000).await;
    acquire(&app, "job").await.release().await.unwrap();
}

/// A stranger's operator or function there would run with the rights of the owner, in place of one of the server's.
#[tokio::test]
async fn a_schema_in_which_others_may_create_things_is_not_filled() {
    let (url, _) = database();
    connection(&url)
        .await
        .batch_execute("CREATE SCHEMA fencelock; GRANT CREATE ON SCHEMA fencelock TO PUBLIC")
        .await
        .unwrap();
    let error = refused(&url).await;
    assert!(error.kind() == ErrorKind::Layout && error.to_string().contains("others may create"), "{error}");
}

/// A role that reads everything by default would see the sessions, and one that creates things anywhere could have them called.
#[tokio::test]
async fn default_privileges_of_others_are_not_granted_here() {
    let (owner, database) = database();
    let role = role(&database).await;
    for what in ["SELECT ON TABLES", "USAGE ON SEQUENCES", "EXECUTE ON FUNCTIONS", "USAGE, CREATE ON SCHEMAS"] {
        sql(&database, &format!("ALTER DEFAULT PRIVILEGES FOR ROLE fencelock GRANT {what} TO {role}"));
    }
    let one = client(&owner, 60_000).await;
    let guard = acquire(&one, "job").await;
    let user = connection(&owner.replace("fencelock:secret", &format!("{role}:secret"))).await;
    for forbidden in [
        "SELECT * FROM fencelock.session",
        "SELECT nextval('fencelock.number')",
        "SELECT fencelock.version()",
        "CREATE FUNCTION fencelock.mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    ] {
        assert_eq!(code(user.batch_execute(forbidden).await), "42501", "{forbidden}");
    }
    guard.release().await.unwrap();
}

/// Another role owns the schema then, and has granted this one its rights.
#[tokio::test]
async fn a_role_that_makes_the_tables_in_another_roles_schema_keeps_its_rights_to_them() {
    let (owner, database) = database();
    let role = role(&database).await;
    let url = owner.replace("fencelock:secret", &format!("{role}:secret"));
    sql(&database, &format!("CREATE SCHEMA fencelock; GRANT USAGE, CREATE ON SCHEMA fencelock TO {role}"));
    connection(&url).await.batch_execute(&Schema::of(&url).unwrap().statements(&[])).await.unwrap();
    acquire(&client(&url, 60_000).await, "job").await.release().await.unwrap();
}

/// A role that knows the bell could tell a waiter that it is granted. `pg_stat_activity` shows the text of a connection's last statement, as
/// the log does.
#[tokio::test]
async fn the_statements_that_the_server_shows_do_not_name_the_bell_of_a_session() {
    let own = server(Settings::default().with("logging_collector = on").with("log_statement = 'all'"));
    let (one, two) = (client(&own.url(), 60_000).await, client(&own.url(), 60_000).await);
    let guard = acquire(&one, "job").await;
    let waiter = acquiring(&two, "job");
    until_queued(&one, "job", 2).await;
    let bells = own.sql(OWNER, "SELECT bell FROM fencelock.session").unwrap();
    guard.release().await.unwrap();
    soon(waiter).await.unwrap().unwrap().release().await.unwrap();
    // A process of its own writes the log. Once the log contains the first reading, it contains all earlier statements.
    let (read, mut log) = ("SELECT pg_read_file(pg_current_logfile())", String::new());
    until("the log is written", async || {
        log = own.sql("postgres", read).unwrap();
        log.contains(read)
    })
    .await;
    let statements: Vec<_> = log.lines().filter(|line| !line.contains("DETAIL:")).collect();
    assert!(statements.iter().any(|line| line.contains(".listen($1)")), "{log}");
    for bell in bells.lines() {
        assert!(statements.iter().all(|line| !line.contains(bell)), "{bell}: {log}");
    }
}

#[tokio::test]
async fn a_role_that_may_only_call_the_functions_is_refused_wrong_parameters_and_they_change_nothing() {
    let (owner, database) = database();
    let role = role(&database).await;
    migrated(async || Schema::of(&owner).unwrap().migrate(&[&role]).await).await;
    let user = connection(&owner.replace("fencelock:secret", &format!("{role}:secret"))).await;
    let admin = connection(&owner).await;
    user.batch_execute(AS_CLIENTS).await.unwrap();
    for call in
        ["open(1, 'fencelock_0000000000000001', 60000, 'h', 1, 1)", "enter(1, 1, 'job', 1, 1, 1, 1, true, false, NULL)"]
    {
        user.batch_execute(&format!("SELECT fencelock.{call}")).await.unwrap();
    }
    let everything = "SELECT string_agg(p::text, ' '), (SELECT string_agg(s::text, ' ') FROM fencelock.session AS s), \
        (SELECT longest::text FROM fencelock.layout) FROM fencelock.place AS p";
    let everything = async || {
        let row = admin.query_one(everything, &[]).await.unwrap();
        [0, 1, 2].map(|at| row.get::<_, String>(at))
    };
    let before = everything().await;
    for wrong in [
        "enter(1, 1, 'other', 1, 9, -1, 1, true, false, NULL)",
        "enter(1, 1, 'other', 1, 9, 0, 1, true, false, NULL)",
        "enter(1, 1, 'other', 1, 9, 2, 1, true, false, NULL)",
        "enter(1, 1, 'other', 1, 9, NULL, 1, true, false, NULL)",
        "enter(1, 1, '', 1, 9, 1, 1, true, false, NULL)",
        "enter(1, 1, repeat('n', 513), 1, 9, 1, 1, true, false, NULL)",
        "enter(1, 1, NULL, 1, 9, 1, 1, true, false, NULL)",
        "enter(1, 1, 'other', 1, 9, 1, 4294967296, true, false, NULL)",
        "enter(1, 1, 'other', 1, 9, 1, 1, true, false, repeat('p', 513))",
        "batch_unrung(1, 1, '{0,0}', '{other,third}', '{1,1}', '{9,8}', '{NULL,NULL}', '{1,1}', '{1,0}', '{t,t}', '{f,f}', '{NULL,NULL}')",
        "batch_unrung(1, 1, '{0,3}', '{other,third}', '{1,1}', '{9,8}', '{NULL,NULL}', '{1,1}', '{1,1}', '{t,t}', '{f,f}', '{NULL,NULL}')",
        "batch_unrung(1, 1, '{0,1}', '{other,NULL}', '{1,1}', '{9,8}', '{NULL,NULL}', '{1,1}', '{1,1}', '{t,t}', '{f,f}', '{NULL,NULL}')",
        "batch_unrung(1, 1, '{0}', '{other}', '{1}', '{9}', '{NULL}', '{1}', '{1}', '{t}', '{f}', '{NULL,NULL}')",
        "batch_unrung(1, 1, '{0}', '[2:2]={other}', '{1}', '{9}', '{NULL}', '{1}', '{1}', '{t}', '{f}', '{NULL}')",
        "batch_unrung(1, 1, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
        "batch_unrung(1, 1, NULL, '{other}', '{1}', '{9}', '{NULL}', '{1}', '{1}', '{t}', '{f}', '{NULL}')",
        "batch_unrung(1, 1, array_fill(0, ARRAY[65])::bigint[], array_fill('other'::text, ARRAY[65]), array_fill(1, ARRAY[65])::bigint[], \
            array_fill(9, ARRAY[65])::bigint[], array_fill(NULL::bigint, ARRAY[65]), array_fill(1, ARRAY[65])::bigint[], \
            array_fill(1, ARRAY[65])::bigint[], array_fill(true, ARRAY[65]), array_fill(false, ARRAY[65]), array_fill(NULL::text, ARRAY[65]))",
        "open(9, 'fencelock_0000000000000009', 1000, 'h', 4294967296, 1)",
        "open(9, 'fencelock_0000000000000009', 1000, repeat('h', 513), 1, 1)",
        "open(9, 'fencelock_0000000000000009', 0, 'h', 1, 1)",
        "open(9, 'fencelock_0000000000000009', -1, 'h', 1, 1)",
        "open(9, 'fencelock_0000000000000009', 3153686400000, 'h', 1, 1)",
        "open(9, 'fencelock_0000000000000009', NULL, 'h', 1, 1)",
        "open(9, 'theirs', 1000, 'h', 1, 1)",
        "resume(1, -1)",
        "resume(1, 3153686400000)",
        "lighten(1, 'job', 1, 1, (SELECT r_seq FROM fencelock.unknown(1, '{}')), 0)",
    ] {
        let refused = code(user.batch_execute(&format!("SELECT fencelock.{wrong}")).await);
        assert!(["22", "23"].iter().any(|class| refused.starts_with(class)), "{wrong}: {refused}");
        assert_eq!(everything().await, before, "{wrong}");
    }
}

/// With the number, the role could end the session of another client; with the bell, it could report false grants.
#[tokio::test]
async fn a_role_that_may_only_call_the_functions_is_sent_neither_number_nor_bell_of_another_session() {
    let (owner, database) = database();
    let role = role(&database).await;
    migrated(async || Schema::of(&owner).unwrap().migrate(&[&role]).await).await;
    let user = connection(&owner.replace("fencelock:secret", &format!("{role}:secret"))).await;
    let admin = connection(&owner).await;
    let holder = "SELECT fencelock.open(777000777, 'fencelock_0000000000000001', 60000, 'h', 1, 1); \
        SELECT fencelock.enter(777000777, 1, 'job', 1, 1, 1, 1, true, false, NULL)";
    user.batch_execute(AS_CLIENTS).await.unwrap();
    admin.batch_execute(&format!("{AS_CLIENTS}; {holder}")).await.unwrap();
    for (record, reason) in
        [("NULL", "'why'"), ("'r'", "NULL"), ("repeat('r', 65536)", "'why'"), ("'r'", "repeat('w', 513)")]
    {
        let broken = format!(
            "SELECT fencelock.break('job', 1, 1, (SELECT r_seq FROM fencelock.show('job', 0, 1)), {record}, {reason})"
        );
        let error = user.batch_execute(&broken).await.unwrap_err();
        let said = error.as_db_error().unwrap();
        assert_eq!((said.code().code(), said.detail()), ("22023", None), "{broken}: {said:?}");
    }
    let waiting = "SELECT fencelock.open(5, 'fencelock_0000000000000005', 60000, 'h', 1, 5); \
        SELECT fencelock.enter(5, 1, 'other', 5, 1, 1, 1, true, false, NULL)";
    user.batch_execute(waiting).await.unwrap();
    admin.batch_execute("SELECT fencelock.enter(777000777, 1, 'other', 1, 2, 1, 1, true, false, NULL)").await.unwrap();
    let granted = "SELECT fencelock.leave_unrung(5, 'other', 5, 1, NULL, false)::text";
    let granted: String = user.query_one(granted, &[]).await.unwrap().get(0);
    let numbers = granted.trim_matches(['{', '}']).split(',').count();
    assert!(granted.starts_with("{1,3,4,") && numbers == 4, "only the number of the place that was granted: {granted}");
    let talkative = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'fencelock'::regnamespace AND prosecdef \
        AND NOT coalesce('client_min_messages=warning' = ANY (proconfig), false)";
    // The other functions refuse a caller with another setting.
    assert_eq!(admin.query_one(talkative, &[]).await.unwrap().get::<_, i64>(0), 4);
    user.batch_execute("SET client_min_messages = debug1").await.unwrap();
    for call in [
        "enter(5, 1, 'job', 5, 1, 1, 1, true, false, NULL)",
        "leave_unrung(5, 'job', 5, 1, 1, false)",
        "batch_unrung(5, 1, '{1}', '{job}', '{5}', '{1}', '{1}', '{1}', '{1}', '{t}', '{f}', '{NULL}')",
        "look(5, '{}', '{}', '{}', '{}', '{}')",
    ] {
        assert_eq!(code(user.batch_execute(&format!("SELECT fencelock.{call}")).await), "FL003", "{call}");
    }
}
