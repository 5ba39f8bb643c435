//! Notes: a late holder's note never counts, and an expired one leaves nothing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::SystemTime;

use super::super::sessions::session_name;
use super::super::ticket::EncodedName;
use super::*;
use crate::FencingToken;
use crate::store::{Break, GrantId, Note, NoteOrder};

pub(super) fn order(place: &dyn Place, value: Option<&str>, ttl: Option<Duration>) -> NoteOrder {
    let grant = GrantId { place: place.id(), token: FencingToken::new(token(place)) };
    NoteOrder::new(grant, Owner::new(1, "host", 7), value.map(str::as_bytes), ttl).unwrap()
}

async fn write(store: &FileStore, order: &NoteOrder, now: SystemTime) {
    assert!(store.directory().write_note(order, now, store.patience()).await.unwrap());
}

/// The text of the note on a lock.
fn text(store: &FileStore, name: &Name, now: SystemTime) -> Option<String> {
    let read = store.directory().read_note(name, now).unwrap();
    read.note.as_ref().and_then(Note::text).map(str::to_owned)
}

/// The files of notes.
fn files(directory: &TempDir) -> usize {
    let Ok(folders) = std::fs::read_dir(directory.path().join("notes")) else { return 0 };
    folders.map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap().count()).sum()
}

#[tokio::test]
async fn a_note_of_a_holder_that_was_broken_meanwhile_never_counts() {
    let directory = directory();
    let (near, far) = (Arc::new(store(&directory)), store(&directory));
    let (mut one, mut two) = (Client::on(&near), Client::on(&far));
    let job = Name::new("job").unwrap();
    for round in 0..30 {
        let mut held = one.enter("job", Claim::MUTEX).await;
        granted(&mut held).await;
        let late = order(&*held, Some("late"), None);
        let counts = Arc::new((AtomicBool::new(false), AtomicUsize::new(0)));
        let (writing, told, writes) = (Arc::clone(&near), Arc::clone(&counts), late.clone());
        let writer = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            while runtime.block_on(writing.write_note(&writes)).unwrap() {
                told.1.fetch_add(1, Ordering::SeqCst);
            }
            assert!(told.0.load(Ordering::SeqCst), "it was refused while it was held");
        });
        while counts.1.load(Ordering::SeqCst) < round % 5 {
            std::thread::yield_now();
        }
        let queue = far.queue(&job, Page::ALL).await.unwrap();
        let order = Break::of(&job, &queue.contenders[0], Owner::new(2, "host", 8), "stuck", SystemTime::now());
        counts.0.store(true, Ordering::SeqCst);
        assert!(far.break_grant(&order.unwrap()).await.unwrap());
        // From now on the note must not change, at whichever step the writer is.
        let after = far.note(&job).await.unwrap();
        writer.join().unwrap();
        assert_eq!(after.note, far.note(&job).await.unwrap().note);
        let mut next = two.enter("job", Claim::MUTEX).await;
        granted(&mut next).await;
        write(&far, &self::order(&*next, Some("next"), None), SystemTime::now()).await;
        assert!(!near.write_note(&late).await.unwrap());
        assert_eq!(text(&near, &job, SystemTime::now()).as_deref(), Some("next"));
        next.leave().await.unwrap();
        let _ = held.leave().await;
    }
}

#[tokio::test]
async fn a_note_that_was_replaced_or_deleted_or_has_expired_leaves_no_file() {
    let directory = directory();
    let store = store(&directory);
    let mut one = Client::on(&store);
    let (job, now, hour) = (Name::new("job").unwrap(), SystemTime::now(), Some(Duration::from_secs(3600)));
    let bucket = EncodedName::of(&job).bucket;
    let mut names = (0..).map(|number| format!("other/{number}"));
    let beside = names.find(|name| EncodedName::of(&Name::new(name).unwrap()).bucket == bucket).unwrap();
    let (held, other) = (one.enter("job", Claim::MUTEX).await, one.enter(&beside, Claim::MUTEX).await);
    assert_eq!((text(&store, &job, now), files(&directory)), (None, 0));
    for value in ["first", "second", "third"] {
        write(&store, &order(&*held, Some(value), None), now).await;
        assert_eq!((text(&store, &job, now).as_deref(), files(&directory)), (Some(value), 1));
    }
    // The clock goes back: the last one written still counts.
    let earlier = now - Duration::from_secs(3600);
    write(&store, &order(&*held, Some("fourth"), hour), earlier).await;
    assert_eq!(text(&store, &job, earlier).as_deref(), Some("fourth"));
    assert_eq!(text(&store, &job, now), None, "its hour has passed");
    write(&store, &order(&*other, Some("beside"), None), now).await;
    assert_eq!(files(&directory), 1, "the next note in the bucket clears it away");
    for place in [held, other] {
        write(&store, &order(&*place, None, None), now).await;
    }
    assert_eq!(files(&directory), 0);
}

#[tokio::test]
async fn a_note_of_a_holder_that_left_meanwhile_never_counts() {
    let directory = directory();
    let (near, far) = (store(&directory), Arc::new(store(&directory)));
    let (mut one, job) = (Client::on(&near), Name::new("job").unwrap());
    for round in 0..200 {
        let mut held = one.enter("job", Claim::MUTEX).await;
        let late = order(&*held, Some(&format!("of round {round}")), None);
        let started = Arc::new(AtomicBool::new(false));
        let (writing, told) = (Arc::clone(&far), Arc::clone(&started));
        let writer = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            while runtime.block_on(writing.write_note(&late)).unwrap() {
                told.store(true, Ordering::SeqCst);
            }
        });
        while !started.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        for _ in 0..round * 10 {
            std::hint::spin_loop();
        }
        assert_eq!(held.leave().await.unwrap(), Left::Released);
        let after = near.note(&job).await.unwrap();
        writer.join().unwrap();
        assert_eq!(after.note, near.note(&job).await.unwrap().note, "round {round}");
    }
}

#[tokio::test]
async fn a_writer_that_was_killed_in_between_leaves_the_old_note_or_the_new_one_whole() {
    let directory = directory();
    let here = store(&directory);
    let mut client = Client::on(&here);
    let (job, now) = (Name::new("job").unwrap(), SystemTime::now());
    let mut held = client.enter("job", Claim::MUTEX).await;
    let slot = EncodedName::of(&job);
    let folder = directory.path().join(format!("notes/{:03x}", slot.bucket));
    let [note, next, counts] = ["n", "p", "k"].map(|kind| folder.join(format!("{kind}.{}", slot.encoded)));
    let shown = || text(&here, &job, now);
    write(&here, &order(&*held, Some("one"), None), now).await;
    let first = std::fs::read(&note).unwrap();
    std::fs::write(&next, String::from_utf8(first.clone()).unwrap().replace("one", "two")).unwrap();
    assert_eq!(shown().as_deref(), Some("one"), "the next one does not count yet");
    std::os::unix::fs::symlink("1", &counts).unwrap();
    assert_eq!(shown().as_deref(), Some("two"), "it counts");
    std::fs::rename(&next, &note).unwrap();
    assert_eq!(shown().as_deref(), Some("two"), "it took the place of the old one");
    std::fs::write(&next, "").unwrap();
    assert_eq!(shown(), None, "a deletion that counts");
    let abandoned = std::fs::File::create(folder.join("tmp.abandoned")).unwrap();
    abandoned.set_modified(now - Duration::from_secs(120)).unwrap();
    write(&here, &order(&*held, Some("three"), None), now).await;
    assert_eq!((shown().as_deref(), files(&directory)), (Some("three"), 1));
    std::fs::write(&next, first).unwrap();
    let late = order(&*held, Some("late"), None);
    held.leave().await.unwrap();
    assert!(!here.write_note(&late).await.unwrap());
    assert_eq!(shown().as_deref(), Some("three"));
    assert!(!counts.exists() && std::fs::read_dir(&folder).unwrap().count() <= 2, "no temporary file");
}

#[tokio::test]
async fn a_note_that_counts_is_written_although_the_old_one_cannot_be_replaced() {
    let directory = directory();
    let here = store(&directory);
    let mut client = Client::on(&here);
    let (job, now) = (Name::new("job").unwrap(), SystemTime::now());
    let held = client.enter("job", Claim::MUTEX).await;
    let slot = EncodedName::of(&job);
    // The kernel replaces no directory by a file.
    std::fs::create_dir_all(directory.path().join(format!("notes/{:03x}/n.{}", slot.bucket, slot.encoded))).unwrap();
    write(&here, &order(&*held, Some("one"), None), now).await;
    assert_eq!(text(&here, &job, now).as_deref(), Some("one"));
    here.write_note(&order(&*held, Some("two"), None)).await.unwrap_err();
    assert_eq!(text(&here, &job, now).as_deref(), Some("one"));
}

#[tokio::test]
async fn a_session_that_cannot_be_read_is_an_error_and_not_an_ended_grant() {
    let directory = directory();
    let here = store(&directory);
    let mut client = Client::on(&here);
    let held = client.enter("job", Claim::MUTEX).await;
    // A link in its place: the session is alive, as this process knows, and its file cannot be read.
    let file = directory.path().join("sessions").join(session_name(client.core.id));
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/null", &file).unwrap();
    here.write_note(&order(&*held, Some("a"), None)).await.unwrap_err();
}
