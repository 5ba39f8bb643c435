//! Joining a queue: a number and a ticket, under the bucket's lock.
//!
//! Uncontended, with nobody else at the bucket since last time: flock, pread, pwrite, symlinkat, flock. Everything
//! between two awaits is synchronous, so a dropped `enter` either left a ticket that is known here, or nothing. That is
//! also what a caller does on its own thread; whatever may take longer is left to the I/O thread.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::bucket::{Bucket, BucketLock, BucketState};
use super::ceiling::Drawn;
use super::fault::fault;
use super::layout::SESSIONS;
use super::line::KnownContender;
use super::place::FilePlace;
use super::platform;
use super::session::Core;
use super::ticket::{EncodedName, Key, Note, Ticket};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::own_places;
use crate::queue::Admission;
use crate::store::{Entered, Entry};
use crate::time::Moment;

/// How often the processor is given away before sleeping: a bucket's lock is usually held for some microseconds.
const YIELDS: u32 = 40;
/// The shortest and the longest sleep between two tries.
const SLEEPS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));

/// The size of a directory that has at most some hundred entries on any file system that is used; of 4,096 on ZFS.
const SHORT: i64 = 4096;

/// Behind everybody.
const TAIL: Key = Key { seq: u64::MAX, session: u64::MAX, number: u64::MAX };

/// How long to go on trying for a short lock of another process.
pub(super) struct Patience<'a> {
    core: &'a Core,
    until: Moment,
    tries: u32,
    sleep: Duration,
}

impl<'a> Patience<'a> {
    pub(super) fn new(core: &'a Core) -> Self {
        Self { core, until: core.clock.now().after(core.request_deadline), tries: 0, sleep: SLEEPS.0 }
    }

    /// Waits a little; `false` when it is time to give up.
    pub(super) async fn lasts(&mut self) -> bool {
        self.tries += 1;
        if self.tries <= YIELDS {
            std::thread::yield_now();
            return true;
        }
        let now = self.core.clock.now();
        if now >= self.until {
            return false;
        }
        self.core.clock.sleep_until(now.after(self.sleep).min(self.until)).await;
        self.sleep = (self.sleep * 3 / 2).min(SLEEPS.1);
        true
    }
}

/// What one try came to.
enum Step {
    Entered(Entered),
    /// Another process is inside the lock of the bucket.
    BucketBusy,
    /// Another process is moving the ceiling.
    CeilingBusy,
    /// It would take longer than a caller may be held up. Nothing was done.
    TakesLonger,
}

/// What stops a try.
enum Stop {
    Errno(Errno),
    Error(Error),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Joins on the caller's thread where nobody is in the way: in a few system calls none of which waits, or not at all.
pub(super) fn enter_now(core: &Arc<Core>, entry: &Entry) -> Option<Result<Entered>> {
    if !platform::KNOWS_FILE_SYSTEMS {
        // A call to a server of files may hang.
        return None;
    }
    let slot = EncodedName::of(&entry.name);
    let bucket = core.directory.bucket(slot.bucket);
    let request = Request { core, entry, slot: &slot, bucket: &bucket, at_once: true };
    match request.step(&mut *bucket.lock_now()?) {
        Ok(Step::Entered(entered)) => Some(Ok(entered)),
        Ok(Step::BucketBusy | Step::CeilingBusy | Step::TakesLonger) => None,
        // The bucket's directory is gone: somebody has to make it anew.
        Err(Stop::Errno(Errno::NOENT)) => None,
        Err(Stop::Errno(errno)) => Some(Err(fault("enter", request.path(), errno))),
        Err(Stop::Error(error)) => Some(Err(error)),
    }
}

pub(super) async fn enter(core: &Arc<Core>, entry: Arc<Entry>) -> Result<Entered> {
    let slot = EncodedName::of(&entry.name);
    let bucket = core.directory.bucket(slot.bucket);
    let request = Request { core, entry: &entry, slot: &slot, bucket: &bucket, at_once: false };
    core.directory.ceiling.prepare(&core.directory.path, &core.directory.root, core.clock.wall());
    let mut patience = Patience::new(core);
    let mut renewed = false;
    loop {
        let busy = match request.attempt() {
            Ok(Step::Entered(entered)) => return Ok(entered),
            Ok(Step::BucketBusy | Step::TakesLonger) => super::directory::Directory::bucket_path(slot.bucket),
            Ok(Step::CeilingBusy) => SESSIONS.to_owned(),
            // Somebody removed the bucket's directory under our descriptor: make it anew, once.
            Err(Stop::Errno(Errno::NOENT)) if !renewed => {
                bucket.lock().forget_directory();
                renewed = true;
                continue;
            }
            Err(Stop::Errno(errno)) => return Err(fault("enter", request.path(), errno)),
            Err(Stop::Error(error)) => return Err(error),
        };
        if !patience.lasts().await {
            return Err(core.directory.stuck("enter", &busy));
        }
    }
}

/// Whether a listing of this bucket takes a moment only.
fn is_short(bucket: &OwnedFd) -> rustix::io::Result<bool> {
    Ok(rustix::fs::fstat(bucket)?.st_size <= SHORT)
}

struct Request<'a> {
    core: &'a Arc<Core>,
    entry: &'a Entry,
    slot: &'a EncodedName,
    bucket: &'a Arc<Bucket>,
    /// The caller itself asks, and is not to be held up.
    at_once: bool,
}

impl Request<'_> {
    fn path(&self) -> String {
        format!("{}/{}", self.core.directory.path, super::directory::Directory::bucket_path(self.slot.bucket))
    }

    /// Whether a place of this process is in the way: it is there, since its departure would be known.
    fn is_behind_ours(&self, state: &mut BucketState) -> bool {
        let Some(line) = state.line(&self.slot.encoded) else { return false };
        let is_ours = line.iter().next_back().is_some_and(|last| last.local);
        is_ours && line.judge(TAIL, self.entry.claim) != Admission::Admitted
    }

    fn attempt(&self) -> Result<Step, Stop> {
        self.step(&mut self.bucket.lock())
    }

    fn step(&self, state: &mut BucketState) -> Result<Step, Stop> {
        let core = self.core;
        if self.at_once && self.is_behind_ours(state) {
            return Ok(Step::TakesLonger);
        }
        if core.over().is_some() {
            return Err(own_places::over("enter").into());
        }
        if core.is_withdrawn(self.entry.id.number) {
            return Err(Error::new(ErrorKind::Closed, "enter", "the request was withdrawn").into());
        }
        let Some(lock) = self.bucket.try_lock(&core.directory, state)? else {
            return Ok(Step::BucketBusy);
        };
        let last = core.directory.last_number(self.bucket.index())?;
        let alone = state.is_complete(last);
        let mut fresh = false;
        if !alone {
            if self.at_once && !is_short(lock.fd())? {
                return Ok(Step::TakesLonger);
            }
            state.relist(&core.directory, lock.fd())?;
            state.completed(last);
            fresh = true;
        }
        let same = state.line(&self.slot.encoded).and_then(|line| line.find(core.id, self.entry.id.number));
        if let Some(ticket) = same {
            return Ok(Step::Entered(self.place(state, ticket)));
        }
        match self.admission(state, &lock, fresh)? {
            // Who is in the way may be gone: that takes a look at each of them.
            Admission::Conflict(_) | Admission::Wait if self.at_once => return Ok(Step::TakesLonger),
            Admission::Conflict(claim) => return Ok(Step::Entered(Entered::Conflict(claim))),
            Admission::Wait if !self.entry.wait => return Ok(Step::Entered(Entered::Busy)),
            Admission::Admitted | Admission::Wait => {}
        }
        self.join(state, lock, last)
    }

    /// What the rule says at the tail. Who would refuse this request is looked at again: it may be gone or dead.
    fn admission(&self, state: &mut BucketState, lock: &BucketLock, fresh: bool) -> rustix::io::Result<Admission> {
        let (directory, encoded, claim) = (&self.core.directory, &self.slot.encoded, self.entry.claim);
        let judge =
            |state: &mut BucketState| state.line(encoded).map_or(Admission::Admitted, |line| line.judge(TAIL, claim));
        match judge(state) {
            Admission::Admitted => return Ok(Admission::Admitted),
            _ if self.at_once => {
                // They may have left unnoticed.
                if !fresh && is_short(lock.fd())? {
                    state.relist(directory, lock.fd())?;
                }
            }
            Admission::Wait if self.entry.wait => {
                let is_behind_others = state
                    .line(encoded)
                    .is_some_and(|line| !line.ends_with_ours(claim) && line.iter().any(|known| !known.local));
                if is_behind_others && !fresh {
                    state.relist(directory, lock.fd())?;
                }
            }
            Admission::Wait | Admission::Conflict(_) => {
                while state.reap(directory, self.bucket, encoded, claim)? {
                    state.relist(directory, lock.fd())?;
                }
            }
        }
        Ok(judge(state))
    }

    fn join(&self, state: &mut BucketState, lock: BucketLock, last: u64) -> Result<Step, Stop> {
        let (core, entry) = (self.core, self.entry);
        let directory = &core.directory;
        let wall = core.clock.wall();
        let drawn = match self.at_once {
            true => directory.ceiling.draw_now(last, wall),
            false => directory.ceiling.draw(&directory.path, &directory.root, last, wall)?,
        };
        let Drawn::Number(seq) = drawn else { return Ok(Step::CeilingBusy) };
        let key = Key { seq, session: core.id, number: entry.id.number };
        let ticket = Ticket { key, claim: entry.claim };
        let note = Note {
            name: (!self.slot.is_inline()).then(|| entry.name.as_str().to_owned()),
            purpose: entry.purpose.as_deref().map(str::to_owned),
        };
        directory.set_last_number(self.bucket.index(), seq)?;
        let file = ticket.file_name(&self.slot.encoded);
        rustix::fs::symlinkat(note.encode(), lock.fd(), file)?;
        state.completed(seq);
        drop(lock);
        state.line_or_new(&self.slot.encoded).insert(KnownContender::new(ticket, true));
        Ok(Step::Entered(self.place(state, ticket)))
    }

    fn place(&self, state: &mut BucketState, ticket: Ticket) -> Entered {
        let standing = state.line_or_new(&self.slot.encoded).standing(&ticket);
        let place =
            FilePlace::new(Arc::clone(self.core), Arc::clone(self.bucket), self.slot, self.entry, ticket, standing);
        Entered::In(Box::new(place))
    }
}
