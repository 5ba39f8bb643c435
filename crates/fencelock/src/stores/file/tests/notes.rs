//! Notes: what a late holder writes never counts, and what is over leaves nothing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::SystemTime;

use super::*;
use crate::FencingToken;
use crate::store::{Break, GrantId, Note, NoteOrder};

pub(super) fn order(place: &dyn Place, token: u64, value: Option<&[u8]>, ttl: Option<Duration>) -> NoteOrder {
    let grant = GrantId { place: place.id(), token: FencingToken::new(token) };
    NoteOrder::new(grant, Owner::new(1, "host", 7), value, ttl).unwrap()
}

/// The files of notes.
fn files(directory: &TempDir) -> usize {
    let Ok(folders) = std::fs::read_dir(directory.path().join("notes")) else { return 0 };
    folders.map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap().count()).sum()
}

fn value(read: &crate::store::NoteRead) -> Option<&str> {
    read.note.as_ref().and_then(Note::text)
}

#[tokio::test]
async fn what_a_broken_holder_is_about_to_write_never_counts_once_it_is_broken() {
    let directory = directory();
    let (store, others) = (store(&directory), store(&directory));
    let (mut one, mut two) = (Client::on(&store), Client::on(&others));
    let job = Name::new("job").unwrap();
    for round in 0..30 {
        let mut held = one.enter("job", Claim::MUTEX).await;
        let token = granted(&mut held).await;
        let late = order(&*held, token, Some(b"late"), None);
        let open = store.directory();
        let (is_over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                while open.write_note(&late, SystemTime::now()).unwrap() {
                    written.fetch_add(1, Ordering::SeqCst);
                }
                assert!(is_over.load(Ordering::SeqCst), "it was refused while it was held");
            });
            while written.load(Ordering::SeqCst) < round % 5 {
                std::thread::yield_now();
            }
            let queue = open.read_queue(&job, Page::ALL).unwrap();
            let order = Break::of(&job, &queue.contenders[0], Owner::new(2, "host", 8), "stuck", SystemTime::now());
            is_over.store(true, Ordering::SeqCst);
            assert!(open.break_grant(&order.unwrap()).unwrap());
            // From now on it must not change any more, whatever the writer was about to do.
            let after = open.read_note(&job, SystemTime::now()).unwrap();
            writer.join().unwrap();
            let later = open.read_note(&job, SystemTime::now()).unwrap();
            assert_eq!(after.note, later.note);
        });
        let mut next = two.enter("job", Claim::MUTEX).await;
        let token = granted(&mut next).await;
        assert!(open.write_note(&order(&*next, token, Some(b"next"), None), SystemTime::now()).unwrap());
        assert!(!open.write_note(&late, SystemTime::now()).unwrap());
        assert_eq!(value(&open.read_note(&job, SystemTime::now()).unwrap()), Some("next"));
        next.leave().await.unwrap();
        let _ = held.leave().await;
    }
}

#[tokio::test]
async fn old_versions_and_what_is_over_or_deleted_leave_no_file() {
    let directory = directory();
    let store = store(&directory);
    let mut one = Client::on(&store);
    let open = store.directory();
    let (job, now) = (Name::new("job").unwrap(), SystemTime::now());
    let mut held = one.enter("job", Claim::MUTEX).await;
    let token = granted(&mut held).await;
    assert_eq!((value(&open.read_note(&job, now).unwrap()), files(&directory)), (None, 0));
    for text in ["first", "second", "third"] {
        assert!(open.write_note(&order(&*held, token, Some(text.as_bytes()), None), now).unwrap());
        assert_eq!((value(&open.read_note(&job, now).unwrap()), files(&directory)), (Some(text), 2));
    }
    // The clock goes back: the last one written counts all the same.
    let earlier = now - Duration::from_secs(3600);
    let hour = Some(Duration::from_secs(3600));
    assert!(open.write_note(&order(&*held, token, Some(b"fourth"), hour), earlier).unwrap());
    assert_eq!(value(&open.read_note(&job, earlier).unwrap()), Some("fourth"));
    assert_eq!(value(&open.read_note(&job, now).unwrap()), None, "its hour is over");
    assert!(open.write_note(&order(&*held, token, None, None), now).unwrap());
    assert_eq!((value(&open.read_note(&job, now).unwrap()), files(&directory)), (None, 0));
    held.leave().await.unwrap();
}

#[tokio::test]
async fn a_version_whose_writer_died_before_it_cleared_away_is_followed_all_the_same() {
    let directory = directory();
    let store = store(&directory);
    let mut one = Client::on(&store);
    let open = store.directory();
    let (job, now) = (Name::new("job").unwrap(), SystemTime::now());
    let mut held = one.enter("job", Claim::MUTEX).await;
    let token = granted(&mut held).await;
    assert!(open.write_note(&order(&*held, token, Some(b"old"), None), now).unwrap());
    let folder = std::fs::read_dir(directory.path().join("notes")).unwrap().next().unwrap().unwrap().path();
    let aside = tempfile::tempdir_in(directory.path()).unwrap();
    let old: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name()).collect();
    old.iter().for_each(|file| std::fs::hard_link(folder.join(file), aside.path().join(file)).unwrap());
    let short = Some(Duration::from_millis(1));
    assert!(open.write_note(&order(&*held, token, Some(b"new"), short), now).unwrap());
    old.iter().for_each(|file| std::fs::hard_link(aside.path().join(file), folder.join(file)).unwrap());
    assert_eq!(value(&open.read_note(&job, now).unwrap()), Some("new"));
    let later = now + Duration::from_secs(1);
    assert_eq!(value(&open.read_note(&job, later).unwrap()), None, "the older one is not the note again");
    assert!(open.write_note(&order(&*held, token, None, None), later).unwrap());
    assert_eq!((value(&open.read_note(&job, later).unwrap()), files(&directory)), (None, 0));
    held.leave().await.unwrap();
}
