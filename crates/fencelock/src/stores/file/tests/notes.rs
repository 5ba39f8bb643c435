//! Notes: what a late holder writes never counts, and what is over leaves nothing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::SystemTime;

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

/// What the note on a lock says.
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
async fn what_a_broken_holder_is_about_to_write_never_counts_once_it_is_broken() {
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
        // From now on it must not change any more, whatever the writer was about to do.
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
async fn what_was_replaced_or_deleted_or_is_over_leaves_no_file() {
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
    // The clock goes back: the last one written counts all the same.
    let earlier = now - Duration::from_secs(3600);
    write(&store, &order(&*held, Some("fourth"), hour), earlier).await;
    assert_eq!(text(&store, &job, earlier).as_deref(), Some("fourth"));
    assert_eq!(text(&store, &job, now), None, "its hour is over");
    write(&store, &order(&*other, Some("beside"), None), now).await;
    assert_eq!(files(&directory), 1, "the next note in the bucket clears it away");
    for place in [held, other] {
        write(&store, &order(&*place, None, None), now).await;
    }
    assert_eq!(files(&directory), 0);
}
