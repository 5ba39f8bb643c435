//! No other role runs the objects that a role plants in a schema of the search path.

use fencelock::postgres::{HOLD, Schema};
use fencelock::{Client, ErrorKind, Name};
use fencelock_testbed::postgres::{OWNER, PLANTED, Server, Settings};

use crate::lab::{
    AS_CLIENTS, acquire, acquiring, client, code, connection, migrated, queued, refused, server, soon, until_queued,
    with,
};

/// `public` before the server's own schema, and the path that a new database has.
const PATHS: [&str; 2] = ["public, pg_catalog", "\"$user\", public"];

const TABLES: [&str; 2] = ["layout=distributed_lock", "layout=shedlock"];

/// A server with everything planted in `public`, which every role has first in its path.
fn planted(path: &str) -> Server {
    let own = server(Settings::default().with("fsync = off"));
    own.sql(OWNER, PLANTED).unwrap();
    own.sql("postgres", &format!("ALTER DATABASE {OWNER} SET search_path = {path}")).unwrap();
    own
}

async fn look(client: &Client, name: &str) {
    assert_eq!(queued(client, name).await, 1);
    assert!(client.mutex(name).unwrap().try_acquire().await.unwrap_err().is_contention());
    client.names("", None, 10).await.unwrap();
}

#[tokio::test]
async fn operators_functions_tables_and_types_that_others_plant_are_run_by_no_statement() {
    for path in PATHS {
        let own = planted(path);
        let user = connection(&own.url()).await;
        let trap = user.batch_execute("SELECT 'a'::pg_catalog.varchar = 'a'::pg_catalog.varchar").await.unwrap_err();
        assert!(format!("{trap:?}").contains("planted"), "{trap:?}");
        own.sql(OWNER, "SELECT pg_catalog.setval('public.planted', 1, false)").unwrap();

        migrated(async || Schema::of(&own.url()).unwrap().migrate(&[OWNER]).await).await;
        let printed = Schema::of(&with(&own.url(), "schema=printed")).unwrap().statements(&[OWNER]);
        own.sql(OWNER, &printed).unwrap();
        let (one, other) = (client(&own.url(), 60_000).await, client(&own.url(), 60_000).await);
        let guard = acquire(&one, "job").await;
        look(&other, "job").await;
        guard.write_note("note", None).await.unwrap();
        assert!(one.note("job").await.unwrap().note.is_some());
        user.batch_execute("BEGIN").await.unwrap();
        user.execute(HOLD, &[&"job", &guard.token().unwrap().to_i64()]).await.unwrap();
        user.batch_execute("SELECT fencelock.fence('stock', 1); SELECT fencelock.in_transaction('job'); COMMIT")
            .await
            .unwrap();
        // These have no path of their own. The first call of a connection compiles, and looks up types.
        for call in [
            "enter(7, 1, 'free', 7, 1, 1, 1, true, false, NULL)",
            "leave_unrung(7, 'job', 7, 1, 1, false)",
            "batch_unrung(7, 1, '{0}', '{free}', '{7}', '{1}', '{1}', '{1}', '{1}', '{t}', '{f}', '{NULL}')",
            "look(7, '{}', '{}', '{}', '{}', '{}')",
        ] {
            let call = format!("SELECT fencelock.{call}");
            assert_eq!(code(user.batch_execute(&call).await), "FL003", "{call}");
            user.batch_execute(&format!("BEGIN; {AS_CLIENTS}; {call}; ROLLBACK")).await.unwrap();
        }
        let waiting = acquiring(&other, "job");
        until_queued(&one, "job", 2).await;
        let queue = one.queue(&Name::new("job").unwrap()).await.unwrap();
        one.break_grant("job", &queue.contenders[0], "planted").await.unwrap();
        one.breaks("job").await.unwrap();
        soon(soon(waiting).await.unwrap().unwrap().release()).await.unwrap();

        for layout in TABLES {
            let url = with(&own.url(), layout);
            migrated(async || Schema::of(&url).unwrap().migrate(&[OWNER]).await).await;
            own.sql(OWNER, &Schema::of(&url).unwrap().statements(&[OWNER])).unwrap();
            let (one, other) = (client(&url, 60_000).await, client(&url, 60_000).await);
            let guard = acquire(&one, "job").await;
            look(&other, "job").await;
            soon(guard.release()).await.unwrap();
        }
        let url = with(&own.url(), "layout=advisory&key=.net");
        let (one, other) = (client(&url, 60_000).await, client(&url, 60_000).await);
        let guard = acquire(&one, "job").await;
        look(&other, "job").await;
        soon(guard.release()).await.unwrap();
        assert_eq!(own.sql(OWNER, "SELECT is_called FROM public.planted").unwrap().trim(), "f", "{path}");
    }
}

/// Triggers of the table would run with the rights of the client that takes a lock.
#[tokio::test]
async fn a_lock_table_that_another_role_planted_is_used_only_where_its_schema_is_named() {
    let own = server(Settings::default().with("fsync = off"));
    own.sql("postgres", "CREATE ROLE planter LOGIN").unwrap();
    own.sql(OWNER, "GRANT CREATE ON SCHEMA public TO planter").unwrap();
    for layout in TABLES {
        let url = with(&own.url(), layout);
        let table = Schema::of(&url).unwrap().statements(&[OWNER]);
        own.sql(OWNER, &format!("SET ROLE planter; {table}")).unwrap();
        let error = refused(&url).await;
        assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("name it with its schema"), "{error}");
        let named = with(&url, &format!("table=public.{}", layout.trim_start_matches("layout=")));
        acquire(&client(&named, 60_000).await, "job").await.release().await.unwrap();
    }
}
