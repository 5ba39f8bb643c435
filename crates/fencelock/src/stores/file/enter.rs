//! Joining a queue: a number and a ticket, under the bucket's lock.
//!
//! Uncontended, with nobody else at the bucket since last time: flock, pread, pwrite, symlinkat, flock. Everything
//! between two awaits is synchronous, so a dropped `enter` either left a ticket that is known here, or nothing.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::bucket::{Bucket, BucketLock, State};
use super::ceiling::Drawn;
use super::fault::fault;
use super::layout::SESSIONS;
use super::line::Known;
use super::place::FilePlace;
use super::session::Core;
use super::ticket::{Key, Note, Slot, Ticket};
use crate::error::{Error, ErrorKind, Result};
use crate::queue::Admission;
use crate::store::{Entered, Entry};
use crate::time::Moment;

/// How often the processor is given away before sleeping: a bucket's lock is usually held for some microseconds.
const YIELDS: u32 = 40;
/// The shortest and the longest sleep between two tries.
const SLEEPS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));

/// Behind everybody.
const TAIL: Key = Key { seq: u64::MAX, session: u64::MAX, number: u64::MAX };

/// How long to go on trying for a short lock of another process.
pub(super) struct Patience<'a> {
    core: &'a Core,
    bucket: u16,
    until: Moment,
    tries: u32,
    sleep: Duration,
    marked: bool,
}

impl<'a> Patience<'a> {
    pub(super) fn new(core: &'a Core, bucket: u16) -> Self {
        let until = core.clock.now().after(core.request_deadline);
        Self { core, bucket, until, tries: 0, sleep: SLEEPS.0, marked: false }
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
        self.core.directory.want(self.bucket, self.core.clock.wall());
        self.marked = true;
        self.core.clock.sleep_until(now.after(self.sleep).min(self.until)).await;
        self.sleep = (self.sleep * 3 / 2).min(SLEEPS.1);
        true
    }

    /// Leaves the lock to others for a moment. That ends by itself, so it is no reason to give up.
    async fn gives_way(&self) {
        self.core.clock.sleep_until(self.core.clock.now().after(SLEEPS.0)).await;
    }
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        if self.marked {
            self.core.directory.want_no_more(self.bucket);
        }
    }
}

/// What one try came to.
enum Step {
    Entered(Entered),
    /// Another process is inside the lock of the bucket.
    BucketBusy,
    /// This process had the lock for a while, and another one waits for it.
    GivesWay,
    /// Another process is moving the ceiling.
    CeilingBusy,
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

pub(super) async fn enter(core: &Arc<Core>, entry: Arc<Entry>) -> Result<Entered> {
    let slot = Slot::of(&entry.name);
    let bucket = core.directory.bucket(slot.bucket);
    let request = Request { core, entry: &entry, slot: &slot, bucket: &bucket };
    core.directory.ceiling.prepare(&core.directory.path, &core.directory.root, core.clock.wall());
    let mut patience = Patience::new(core, slot.bucket);
    let mut renewed = false;
    loop {
        let busy = match request.attempt() {
            Ok(Step::Entered(entered)) => return Ok(entered),
            Ok(Step::GivesWay) => {
                patience.gives_way().await;
                continue;
            }
            Ok(Step::BucketBusy) => super::directory::Directory::bucket_path(slot.bucket),
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

struct Request<'a> {
    core: &'a Arc<Core>,
    entry: &'a Entry,
    slot: &'a Slot,
    bucket: &'a Arc<Bucket>,
}

impl Request<'_> {
    fn path(&self) -> String {
        format!("{}/{}", self.core.directory.path, super::directory::Directory::bucket_path(self.slot.bucket))
    }

    fn attempt(&self) -> Result<Step, Stop> {
        let mut state = self.bucket.lock();
        let core = self.core;
        if core.over().is_some() {
            return Err(Error::new(ErrorKind::Lost, "enter", "the session is over").into());
        }
        if core.is_withdrawn(self.entry.id.number) {
            return Err(Error::new(ErrorKind::Closed, "enter", "the request was withdrawn").into());
        }
        let (index, now) = (self.bucket.index(), core.clock.now());
        let is_wanted = || core.directory.is_wanted(index, core.clock.wall());
        if state.turn.gives_way(now, is_wanted) {
            return Ok(Step::GivesWay);
        }
        let Some(lock) = self.bucket.try_lock(&core.directory, &mut state)? else {
            return Ok(Step::BucketBusy);
        };
        let last = core.directory.last_number(index)?;
        let alone = state.is_complete(last);
        if state.turn.is_over(now, is_wanted) {
            return Ok(Step::GivesWay);
        }
        let mut fresh = false;
        if !alone {
            state.relist(&core.directory, lock.fd())?;
            state.completed(last);
            fresh = true;
        }
        let same = state.line(&self.slot.encoded).and_then(|line| line.find(core.id, self.entry.id.number));
        if let Some(ticket) = same {
            return Ok(Step::Entered(self.place(&mut state, ticket)));
        }
        match self.admission(&mut state, &lock, fresh)? {
            Admission::Conflict(claim) => return Ok(Step::Entered(Entered::Conflict(claim))),
            Admission::Wait if !self.entry.wait => return Ok(Step::Entered(Entered::Busy)),
            Admission::Admitted | Admission::Wait => {}
        }
        self.join(&mut state, lock, last)
    }

    /// What the rule says at the tail. Who would refuse this request is looked at again: it may be gone or dead.
    fn admission(&self, state: &mut State, lock: &BucketLock, fresh: bool) -> rustix::io::Result<Admission> {
        let (directory, encoded, claim) = (&self.core.directory, &self.slot.encoded, self.entry.claim);
        let judge = |state: &mut State| state.line(encoded).map_or(Admission::Admitted, |line| line.judge(TAIL, claim));
        match judge(state) {
            Admission::Admitted => return Ok(Admission::Admitted),
            Admission::Wait if self.entry.wait => {
                // A whole claim waits for the one before it alone, and one of this process is known to be there.
                let heard = if claim.is_whole() { 1 } else { usize::MAX };
                let is_behind_others =
                    state.line(encoded).is_some_and(|line| line.iter().rev().take(heard).any(|known| !known.local));
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

    fn join(&self, state: &mut State, lock: BucketLock, last: u64) -> Result<Step, Stop> {
        let (core, entry) = (self.core, self.entry);
        let directory = &core.directory;
        let seq = match directory.ceiling.draw(&directory.path, &directory.root, last, core.clock.wall())? {
            Drawn::Number(number) => number,
            Drawn::Busy => return Ok(Step::CeilingBusy),
        };
        let key = Key { seq, session: core.id, number: entry.id.number };
        let ticket = Ticket { key, claim: entry.claim };
        let note = Note {
            lease: entry.lease,
            name: (!self.slot.is_inline()).then(|| entry.name.as_str().to_owned()),
            purpose: entry.purpose.as_deref().map(str::to_owned),
        };
        directory.set_last_number(self.bucket.index(), seq)?;
        let file = ticket.file_name(&self.slot.encoded);
        rustix::fs::symlinkat(note.encode(), lock.fd(), file)?;
        state.completed(seq);
        drop(lock);
        state.line_or_new(&self.slot.encoded).insert(Known::new(ticket, true));
        Ok(Step::Entered(self.place(state, ticket)))
    }

    fn place(&self, state: &mut State, ticket: Ticket) -> Entered {
        let standing = state.line_or_new(&self.slot.encoded).standing(&ticket);
        let place =
            FilePlace::new(Arc::clone(self.core), Arc::clone(self.bucket), self.slot, self.entry, ticket, standing);
        Entered::In(Box::new(place))
    }
}
