//! Notes on locks, as far as the laws do not cover them.

use std::time::Duration;

use fencelock::postgres::HOLD;
use fencelock::{Client, ErrorKind};

use crate::lab::{LONG, acquire, client, code, connection, database};

#[tokio::test]
async fn a_client_without_a_session_reads_notes_and_there_is_none_before_the_schema() {
    let (url, _) = database();
    let looker = Client::builder().session_when_needed(true).connect(&url).await.unwrap();
    let before = looker.note("job").await.unwrap();
    assert_eq!(before.note, None);
    let guard = acquire(&client(&url, LONG).await, "job").await;
    guard.write_note("here", None).await.unwrap();
    let read = looker.note("job").await.unwrap();
    let note = read.note.unwrap();
    assert_eq!((note.text(), note.token), (Some("here"), guard.token()));
    assert!(before.now <= note.written && note.written <= read.now, "{note:?}");
}

/// A user's transaction that holds the grant keeps no note waiting; in another isolation level none is written.
#[tokio::test]
async fn a_note_is_written_while_a_transaction_holds_the_grant() {
    let (url, _) = database();
    let one = client(&url, LONG).await;
    let (guard, user) = (acquire(&one, "job").await, connection(&url).await);
    user.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    user.execute(HOLD, &[&"job", &guard.token().unwrap().to_i64()]).await.unwrap();
    guard.write_note("first", None).await.unwrap();
    let write = "SELECT fencelock.write_note('job', 1, 1, 1, 'x', NULL)";
    assert_eq!(code(user.batch_execute(write).await), "FL003");
    user.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(one.note("job").await.unwrap().note.unwrap().text(), Some("first"));
}

#[tokio::test]
async fn no_note_is_written_once_the_session_has_ended_although_its_holder_has_no_notice() {
    let (url, _) = database();
    let one = client(&url, LONG).await;
    let (guard, user) = (acquire(&one, "job").await, connection(&url).await);
    user.batch_execute("UPDATE fencelock.session SET expires = clock_timestamp() - interval '1 ms'").await.unwrap();
    assert_eq!(guard.write_note("late", None).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(client(&url, LONG).await.note("job").await.unwrap().note, None);
}

#[tokio::test]
async fn expired_notes_are_swept_a_thousand_at_a_time_and_no_others() {
    let (url, _) = database();
    let one = client(&url, LONG).await;
    let user = connection(&url).await;
    for (name, ttl) in [("a", None), ("b", Some(Duration::from_secs(3600))), ("c", Some(Duration::from_millis(1)))] {
        acquire(&one, name).await.write_note(name, ttl).await.unwrap();
    }
    let many =
        "INSERT INTO fencelock.note SELECT 'old' || n, '', 1, '', 0, 1, 'epoch', timestamptz 'epoch' + interval '1 ms'
        FROM generate_series(1, 1500) AS n";
    user.batch_execute(many).await.unwrap();
    for left in [503, 2, 2] {
        user.execute("SELECT fencelock.clear_up(512)", &[]).await.unwrap();
        let there: i64 = user.query_one("SELECT count(*) FROM fencelock.note", &[]).await.unwrap().get(0);
        // The note with a ttl of a millisecond is the last expired one.
        assert_eq!(there, left);
    }
}
