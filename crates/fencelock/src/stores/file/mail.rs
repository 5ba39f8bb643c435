//! Mail between sessions: a waiter asks the session right ahead of it to be told when that one's place is gone.
//!
//! The kernel tells the same by inotify, but only 128 instances of it belong to a user, and 500 processes want one lock.
//! Each session has a named pipe beside its session file. Letters are hints: the receiver looks at the store, and a letter
//! that is lost costs what a lost event does.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use tokio::net::unix::pipe::Receiver;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::directory::Directory;
use super::lives::session_name;
use super::questions::Questions;
use super::ticket::{Key, parse_base32};
use super::watch::Rung;
use crate::kit::bell::Bell;
use crate::kit::waking_lock::{Locked, WakingLock};

/// How much one reading takes in at most: a stranger who writes on and on must not keep a release from ending.
const READS: usize = 32;

/// In the place of a session, of a place that is gone: it held everything, so all that were ahead of it are gone as well.
const LAST: u64 = 1;
/// Nothing is known of those ahead of it.
const GONE: u64 = 0;

/// How a mailbox is opened. For reading as well: so there is always a reader, and no signal about a broken pipe.
const OPEN: OFlags = OFlags::RDWR.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

const SUFFIX: &str = ".mail";

/// The file name of a session's mailbox.
pub(super) fn mailbox_name(session: u64) -> String {
    format!("{}{SUFFIX}", session_name(session))
}

/// The session of a file among the session files, whether it is its own or its mailbox.
pub(super) fn session_of_file(name: &str) -> Option<u64> {
    parse_base32(name.strip_suffix(SUFFIX).unwrap_or(name), 13)
}

/// To the session of `key`: tell the session `from` when that place is gone. To any other session: it is gone, and `from` says
/// whether it was [`LAST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Letter {
    key: Key,
    from: u64,
}

impl Letter {
    /// Few enough for the kernel to write all of them or none.
    const LENGTH: usize = 32;

    fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let fields = [self.key.seq, self.key.session, self.key.number, self.from];
        for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let field = |at: usize| bytes.get(at * 8..at * 8 + 8)?.try_into().ok().map(u64::from_be_bytes);
        Some(Self { key: Key { seq: field(0)?, session: field(1)?, number: field(2)? }, from: field(3)? })
    }
}

/// The mailbox of one session of this process.
#[derive(Debug)]
pub(super) struct Mailbox {
    session: u64,
    /// `None` where no pipe can be made, or nobody would read it.
    pipe: Option<Arc<Receiver>>,
    reader: Mutex<Option<AbortHandle>>,
    runtime: Option<Handle>,
    sorted: WakingLock<Sorted>,
}

/// What came, and what is hoped for.
#[derive(Debug, Default)]
struct Sorted {
    /// Who wants to hear of which place of this session.
    asked: Questions,
    /// Whom to tell when this place of another session is gone.
    awaited: HashMap<Key, Arc<Answer>>,
    /// Those whose answers came.
    rung: Rung,
}

impl AsMut<Rung> for Sorted {
    fn as_mut(&mut self) -> &mut Rung {
        &mut self.rung
    }
}

/// Where the answer about one place comes.
#[derive(Debug)]
struct Answer {
    bell: Arc<Bell>,
    was_last: AtomicBool,
}

/// A place whose departure this session will be told of, until this is dropped.
#[derive(Debug)]
pub(super) struct Asked {
    mailbox: Arc<Mailbox>,
    key: Key,
    answer: Arc<Answer>,
}

impl Asked {
    /// Whether it is said to be gone, and everybody who was ahead of it as well.
    pub(super) fn was_last(&self) -> bool {
        self.answer.was_last.load(Ordering::Acquire)
    }

    /// Whether nobody reads the mail any more: the runtime that did is gone.
    pub(super) fn is_blind(&self) -> bool {
        !self.mailbox.is_read()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let mut sorted = self.mailbox.sorted.lock();
        if sorted.awaited.get(&self.key).is_some_and(|answer| Arc::ptr_eq(answer, &self.answer)) {
            sorted.awaited.remove(&self.key);
        }
    }
}

impl Mailbox {
    /// Makes the mailbox of a session, and reads it on the runtime around this call.
    pub(super) fn open(directory: &Directory, session: u64) -> Arc<Self> {
        let runtime = Handle::try_current().ok();
        let pipe = runtime.as_ref().and_then(|_| make_pipe(directory, session).ok());
        let (pipe, reader, sorted) = (pipe.map(Arc::new), Mutex::default(), WakingLock::default());
        let mailbox = Arc::new(Self { session, pipe, reader, runtime, sorted });
        if let (Some(runtime), Some(pipe)) = (&mailbox.runtime, &mailbox.pipe) {
            let reading = Arc::clone(&mailbox).read_on(Arc::clone(pipe));
            *mailbox.reader() = Some(runtime.spawn(reading).abort_handle());
        }
        mailbox
    }

    fn reader(&self) -> MutexGuard<'_, Option<AbortHandle>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_read(&self) -> bool {
        self.reader().as_ref().is_some_and(|reader| !reader.is_finished())
    }

    async fn read_on(self: Arc<Self>, pipe: Arc<Receiver>) {
        while pipe.readable().await.is_ok() {
            drop(self.collect(|buffer| pipe.try_read(buffer)));
            // A process that fills the pipe without end must not keep renewals and timers from this thread.
            tokio::task::yield_now().await;
        }
    }

    /// Asks the session of another process to tell when a place of it is gone. Look whether it is there afterwards: if it went
    /// before the question came, nobody answers. `None` where nobody can be asked.
    pub(super) fn ask(self: &Arc<Self>, directory: &Directory, key: Key, bell: &Arc<Bell>) -> Option<Asked> {
        if !self.is_read() {
            return None;
        }
        let answer = Arc::new(Answer { bell: Arc::clone(bell), was_last: AtomicBool::new(false) });
        self.sorted.lock().awaited.insert(key, Arc::clone(&answer));
        let asked = Asked { mailbox: Arc::clone(self), key, answer };
        directory.post(key.session, Letter { key, from: self.session }).ok().map(|()| asked)
    }

    /// Tells those who asked that a place of this session is gone, which held everything if `was_last`. Call it once its ticket
    /// is removed, with no lock in hand: bells ring.
    ///
    /// The session that asked last is told right here: it is the next one, since a waiter asks about the place right ahead of it, and those
    /// that asked before it have left. A task tells the others, because the caller's thread must not be held up.
    pub(super) fn departed(&self, directory: &Arc<Directory>, key: Key, was_last: bool) {
        let mut asked = self.collect_now().asked.about(key).into_iter();
        let word = if was_last { LAST } else { GONE };
        if let Some(newest) = asked.next() {
            directory.tell(newest, key, word);
        }
        if let (Some(runtime), 1..) = (&self.runtime, asked.len()) {
            let directory = Arc::clone(directory);
            runtime.spawn(async move {
                for session in asked {
                    directory.tell(session, key, word);
                    tokio::task::yield_now().await;
                }
            });
        }
    }

    /// Removes the mailbox of a session that ends, and tells all who asked. Its tickets are gone.
    pub(super) fn close(&self, directory: &Directory) {
        if self.pipe.is_none() {
            return;
        }
        let _ = rustix::fs::unlinkat(&directory.root.sessions, mailbox_name(self.session).as_str(), AtFlags::empty());
        let asked = std::mem::take(&mut self.collect_now().asked);
        for (key, from) in asked.into_all() {
            directory.tell_gone(from, key);
        }
        self.stop();
    }

    /// Of how many places of others the departure will be told.
    #[cfg(test)]
    pub(super) fn awaited(&self) -> usize {
        self.sorted.lock().awaited.len()
    }

    /// Reads no more.
    pub(super) fn stop(&self) {
        if let Some(reader) = self.reader().take() {
            reader.abort();
        }
    }

    /// Takes in what is in the pipe at this moment, whether its reader has heard of it or not.
    fn collect_now(&self) -> Locked<'_, Sorted> {
        match &self.pipe {
            Some(pipe) => self.collect(|buffer| Ok(rustix::io::read(&**pipe, buffer)?)),
            None => self.sorted.lock(),
        }
    }

    /// Reading and sorting are one step: of two who collect, none overlooks what the other has in hand.
    fn collect(&self, mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> Locked<'_, Sorted> {
        let (mut sorted, mut buffer) = (self.sorted.lock(), [0; 64 * Letter::LENGTH]);
        for _ in 0..READS {
            let length = match read(&mut buffer) {
                Ok(length @ 1..) => length,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => break,
            };
            for letter in buffer[..length].chunks(Letter::LENGTH).filter_map(Letter::parse) {
                if letter.key.session != self.session {
                    let answer = sorted.awaited.remove(&letter.key);
                    sorted.rung.extend(answer.map(|answer| {
                        answer.was_last.store(letter.from == LAST, Ordering::Release);
                        Arc::clone(&answer.bell).into()
                    }));
                } else {
                    sorted.asked.ask(letter.key, letter.from);
                }
            }
        }
        sorted
    }
}

pub(super) fn make_pipe(directory: &Directory, session: u64) -> io::Result<Receiver> {
    let (name, sessions, modes) = (mailbox_name(session), &directory.root.sessions, directory.root.modes);
    rustix::fs::mknodat(sessions, name.as_str(), FileType::Fifo, modes.file, 0)?;
    let pipe = directory.opening(|| rustix::fs::openat(sessions, name.as_str(), OPEN, Mode::empty()));
    let made = pipe.and_then(|pipe| modes.apply(&pipe, modes.file).map(|()| pipe));
    let receiver = made.map_err(io::Error::from).and_then(Receiver::from_owned_fd_unchecked);
    if receiver.is_err() {
        let _ = rustix::fs::unlinkat(sessions, name.as_str(), AtFlags::empty());
    }
    receiver
}

impl Directory {
    /// Tells a session that the place `key` of another one is gone. What cannot be told is found out.
    pub(super) fn tell_gone(&self, session: u64, key: Key) {
        self.tell(session, key, GONE);
    }

    /// Asks about a place as any session may.
    #[cfg(test)]
    pub(super) fn ask_as(&self, from: u64, key: Key) {
        self.post(key.session, Letter { key, from }).unwrap();
    }

    fn tell(&self, session: u64, key: Key, from: u64) {
        if session != key.session {
            let _ = self.post(session, Letter { key, from });
        }
    }

    /// Never waits: a mailbox that is full, or anything but a pipe, is an error.
    fn post(&self, session: u64, letter: Letter) -> rustix::io::Result<()> {
        let open = || rustix::fs::openat(&self.root.sessions, mailbox_name(session).as_str(), OPEN, Mode::empty());
        let pipe: OwnedFd = self.opening(open)?;
        if !FileType::from_raw_mode(rustix::fs::fstat(&pipe)?.st_mode).is_fifo() {
            return Err(Errno::NXIO);
        }
        match rustix::io::write(&pipe, &letter.to_bytes())? {
            Letter::LENGTH => Ok(()),
            _ => Err(Errno::AGAIN),
        }
    }
}
