//! Races and leftovers that only show on a directory that another process changes at the same time.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use futures_util::FutureExt;

use super::super::line::KnownContender;
use super::super::sessions::session_name;
use super::super::ticket::{EncodedName, Key, Ticket};
use super::*;

/// Where the bucket of `name` is, made if need be.
fn bucket_of(directory: &TempDir, name: &str) -> (EncodedName, std::path::PathBuf) {
    let slot = EncodedName::of(&Name::new(name).unwrap());
    let path = directory.path().join(Directory::bucket_path(slot.bucket));
    std::fs::create_dir_all(&path).unwrap();
    (slot, path)
}

#[tokio::test]
async fn a_dead_ticket_that_cannot_be_removed_is_passed_over() {
    for (claim, other) in [(Claim::READER, Claim::WRITER), (Claim::MUTEX, Claim::MUTEX)] {
        let directory = directory();
        let here = store(&directory);
        let (slot, path) = bucket_of(&directory, "a");
        let dead = Ticket { key: Key { seq: 1, session: 1, number: 1 }, claim: other };
        // `unlink` refuses a directory, to root as well.
        std::fs::create_dir(path.join(dead.file_name(&slot.encoded))).unwrap();
        std::fs::write(directory.path().join("sessions").join(session_name(1)), "").unwrap();
        let mut client = Client::on(&here);
        let mut place = client.enter("a", claim).await;
        granted(&mut place).await;
        assert_eq!(sessions(&directory), 2, "the file of a session whose tickets are left stays");
    }
}

#[tokio::test]
async fn a_waiter_that_stopped_waiting_leaves_no_listener_behind() {
    let directory = directory();
    let here = store(&directory);
    let mut client = Client::on(&here);
    let _held = client.enter("a", Claim::MUTEX).await;
    for _ in 0..3 {
        let mut waiting = client.enter("a", Claim::MUTEX).await;
        let soon = SystemClock.now().after(Duration::from_millis(1));
        assert!(matches!(waiting.next(soon).await.unwrap(), Standing::Waiting(_)));
        waiting.leave().await.unwrap();
    }
    let slot = EncodedName::of(&Name::new("a").unwrap());
    let bucket = client.core.directory.bucket(slot.bucket);
    let mut state = bucket.lock();
    let listeners: Vec<_> = state.line(&slot.encoded).unwrap().iter().map(KnownContender::listeners).collect();
    assert_eq!(listeners, [1], "the last one");
}

#[tokio::test]
async fn everything_in_a_directory_of_a_group_belongs_to_that_group() {
    let directory = directory();
    // Only root may give a directory to a group that it is not in.
    let foreign = std::os::unix::fs::chown(directory.path(), None, Some(54_321)).is_ok();
    for mode in [0o770, 0o2770] {
        let path = directory.path().join(format!("{mode:o}"));
        std::fs::create_dir(&path).unwrap();
        if foreign {
            std::os::unix::fs::chown(&path, None, Some(54_321)).unwrap();
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let here = FileStore::builder(&path).unwrap().another_process().open().unwrap();
        let mut client = Client::on(&here);
        let _held = client.enter("a", Claim::MUTEX).await;
        let group = std::fs::metadata(&path).unwrap().gid();
        let (bucket, session) =
            (Directory::bucket_path(EncodedName::of(&Name::new("a").unwrap()).bucket), client.core.id);
        for (inside, mode) in [
            ("b", mode),
            ("sessions", mode),
            (bucket.as_str(), mode),
            ("counters", 0o660),
            ("ceiling", 0o660),
            (&format!("sessions/{}", session_name(session)), 0o660),
        ] {
            let found = std::fs::metadata(path.join(inside)).unwrap();
            assert_eq!((found.gid(), found.mode() & 0o7777), (group, mode), "{inside} in {}", path.display());
        }
    }
}

/// Gives a place up when it is called, as an executor does that drops a task inside `wake`.
struct Dropping(std::sync::Mutex<Option<Box<dyn Place>>>);

impl std::task::Wake for Dropping {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

#[tokio::test]
async fn a_waker_that_drops_another_waiter_of_the_bucket_does_not_block() {
    let directory = directory();
    let here = store(&directory);
    let mut client = Client::on(&here);
    let mut held = client.enter("a", Claim::MUTEX).await;
    let (mut waiting, mut other) = (client.enter("a", Claim::MUTEX).await, client.enter("a", Claim::MUTEX).await);
    let soon = SystemClock.now().after(Duration::from_millis(1));
    assert!(matches!(other.next(soon).await.unwrap(), Standing::Waiting(_)));
    let dropping = Arc::new(Dropping(std::sync::Mutex::new(Some(other))));
    let waker = Arc::clone(&dropping).into();
    let mut next = waiting.next(Moment::NEVER);
    assert!(next.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    held.leave().await.unwrap();
    assert!(dropping.0.lock().unwrap().is_none(), "no waiter was woken");
    assert!(matches!(next.await.unwrap(), Standing::Granted(_)));
}

#[tokio::test]
async fn a_lock_that_cannot_lapse_has_no_time_left_to_count_unless_it_was_given_an_end() {
    let directory = directory();
    let client = crate::Client::builder().connect_store(Arc::new(store(&directory))).await.unwrap();
    let guard = client.mutex("job").unwrap().acquire().await.unwrap();
    assert_eq!((guard.remaining(), guard.state()), (Duration::MAX, crate::GuardState::Held));
    guard.release().await.unwrap();
    let minute = Duration::from_secs(60);
    let guard = client.mutex("job").unwrap().max_hold(minute).acquire().await.unwrap();
    assert!(guard.remaining() <= minute, "{:?}", guard.remaining());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_break_that_came_too_late_takes_back_its_own_record_only() {
    use std::io::Write as _;

    let directory = directory();
    let (store, name) = (store(&directory), Name::new("job").unwrap());
    let mut client = Client::on(&store);
    let _place = client.enter("job", Claim::MUTEX).await;
    let holder = store.queue(&name, Page::ALL).await.unwrap().contenders.remove(0);
    let by = Owner { client: 1, host: "there".to_owned(), pid: 7 };
    let order = Break::of(&name, &holder, by, "in time", SystemTime::now()).unwrap();
    assert!(store.break_grant(&order).await.unwrap());
    // Another one found the same grant, recorded its break, and then had nothing to remove.
    let path = directory.path().join("breaks");
    let late = std::fs::read_to_string(&path).unwrap().replace("in time", "too late");
    let void = late.replace("{\"name\"", "{\"void\":true,\"name\"");
    let mut file = std::fs::File::options().append(true).open(&path).unwrap();
    file.write_all(late.as_bytes()).unwrap();
    assert_eq!(store.breaks(&name).await.unwrap().len(), 2);
    file.write_all(void.as_bytes()).unwrap();
    let kept = store.breaks(&name).await.unwrap();
    assert_eq!(kept.iter().map(|known| &*known.reason).collect::<Vec<_>>(), ["in time"]);
}

/// The lock goes from `two` to `one`, which still has another bucket open than the path names.
async fn both_use_the_bucket(one: &mut Client, two: &mut Client, at_once: bool) {
    let mut held = two.enter("a", Claim::MUTEX).await;
    let before = token(&*held);
    if at_once {
        let entry = one.entry("a", Claim::MUTEX, false);
        assert!(one.session.enter(entry).now_or_never().is_none(), "it has to be opened anew");
    }
    assert!(matches!(one.attempt("a").await, Entered::Busy));
    let mut waiting = one.enter("a", Claim::MUTEX).await;
    let (after, left) = tokio::join!(granted(&mut waiting), held.leave());
    assert!(after > before && left.unwrap() == Left::Released);
    waiting.leave().await.unwrap();
}

#[tokio::test]
async fn a_bucket_that_was_removed_and_made_anew_by_another_process_is_used_by_both() {
    let directory = directory();
    let (near, far) = (store(&directory), store(&directory));
    let (mut one, mut two) = (Client::on(&near), Client::on(&far));
    for at_once in [false, true] {
        one.enter("a", Claim::MUTEX).await.leave().await.unwrap();
        std::fs::remove_dir(bucket_of(&directory, "a").1).unwrap();
        // Theirs is the new one; the other process has the removed one open.
        two.core.directory.bucket(EncodedName::of(&Name::new("a").unwrap()).bucket).lock().forget_directory();
        both_use_the_bucket(&mut one, &mut two, at_once).await;
    }
}

#[tokio::test]
async fn a_process_leaves_a_bucket_that_was_renamed_and_never_waits_behind_its_own_old_ticket() {
    let directory = directory();
    let (near, far) = (store(&directory), store(&directory));
    let (mut one, mut two) = (Client::on(&near), Client::on(&far));
    let (_, path) = bucket_of(&directory, "a");
    for (hour, at_once) in [(1, false), (2, true)] {
        let mut old = one.enter("a", Claim::MUTEX).await;
        std::fs::rename(&path, directory.path().join(format!("b/old-{hour}"))).unwrap();
        assert_eq!(old.leave().await.unwrap(), Left::AlreadyGone);
        // Another process opens the bucket that its path names, and draws a number in it.
        both_use_the_bucket(&mut one, &mut two, at_once).await;
    }
    assert_eq!(tickets(&directory), 0, "no old bucket keeps a ticket");
}

#[tokio::test]
async fn a_waiter_in_a_bucket_that_was_renamed_loses_its_place_and_enters_the_new_one() {
    let directory = directory();
    let (near, far) = (store(&directory), store(&directory));
    let (mut one, mut two) = (Client::on(&near), Client::on(&far));
    let held = one.enter("a", Claim::MUTEX).await;
    let mut waiting = two.enter("a", Claim::MUTEX).await;
    std::fs::rename(bucket_of(&directory, "a").1, directory.path().join("b/old")).unwrap();
    let until = SystemClock.now().after(Duration::from_secs(180));
    assert_eq!(waiting.next(until).await.unwrap(), Standing::Lost(Loss::Removed));
    let mut anew = two.enter("a", Claim::MUTEX).await;
    assert!(granted(&mut anew).await > token(&*held));
    assert_eq!(one.session.renew(&[held.id()]).await.unwrap().gone, [(held.id(), Loss::Removed)]);
}

#[tokio::test]
async fn a_bucket_that_gets_its_name_back_bars_no_other_process_by_what_was_given_back_meanwhile() {
    let directory = directory();
    let (near, far) = (store(&directory), store(&directory));
    let (mut one, mut two) = (Client::on(&near), Client::on(&far));
    let (_, path) = bucket_of(&directory, "a");
    let away = directory.path().join("b/old");
    let mut left = one.enter("a", Claim::MUTEX).await;
    std::fs::rename(&path, &away).unwrap();
    assert_eq!(left.leave().await.unwrap(), Left::AlreadyGone);
    std::fs::rename(&away, &path).unwrap();
    let mut lost = two.enter("a", Claim::MUTEX).await;
    token(&*lost);
    std::fs::rename(&path, &away).unwrap();
    assert_eq!(two.session.renew(&[lost.id()]).await.unwrap().gone.len(), 1);
    assert_eq!(lost.leave().await.unwrap(), Left::AlreadyGone);
    std::fs::rename(&away, &path).unwrap();
    token(&*one.enter("a", Claim::MUTEX).await);
}

#[tokio::test]
async fn a_ticket_of_a_living_session_that_no_place_has_is_removed_with_the_next_listing() {
    let directory = directory();
    let (near, far) = (store(&directory), store(&directory));
    let (mut one, mut two) = (Client::on(&near), Client::on(&far));
    let (_, path) = bucket_of(&directory, "a");
    let mut left = one.enter("a", Claim::MUTEX).await;
    let ticket = std::fs::read_dir(&path).unwrap().next().unwrap().unwrap().path();
    left.leave().await.unwrap();
    let mut held = two.enter("a", Claim::MUTEX).await;
    // As after the restore of a backup.
    std::os::unix::fs::symlink("1", ticket).unwrap();
    let mut waiting = one.enter("a", Claim::MUTEX).await;
    let (_, left) = tokio::join!(granted(&mut waiting), held.leave());
    assert_eq!(left.unwrap(), Left::Released);
    waiting.leave().await.unwrap();
    assert_eq!(tickets(&directory), 0);
}

#[tokio::test]
async fn a_removed_bucket_is_not_locked_and_no_number_is_drawn_in_it() {
    let directory = directory();
    let here = store(&directory);
    let mut client = Client::on(&here);
    client.enter("a", Claim::MUTEX).await.leave().await.unwrap();
    let (slot, path) = bucket_of(&directory, "a");
    std::fs::remove_dir(path).unwrap();
    let bucket = client.core.directory.bucket(slot.bucket);
    let mut state = bucket.lock();
    assert!(bucket.try_lock(&client.core.directory, &mut state).unwrap().is_none());
    assert!(bucket.try_lock(&client.core.directory, &mut state).unwrap().is_some(), "the new one");
}

#[tokio::test]
async fn if_no_bucket_can_be_read_the_names_are_an_error_and_not_none() {
    let directory = directory();
    let here = store(&directory);
    let mut client = Client::on(&here);
    let _held = client.enter("a", Claim::MUTEX).await;
    let unreadable = |name: &str| {
        let (_, path) = bucket_of(&directory, name);
        std::fs::remove_dir_all(&path).unwrap();
        // Not a directory, to root as well.
        std::fs::write(path, "").unwrap();
    };
    unreadable("b");
    assert_eq!(names(&here, "").await, [Name::new("a").unwrap()]);
    unreadable("a");
    let error = here.names("").try_concat().await.unwrap_err();
    assert!(error.to_string().contains("/b/"), "{error}");
}
