//! Mail between sessions, as waiters of other processes see it.

use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use tokio::net::unix::pipe::Receiver;

use super::super::mail::{mailbox_name, make_pipe};
use super::super::ticket::EncodedName;
use super::*;

fn mailbox(directory: &TempDir, client: &Client) -> PathBuf {
    directory.path().join("sessions").join(mailbox_name(client.core.id))
}

/// The system's clock, on which nobody who sleeps wakes up.
#[derive(Debug)]
struct Endless;

impl Clock for Endless {
    fn now(&self) -> Moment {
        SystemClock.now()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    fn sleep_until(&self, _: Moment) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// What ends the place of a holder.
#[derive(Debug, Clone, Copy)]
enum End {
    Leave,
    Withdrawal,
    Close,
    Break,
    /// By hand; its next renewal misses it.
    Removal,
}

/// One who holds a lock and one of another process who waits behind it, and hears of nothing but what it is told.
struct Pair {
    directory: TempDir,
    holding: Client,
    held: Box<dyn Place>,
    waiting: Client,
    waiter: tokio::task::JoinHandle<Box<dyn Place>>,
}

impl Pair {
    async fn meet(spoil: impl FnOnce(&TempDir, &Client)) -> Self {
        let directory = directory();
        let (near, far) = (store(&directory), store(&directory));
        let (mut holding, mut waiting) = (Client::on(&near), Client::with_clock(&far, Arc::new(Endless)));
        spoil(&directory, &holding);
        let held = holding.enter("job", Claim::MUTEX).await;
        let mut place = waiting.enter("job", Claim::MUTEX).await;
        let waiter = tokio::spawn(async move {
            place.next(Moment::NEVER).await.unwrap();
            place
        });
        while waiting.core.looks.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        Self { directory, holding, held, waiting, waiter }
    }

    async fn end(&mut self, end: End) {
        let session = &self.holding.session;
        let id = self.held.id();
        match end {
            End::Leave => drop(self.held.leave().await.unwrap()),
            End::Withdrawal => session.withdraw(&id.name, id.request).await.unwrap(),
            End::Close => session.close().await.unwrap(),
            End::Break => {
                let store = store(&self.directory);
                let by = Owner { client: 1, host: "here".to_owned(), pid: 1 };
                let token = crate::token::FencingToken::new(token(&*self.held));
                let (claim, reason, at) = (Claim::MUTEX, "a test".into(), SystemTime::now());
                let order = Break { place: id, token, claim, owner: None, by, reason, at };
                assert!(store.break_grant(&order).await.unwrap());
            }
            End::Removal => {
                super::renewals::remove_ticket(&self.directory, &self.holding, &*self.held);
                assert_eq!(session.renew(&[id]).await.unwrap().gone.len(), 1);
            }
        }
    }
}

#[tokio::test]
async fn who_waits_is_told_in_whatever_way_the_place_ahead_ends() {
    for end in [End::Leave, End::Withdrawal, End::Close, End::Break, End::Removal] {
        let mut pair = Pair::meet(|_, _| ()).await;
        assert_eq!(pair.waiting.core.mail.awaited(), 1);
        pair.end(end).await;
        token(&*pair.waiter.await.unwrap());
        assert_eq!(pair.waiting.core.mail.awaited(), 0, "after {end:?}");
    }
}

#[tokio::test]
async fn who_cannot_ask_is_told_by_the_kernel() {
    type Spoil = fn(&Path);
    let spoils: [Spoil; 5] = [
        |_| (),
        |path| std::fs::write(path, "").unwrap(),
        |path| std::fs::create_dir(path).unwrap(),
        |path| symlink("/dev/zero", path).unwrap(),
        |path| symlink("elsewhere", path).unwrap(),
    ];
    for spoil in spoils {
        let mut pair = Pair::meet(|directory, client| {
            let path = mailbox(directory, client);
            assert!(std::fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
            std::fs::remove_file(&path).unwrap();
            spoil(&path);
        })
        .await;
        assert_eq!(pair.waiting.core.mail.awaited(), 0);
        pair.end(End::Leave).await;
        token(&*pair.waiter.await.unwrap());
    }
}

#[tokio::test]
async fn a_mailbox_that_is_full_holds_nobody_up() {
    let mut pair = Pair::meet(|directory, client| {
        client.core.mail.stop();
        let mut pipe = std::fs::OpenOptions::new().read(true).write(true).open(mailbox(directory, client)).unwrap();
        rustix::fs::fcntl_setfl(&pipe, rustix::fs::OFlags::NONBLOCK).unwrap();
        while std::io::Write::write(&mut pipe, &[7; 4096]).is_ok() {}
    })
    .await;
    assert_eq!(pair.waiting.core.mail.awaited(), 0, "it could not ask");
    pair.end(End::Leave).await;
    token(&*pair.waiter.await.unwrap());
}

#[tokio::test]
async fn mailboxes_go_with_their_sessions() {
    let directory = directory();
    let (near, far) = (store(&directory), store(&directory));
    let (dying, client) = (Client::on(&near), Client::on(&far));
    dying.core.forsake();
    assert!(mailbox(&directory, &dying).exists(), "as after a crash");
    client.session.renew(&[]).await.unwrap();
    assert!(!mailbox(&directory, &dying).exists());
    client.session.close().await.unwrap();
    assert_eq!(std::fs::read_dir(directory.path().join("sessions")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_mailbox_whose_session_file_is_gone_is_removed() {
    let directory = directory();
    let (near, far) = (store(&directory), store(&directory));
    let (dying, client) = (Client::on(&near), Client::on(&far));
    dying.core.forsake();
    let orphan = mailbox(&directory, &dying);
    std::fs::remove_file(orphan.with_extension("")).unwrap();
    assert!(orphan.exists() && mailbox(&directory, &client).exists());
    client.session.renew(&[]).await.unwrap();
    assert!(!orphan.exists() && mailbox(&directory, &client).exists());
}

#[tokio::test]
async fn a_release_on_the_callers_thread_writes_one_letter_however_many_asked() {
    let (directory, first) = (directory(), 1000);
    let here = store(&directory);
    let mut client = Client::on(&here);
    let mut held = client.enter("job", Claim::MUTEX).await;
    let slot = EncodedName::of(&Name::new("job").unwrap());
    let bucket = here.directory().bucket(slot.bucket);
    let ticket = bucket.lock().line(&slot.encoded).unwrap().head().unwrap();
    let asking: Vec<_> = (first..first + 20).map(|session| make_pipe(&here.directory(), session).unwrap()).collect();
    for session in first..first + 20 {
        here.directory().ask_as(session, ticket.key);
    }
    let is_told = |pipe: &Receiver| rustix::io::read(pipe, &mut [0; 64]).is_ok();
    let letters = || asking.iter().filter(|pipe| is_told(pipe)).count();
    assert_eq!(held.leave_now().unwrap().unwrap(), Left::Released);
    assert!(is_told(&asking[19]), "who asked last is told");
    assert_eq!(letters(), 0, "the others are told by a task");
    let mut told = 0;
    while told < 19 {
        tokio::task::yield_now().await;
        told += letters();
    }
}

#[tokio::test]
async fn a_mailbox_that_is_filled_without_end_stops_nothing_else_on_the_thread() {
    let directory = directory();
    let store = store(&directory);
    let client = Client::on(&store);
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let written = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (path, session) = (mailbox(&directory, &client), client.core.id);
    let (over, count) = (Arc::clone(&is_over), Arc::clone(&written));
    let flood = std::thread::spawn(move || {
        let mut letter = [0; 32];
        letter[8..16].copy_from_slice(&session.to_be_bytes());
        let pipe = rustix::fs::open(&path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        // A limit of its own, so that a thread that is stopped for good fails the test.
        let start = std::time::Instant::now();
        while !over.load(Ordering::SeqCst) && start.elapsed() < Duration::from_secs(180) {
            let number = count.fetch_add(1, Ordering::SeqCst);
            letter[..8].copy_from_slice(&number.to_be_bytes());
            let _full = rustix::io::write(&pipe, &letter);
        }
        over.load(Ordering::SeqCst)
    });
    while written.load(Ordering::SeqCst) < 20_000 {
        tokio::task::yield_now().await;
    }
    is_over.store(true, Ordering::SeqCst);
    assert!(flood.join().unwrap(), "nothing else ran while letters came");
}
