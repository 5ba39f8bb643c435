//! Requests that the server undoes, cancels or never answers: the client sends them again, and no lock is lost.

use fencelock::postgres::{HOLD, Schema};
use fencelock::{ErrorKind, Name};
use fencelock_testbed::postgres::{OWNER, Settings};

use crate::lab::{
    acquire, acquiring, client, connection, database, migrated, patient_user, server, soon, until, until_queued, with,
};

/// Three rows in seven that a request writes make the server undo it: at once with `trouble`, at the commit with `late_trouble`.
const TROUBLE: &str = "CREATE SEQUENCE public.row_number;
    CREATE FUNCTION public.trouble() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        IF nextval('public.row_number') % 7 < 3 THEN
            RAISE EXCEPTION USING ERRCODE = TG_ARGV[0], MESSAGE = 'undone for a test';
        END IF;
        RETURN NULL;
    END $$";

#[tokio::test]
async fn a_request_that_the_server_undoes_at_a_statement_or_at_the_commit_is_sent_again() {
    let (url, _) = database();
    let (one, other) = (client(&url, 60_000).await, client(&url, 60_000).await);
    let user = connection(&url).await;
    user.batch_execute(TROUBLE).await.unwrap();
    for code in ["40001", "40P01", "25P02"] {
        for (kind, when) in [("", ""), ("CONSTRAINT", "DEFERRABLE INITIALLY DEFERRED")] {
            for table in ["place", "session"] {
                let trigger = format!(
                    "CREATE {kind} TRIGGER trouble AFTER INSERT OR UPDATE OR DELETE ON fencelock.{table} {when}
                     FOR EACH ROW EXECUTE FUNCTION public.trouble('{code}')"
                );
                user.batch_execute(&trigger).await.unwrap();
            }
            for _ in 0..2 {
                let third = client(&url, 60_000).await;
                let writer = soon(one.rwlock("page").unwrap().write()).await.unwrap();
                let page = other.rwlock("page").unwrap();
                let reading = tokio::spawn(async move { page.read().await });
                until_queued(&one, "page", 2).await;
                let waiting = acquiring(&third, "page");
                // Another capacity is refused, also after an undone request.
                assert_eq!(soon(waiting).await.unwrap().unwrap_err().kind(), ErrorKind::Conflict);
                let reader = soon(writer.downgrade()).await.unwrap();
                soon(soon(reading).await.unwrap().unwrap().release()).await.unwrap();
                soon(reader.release()).await.unwrap();
                soon(third.close()).await.unwrap();
            }
            let fallen = "SELECT last_value FROM public.row_number";
            assert!(user.query_one(fallen, &[]).await.unwrap().get::<_, i64>(0) > 20, "{code} {when}");
            user.batch_execute(
                "ALTER SEQUENCE public.row_number RESTART; DROP TRIGGER trouble ON fencelock.place; DROP TRIGGER trouble ON fencelock.session",
            )
            .await
            .unwrap();
            until_queued(&one, "page", 0).await;
        }
    }
}

/// An administrator's tool cancels all slow statements. A cancelled request had no effect, and is sent again.
#[tokio::test]
async fn a_request_that_is_cancelled_while_it_waits_for_rows_is_asked_again() {
    let (url, _) = database();
    let (one, foreign, onlooker) = (client(&url, 60_000).await, connection(&url).await, connection(&url).await);
    for _ in 0..3 {
        foreign.batch_execute("BEGIN; LOCK TABLE fencelock.bucket IN EXCLUSIVE MODE").await.unwrap();
        let waiting = acquiring(&one, "job");
        until("it waits and is cancelled", async || {
            let cancelled = "SELECT count(*) FILTER (WHERE pg_cancel_backend(pid)) FROM pg_stat_activity
                WHERE application_name = 'fencelock' AND datname = current_database() AND wait_event_type = 'Lock'";
            onlooker.query_one(cancelled, &[]).await.unwrap().get::<_, i64>(0) > 0
        })
        .await;
        foreign.batch_execute("COMMIT").await.unwrap();
        soon(soon(waiting).await.unwrap().unwrap().release()).await.unwrap();
        until_queued(&one, "job", 0).await;
    }
}

/// Logical replication refuses to update and delete rows of a table without a key.
#[tokio::test]
async fn under_a_publication_of_all_tables_locks_and_clean_up_work_and_a_lock_table_without_a_key_is_named() {
    let own = server(Settings::default().with("wal_level = logical").with("fsync = off"));
    let early = client(&own.url(), 60_000).await;
    own.sql(OWNER, "CREATE PUBLICATION everything FOR ALL TABLES").unwrap();
    let (one, other) = (client(&own.url(), 120_000).await, client(&own.url(), 120_000).await);
    let writer = soon(one.rwlock("job").unwrap().write()).await.unwrap();
    let waiting = acquiring(&early, "other");
    soon(soon(waiting).await.unwrap().unwrap().release()).await.unwrap();
    let queue = other.queue(&Name::new("job").unwrap()).await.unwrap();
    soon(soon(writer.downgrade()).await.unwrap().release()).await.unwrap();
    let guard = acquire(&one, "job").await;
    guard.write_note("note", None).await.unwrap();
    assert_eq!(queue.queued, 1);
    let queue = other.queue(&Name::new("job").unwrap()).await.unwrap();
    other.break_grant("job", &queue.contenders[0], "stuck").await.unwrap();
    soon(guard.lost()).await;
    let guard = acquire(&one, "last").await;
    own.sql(OWNER, "ALTER TABLE fencelock.place REPLICA IDENTITY NOTHING").unwrap();
    let error = soon(guard.release()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("publish whole tables"), "{error}");
    own.sql(OWNER, "ALTER TABLE fencelock.place REPLICA IDENTITY DEFAULT").unwrap();
    let user = connection(&own.url()).await;
    // As after a promotion: another memory.
    own.sql(OWNER, "UPDATE fencelock.layout SET mark = 'another', longest = '0'").unwrap();
    client(&own.url(), 1_000).await;
    for bucket in (0..4096).step_by(256) {
        user.batch_execute(&format!("SELECT fencelock.fence('stock', 1), fencelock.clear_up({bucket})")).await.unwrap();
    }
    for layout in ["layout=distributed_lock", "layout=shedlock"] {
        let url = with(&own.url(), layout);
        migrated(async || Schema::of(&url).unwrap().migrate(&[]).await).await;
        acquire(&client(&url, 60_000).await, "job").await.release().await.unwrap();
    }
    let keyless = "ALTER TABLE distributed_lock DROP CONSTRAINT distributed_lock_pkey, ADD UNIQUE (lock_key)";
    user.batch_execute(keyless).await.unwrap();
    let client = client(&with(&own.url(), "layout=distributed_lock"), 60_000).await;
    let error = soon(client.mutex("job").unwrap().acquire()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Layout && error.to_string().contains("REPLICA IDENTITY"), "{error}");
}

/// Each connection that a client has: that of its session, the one on which a release waits, and that of a client which only looks.
#[tokio::test]
async fn each_connection_of_a_client_may_be_ended_at_the_server_and_no_lock_is_lost() {
    let own = server(Settings::default());
    let end_all = || {
        let all = "SELECT count(*) FROM (SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'fencelock') AS e";
        own.sql("postgres", all).unwrap().trim().parse::<usize>().unwrap()
    };
    let (one, other) = (client(&own.url(), 60_000).await, client(&own.url(), 60_000).await);
    let looker = fencelock::Client::builder().session_when_needed(true).connect(&own.url()).await.unwrap();
    let kept = acquire(&one, "kept").await;
    for _ in 0..3 {
        let guard = acquire(&one, "job").await;
        let waiting = acquiring(&other, "job");
        until_queued(&looker, "job", 2).await;
        let user = patient_user(&own.url()).await;
        user.batch_execute("BEGIN").await.unwrap();
        user.execute(HOLD, &[&"job", &guard.token().unwrap().to_i64()]).await.unwrap();
        let releasing = tokio::spawn(guard.release());
        let waits =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencelock' AND wait_event_type = 'Lock'";
        until("the release waits", async || own.sql("postgres", waits).unwrap().trim() == "1").await;
        // Two sessions, what looks, and the release. The server shows a connection for a while after its end.
        let ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'fencelock'";
        until("the others are gone", async || own.sql("postgres", ours).unwrap().trim() == "4").await;
        assert_eq!(end_all(), 4);
        until_queued(&looker, "kept", 1).await;
        user.batch_execute("COMMIT").await.unwrap();
        soon(releasing).await.unwrap().unwrap();
        soon(soon(waiting).await.unwrap().unwrap().release()).await.unwrap();
        until_queued(&looker, "job", 0).await;
        kept.check().unwrap();
    }
    let nothing = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    assert_eq!(own.sql("postgres", nothing).unwrap().trim(), "0", "a lease is a row, and no advisory lock");
    soon(kept.release()).await.unwrap();
}
