//! Harm to a directory by users without the right to write, and by unreadable files.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;

use rustix::fs::{CWD, FileType, Mode};

use super::super::sessions::session_name;
use super::super::ticket::{EncodedName, Key, Ticket};
use super::*;

/// A user that owns nothing here.
const STRANGER: u32 = 54_321;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A directory for locks with this mode, in one that all users may look into.
fn with_mode(mode: u32) -> (TempDir, PathBuf) {
    let around = directory();
    set_mode(around.path(), 0o755);
    let path = around.path().join("locks");
    std::fs::create_dir(&path).unwrap();
    set_mode(&path, mode);
    (around, path)
}

fn open(path: &Path) -> Result<FileStore> {
    let deadline = Duration::from_secs(1);
    FileStore::builder(path)?.another_process().request_deadline(deadline).open()
}

/// Everything in a directory and below.
fn below(path: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    found.flat_map(|path| if path.is_dir() { [below(&path), vec![path]].concat() } else { vec![path] }).collect()
}

/// Runs `step` on a thread, with a runtime, and fails when it waits for a peer that never comes.
fn never_waits<T: Send + 'static>(step: impl Future<Output = T> + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _ = done.send(runtime.block_on(step));
    });
    result.recv_timeout(Duration::from_secs(180)).expect("it waits for the other end of a pipe")
}

fn replace_by_pipe(path: &Path) {
    let _ = std::fs::remove_file(path);
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

async fn use_it(path: PathBuf) -> Result<()> {
    let store = open(&path)?;
    let mut client = Client::on(&store);
    let entry = client.entry("a", Claim::MUTEX, false);
    client.session.enter(entry).await?;
    store.breaks(&Name::new("a").unwrap()).await.map(drop)
}

#[test]
fn a_pipe_or_a_link_in_place_of_a_file_is_named_and_never_waited_for() {
    let (_around, path) = with_mode(0o700);
    never_waits(use_it(path.clone())).unwrap();
    for part in ["layout", "counters", "ceiling", "breaks"] {
        let file = path.join(part);
        let before = std::fs::read(&file).ok();
        for link in [false, true] {
            if link {
                std::fs::remove_file(&file).unwrap();
                std::os::unix::fs::symlink("/dev/null", &file).unwrap();
            } else {
                replace_by_pipe(&file);
            }
            let error = never_waits(use_it(path.clone())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{part}: {error}");
            assert!(error.to_string().contains(&format!("locks/{part}")), "{error}");
        }
        std::fs::remove_file(&file).unwrap();
        if let Some(before) = before {
            std::fs::write(&file, before).unwrap();
        }
    }
    never_waits(use_it(path)).unwrap();
}

#[test]
fn a_ticket_whose_session_is_a_pipe_is_passed_over() {
    let (_around, path) = with_mode(0o700);
    drop(open(&path).unwrap());
    let slot = EncodedName::of(&Name::new("a").unwrap());
    let bucket = path.join(Directory::bucket_path(slot.bucket));
    std::fs::create_dir(&bucket).unwrap();
    let dead = Ticket { key: Key { seq: 1, session: 1, number: 1 }, claim: Claim::MUTEX };
    std::os::unix::fs::symlink("1", bucket.join(dead.file_name(&slot.encoded))).unwrap();
    replace_by_pipe(&path.join("sessions").join(session_name(1)));
    let token = never_waits(async move {
        let store = open(&path).unwrap();
        token(&*place(Client::on(&store).attempt("a").await))
    });
    assert!(token > 1);
}

#[tokio::test]
async fn remains_of_a_deleted_layout_do_not_stop_the_next_opening() {
    let (_around, path) = with_mode(0o700);
    drop(open(&path).unwrap());
    std::fs::write(path.join("breaks"), "").unwrap();
    std::fs::remove_file(path.join("layout")).unwrap();
    let store = open(&path).unwrap();
    token(&*Client::on(&store).enter("a", Claim::MUTEX).await);
}

#[tokio::test]
async fn a_user_who_may_only_read_can_neither_keep_a_dead_lock_nor_delay_a_waiter() {
    let (_around, path) = with_mode(0o755);
    // The directory alone is open to readers: all that a reader can lock.
    let reader = std::fs::File::open(&path).unwrap();
    reader.lock().unwrap();
    let store = open(&path).unwrap();
    let mut client = Client::on(&store);
    let held = client.enter("a", Claim::MUTEX).await;
    token(&*held);
    for part in below(&path) {
        let found = part.symlink_metadata().unwrap();
        assert!(found.is_symlink() || found.mode() & 0o077 == 0, "{} is {:o}", part.display(), found.mode());
    }
}

#[test]
fn files_open_to_more_users_are_tightened_with_their_directory() {
    let (_around, path) = with_mode(0o770);
    drop(open(&path).unwrap());
    set_mode(&path, 0o750);
    drop(open(&path).unwrap());
    for part in ["sessions", "b", "counters"] {
        assert_eq!(std::fs::metadata(path.join(part)).unwrap().mode() & 0o077, 0, "{part}");
    }
}

#[test]
fn a_directory_that_every_user_may_write_is_refused_with_what_to_do() {
    let (_around, path) = with_mode(0o777);
    let error = open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("chmod o-w"), "{error}");
    set_mode(&path, 0o1777);
    assert_eq!(open(&path).unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(below(&path).len(), 0, "nothing is left in it");
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let (_around, path) = with_mode(0o700);
    if chown(&path, Some(STRANGER), None).is_err() {
        return; // Only root can be given such a directory, or needs to be warned of it.
    }
    let error = open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("owner 54321") && error.to_string().contains("root's"), "{error}");
}

/// Does `step` as another user of the same group, and only that: the kernel knows users of threads.
fn as_user<T: Send>(user: u32, step: impl FnOnce() -> T + Send) -> T {
    let stranger = move || {
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_uid(rustix::thread::Uid::from_raw(user)).unwrap();
        step()
    };
    std::thread::scope(|scope| scope.spawn(stranger).join().unwrap())
}

#[test]
fn unreadable_files_of_one_user_keep_no_other_user_out() {
    if !rustix::process::geteuid().is_root() {
        return; // Only root can act as other users.
    }
    let (_around, path) = with_mode(0o770);
    never_waits(use_it(path.clone())).unwrap();
    // A session that was being made when its process was killed, and one with a place in a queue.
    let slot = EncodedName::of(&Name::new("a").unwrap());
    let ticket = Ticket { key: Key { seq: 1, session: 1, number: 1 }, claim: Claim::MUTEX };
    let file = format!("{}/{}", Directory::bucket_path(slot.bucket), ticket.file_name(&slot.encoded));
    let leave = "umask 077 && : > sessions/tmp.half && : > sessions/$1 && ln -s 1 $2";
    let mut command = Command::new("sh");
    command.args(["-c", leave, "sh", &session_name(1), &file]).current_dir(&path).uid(STRANGER);
    assert!(command.status().unwrap().success());
    let others = path.clone();
    as_user(STRANGER + 1, || {
        never_waits(async move {
            let store = open(&others).unwrap();
            let mut client = Client::on(&store);
            token(&*place(client.attempt("b").await));
            assert!(matches!(client.attempt("a").await, Entered::Busy), "no client can know that its owner is dead");
            client.session.renew(&[]).await.unwrap();
        });
    });
    assert!(path.join("sessions/tmp.half").exists() && path.join(&file).is_symlink(), "they were to stay");
    as_user(STRANGER, || {
        let theirs = path.clone();
        never_waits(async move { token(&*place(Client::on(&open(&theirs).unwrap()).attempt("a").await)) });
    });
    assert!(!path.join(&file).is_symlink(), "their owner may tell");
}
