//! Notes on locks, as far as the laws do not cover them.

use std::time::Duration;

use fencelock::{Client, ErrorKind};
use mysql_async::prelude::Queryable;

use crate::lab::{acquire, client, connection, database, state};

/// Far longer than anything here is waited for, so that no lease ends.
const LONG: u64 = 3_600_000;

#[tokio::test]
async fn a_client_without_a_session_reads_notes_and_there_is_none_before_the_tables() {
    let url = database();
    let looker =
        Client::builder().session_when_needed(true).ttl(Duration::from_millis(LONG)).connect(&url).await.unwrap();
    let before = looker.note("job").await.unwrap();
    assert_eq!(before.note, None);
    let guard = acquire(&client(&url, LONG).await, "job").await;
    guard.write_note("here", None).await.unwrap();
    let read = looker.note("job").await.unwrap();
    let note = read.note.unwrap();
    assert_eq!((note.text(), note.token), (Some("here"), guard.token()));
    assert!(before.now <= note.written && note.written <= read.now, "{note:?}");
}

/// A user's transaction that holds the grant keeps no note waiting; inside of a transaction none is written.
#[tokio::test]
async fn a_note_is_written_while_a_transaction_holds_the_grant() {
    let url = database();
    let one = client(&url, LONG).await;
    let (guard, mut user) = (acquire(&one, "job").await, connection(&url).await);
    user.query_drop("START TRANSACTION").await.unwrap();
    user.exec_drop("CALL fencelock_hold('job', ?)", (guard.token().unwrap().get(),)).await.unwrap();
    guard.write_note("first", None).await.unwrap();
    assert_eq!(state(user.query_drop("CALL fencelock_write_note('job', 1, 1, 1, 'x', NULL)").await), "25001");
    user.query_drop("ROLLBACK").await.unwrap();
    assert_eq!(one.note("job").await.unwrap().note.unwrap().text(), Some("first"));
}

#[tokio::test]
async fn no_note_is_written_once_the_session_has_ended_although_its_holder_has_no_notice() {
    let url = database();
    let one = client(&url, LONG).await;
    let (guard, mut user) = (acquire(&one, "job").await, connection(&url).await);
    user.query_drop("UPDATE fencelock_session SET expires = 1").await.unwrap();
    assert_eq!(guard.write_note("late", None).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(client(&url, LONG).await.note("job").await.unwrap().note, None);
}

#[tokio::test]
async fn expired_notes_are_swept_a_thousand_at_a_time_and_no_others() {
    let url = database();
    let one = client(&url, LONG).await;
    let mut user = connection(&url).await;
    user.query_drop("SET time_zone = '+00:00'").await.unwrap();
    for (name, ttl) in [("a", None), ("b", Some(Duration::from_secs(3600))), ("c", Some(Duration::from_millis(1)))] {
        acquire(&one, name).await.write_note(name, ttl).await.unwrap();
    }
    let many = "INSERT INTO fencelock_note SELECT CONCAT('old', b), '', 1, '', 0, 1, 0, 1 FROM fencelock_bucket WHERE b < 1150";
    user.query_drop(many).await.unwrap();
    for left in [153, 2, 2] {
        user.query_drop("CALL fencelock_clear_up(512)").await.unwrap();
        let there: Option<i64> = user.query_first("SELECT COUNT(*) FROM fencelock_note").await.unwrap();
        assert_eq!(there, Some(left));
    }
}
