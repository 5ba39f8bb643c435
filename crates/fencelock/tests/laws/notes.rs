//! The laws of notes, as users of guards see them.

use fencelock::inspect::Note;
use fencelock::memory::Operation;
use fencelock::{ErrorKind, Outcome};

use crate::support::{in_world, ms, secs};

#[test]
fn every_client_reads_what_the_holder_wrote_and_how_long_ago_by_the_stores_clock() {
    in_world(async |world, []| {
        let (one, other) = (world.process().await.client, world.process().await.client);
        assert_eq!(other.note("a").await.unwrap().note, None);
        let guard = one.mutex("a").unwrap().acquire().await.unwrap();
        guard.write_note("10.0.0.7:80", Some(secs(60))).await.unwrap();
        world.advance(secs(3)).await;
        let read = other.note("a").await.unwrap();
        let note = read.note.as_ref().unwrap();
        assert_eq!((note.text(), note.token, &note.owner), (Some("10.0.0.7:80"), guard.token(), one.owner()));
        assert_eq!(read.age(), Some(secs(3)));
        guard.release().await.unwrap();
        assert_eq!(other.note("a").await.unwrap().note, read.note, "it stays when the lock is given back");
        world.advance(secs(57)).await;
        assert_eq!(other.note("a").await.unwrap().note, None);
    });
}

#[test]
fn a_holder_that_lost_the_lock_writes_nothing_and_gets_that_error() {
    in_world(async |world, [one, other]| {
        let guard = one.client.mutex("a").unwrap().acquire().await.unwrap();
        let lent = guard.reenter().unwrap();
        guard.write_note("first", None).await.unwrap();
        let late = one.store.delay_next(Operation::WriteNote);
        let writing = tokio::spawn(async move { lent.write_note("late", None).await });
        world.advance(ms(1)).await;
        let holder = other.client.queue("a").await.unwrap().contenders[0].clone();
        assert!(other.client.break_grant("a", &holder, "stuck").await.unwrap());
        let next = other.client.mutex("a").unwrap().acquire().await.unwrap();
        late.release();
        assert_eq!(writing.await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(guard.write_note("later", None).await.unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(other.client.note("a").await.unwrap().note.unwrap().text(), Some("first"));
        next.delete_note().await.unwrap();
        assert_eq!(other.client.note("a").await.unwrap().note, None);
    });
}

#[test]
fn a_write_whose_answer_was_lost_has_an_unknown_outcome() {
    in_world(async |_, [one]| {
        let guard = one.client.mutex("a").unwrap().acquire().await.unwrap();
        one.store.lose_next_reply(Operation::WriteNote);
        let error = guard.write_note("x", None).await.unwrap_err();
        assert_eq!((error.outcome(), error.is_retryable()), (Outcome::Unknown, true));
        guard.write_note("x", None).await.unwrap();
    });
}

#[test]
fn a_note_that_is_too_long_or_is_kept_for_no_time_is_refused() {
    in_world(async |world, []| {
        let client = world.process().await.client;
        let guard = client.mutex("a").unwrap().acquire().await.unwrap();
        let longest = [0xff; Note::MAX_BYTES];
        guard.write_note(longest, None).await.unwrap();
        assert_eq!(*client.note("a").await.unwrap().note.unwrap().value, longest);
        for (value, ttl, said) in [
            (&[0; Note::MAX_BYTES + 1][..], None, "4096 bytes at most, and this one has 4097"),
            (b"", Some(secs(0)), "1 ms to 36,500 days"),
            (b"", Some(secs(u64::MAX)), "1 ms to 36,500 days"),
        ] {
            let error = guard.write_note(value, ttl).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(said), "{error}");
        }
        guard.write_note("", None).await.unwrap();
        assert_eq!(client.note("a").await.unwrap().note.unwrap().text(), Some(""));
        let lost = guard.reenter().unwrap();
        guard.release().await.unwrap();
        lost.release().await.unwrap();
    });
}
