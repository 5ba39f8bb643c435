//! Joining a queue: a number and a ticket, under the bucket's lock.
//!
//! Uncontended, with no other process at the bucket since last time: flock, lstat, pread, pwrite, symlinkat, flock. Everything between two
//! awaits is synchronous, so a dropped `enter` either left a ticket that is known here, or nothing. The first poll does that on the
//! caller's own thread; the I/O thread does the rest.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustix::io::Errno;

use super::bucket::{Bucket, BucketLock, BucketState};
use super::directory::Directory;
use super::fault::fault;
use super::layout::SESSIONS;
use super::line::KnownContender;
use super::place::FilePlace;
use super::session::SessionCore;
use super::ticket::{EncodedName, Key, Ticket, TicketText};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::bell::Bell;
use crate::kit::own_places;
use crate::kit::pause::second_poll;
use crate::queue::Admission;
use crate::store::{Entered, Entry};
use crate::time::{Clock, Moment};

/// The number of yields of the processor before the first sleep: a bucket's lock is usually held for some microseconds.
const YIELDS: u32 = 40;
/// The sleep between two tries. Longer pauses would keep a process out while other processes enter without a pause.
const SLEEP: Duration = Duration::from_millis(1);

/// A directory of this size has at most some hundred entries on any trusted file system; 4,096 on ZFS.
const SHORT: i64 = 4096;

/// A key behind every ticket.
const TAIL: Key = Key { seq: u64::MAX, session: u64::MAX, number: u64::MAX };

/// How long to retry a short lock of another process.
pub(super) struct Patience<'a> {
    clock: &'a dyn Clock,
    until: Moment,
    tries: u32,
}

impl<'a> Patience<'a> {
    pub(super) fn new(clock: &'a dyn Clock, limit: Duration) -> Self {
        Self { clock, until: clock.now().after(limit), tries: 0 }
    }

    /// Waits a little; `false` when it is time to give up.
    pub(super) async fn lasts(&mut self) -> bool {
        self.tries += 1;
        if self.tries <= YIELDS {
            std::thread::yield_now();
            return true;
        }
        let now = self.clock.now();
        if now >= self.until {
            return false;
        }
        self.clock.sleep_until(now.after(SLEEP).min(self.until)).await;
        true
    }
}

/// The outcome of one try.
enum Step {
    Entered(Entered),
    /// The ceiling must be moved above the number after this one.
    Ceiling(u64),
    /// The step would take longer than the first poll may, or another process removed the directory of the bucket. Nothing was done.
    TakesLonger,
}

pub(super) async fn enter(core: &Arc<SessionCore>, entry: Arc<Entry>) -> Result<Entered> {
    if core.over().is_some() {
        return Err(own_places::over("enter"));
    }
    let slot = EncodedName::of(&entry.name);
    let (directory, bucket) = (&core.directory, core.directory.bucket(slot.bucket));
    let mut request = Entering { core, entry: &entry, slot: &slot, bucket: &bucket, is_inline: true };
    if let Some(entered) = request.enter_inline()? {
        return Ok(entered);
    }
    request.is_inline = false;
    second_poll().await;
    let mut patience = Patience::new(&*core.clock, core.request_deadline);
    loop {
        let step = |state: &mut BucketState, lock: &BucketLock| request.step(state, lock);
        let busy = match bucket.locked(directory, "enter", &mut patience, step).await? {
            Step::Entered(entered) => return Ok(entered),
            Step::Ceiling(last) => {
                if directory.ceiling.raise(&directory.path, &directory.root, last, core.clock.wall())? {
                    continue;
                }
                SESSIONS.to_owned()
            }
            Step::TakesLonger => Directory::bucket_path(slot.bucket),
        };
        if !patience.lasts().await {
            return Err(directory.stuck("enter", &busy));
        }
    }
}

struct Entering<'a> {
    core: &'a Arc<SessionCore>,
    entry: &'a Entry,
    slot: &'a EncodedName,
    bucket: &'a Arc<Bucket>,
    /// The first poll, which does not block.
    is_inline: bool,
}

impl Entering<'_> {
    fn failed(&self, errno: Errno) -> Error {
        let directory = &self.core.directory;
        fault("enter", format_args!("{}/{}", directory.path, Directory::bucket_path(self.slot.bucket)), errno)
    }

    /// Whether a place of this process is ahead and excludes the claim. The place is certainly there: this process would know of its end.
    fn is_behind_ours(&self, state: &mut BucketState) -> bool {
        let Some(line) = state.line(&self.slot.encoded) else { return false };
        let is_ours = line.iter().next_back().is_some_and(|last| last.local);
        is_ours && line.judge(TAIL, self.entry.claim) != Admission::Admitted
    }

    /// Joins in a few system calls that do not block, if no contender is in the way; else changes nothing.
    fn enter_inline(&self) -> Result<Option<Entered>> {
        let Some(mut state) = self.bucket.lock_now() else { return Ok(None) };
        if self.is_behind_ours(&mut state) {
            return Ok(None);
        }
        let lock = self.bucket.try_lock(&self.core.directory, &mut state).map_err(|errno| self.failed(errno))?;
        let Some(lock) = lock else { return Ok(None) };
        match self.step(&mut state, &lock)? {
            Step::Entered(entered) => Ok(Some(entered)),
            Step::Ceiling(_) | Step::TakesLonger => Ok(None),
        }
    }

    fn step(&self, state: &mut BucketState, lock: &BucketLock) -> Result<Step> {
        let core = self.core;
        if core.over().is_some() {
            return Err(own_places::over("enter"));
        }
        if core.is_withdrawn(self.entry.id.number) {
            return Err(Error::new(ErrorKind::Closed, "enter", "the request was withdrawn"));
        }
        let last = core.directory.last_number(self.bucket.index).map_err(|errno| self.failed(errno))?;
        let fresh = state.seen != Some(last);
        if fresh && !self.list(state, lock, last)? {
            return Ok(Step::TakesLonger);
        }
        let same = state.line(&self.slot.encoded).and_then(|line| line.find(core.id, self.entry.id.number));
        if let Some(ticket) = same {
            return Ok(Step::Entered(self.place(state, ticket)));
        }
        match self.admission(state, lock, last, fresh)? {
            // The contenders in the way may be gone: the I/O thread looks at each of them.
            Admission::Conflict(_) | Admission::Wait if self.is_inline => return Ok(Step::TakesLonger),
            Admission::Conflict(claim) => return Ok(Step::Entered(Entered::Conflict(claim))),
            Admission::Wait if !self.entry.wait => return Ok(Step::Entered(Entered::Busy)),
            Admission::Admitted | Admission::Wait => {}
        }
        self.join(state, lock, last)
    }

    /// Lists the bucket; `false` if that takes longer than the first poll may.
    fn list(&self, state: &mut BucketState, lock: &BucketLock, last: u64) -> Result<bool> {
        let mut listed = || -> rustix::io::Result<bool> {
            let is_short = !self.is_inline || rustix::fs::fstat(&lock.0)?.st_size <= SHORT;
            if is_short {
                state.relist(&self.core.directory, &lock.0, last)?;
            }
            Ok(is_short)
        };
        listed().map_err(|errno| self.failed(errno))
    }

    /// The rule's verdict at the tail. The contenders in the way are looked at again: each may be gone, or dead.
    fn admission(&self, state: &mut BucketState, lock: &BucketLock, last: u64, fresh: bool) -> Result<Admission> {
        let (directory, encoded, claim) = (&self.core.directory, &self.slot.encoded, self.entry.claim);
        let judge =
            |state: &mut BucketState| state.line(encoded).map_or(Admission::Admitted, |line| line.judge(TAIL, claim));
        let is_refused = |found| found != Admission::Admitted && (found != Admission::Wait || !self.entry.wait);
        let known = judge(state);
        if known == Admission::Admitted || (!is_refused(known) && self.is_behind_ours(state)) {
            return Ok(known);
        }
        if !fresh {
            self.list(state, lock, last)?;
        }
        if is_refused(judge(state)) && !self.is_inline {
            let dead = state.line(encoded).map_or_else(|| Ok(HashSet::new()), |line| directory.dead_in(line));
            let dead = dead.map_err(|errno| self.failed(errno))?;
            state.remove_dead(directory, self.bucket, encoded, &dead);
        }
        Ok(judge(state))
    }

    fn join(&self, state: &mut BucketState, lock: &BucketLock, last: u64) -> Result<Step> {
        let (core, entry) = (self.core, self.entry);
        let directory = &core.directory;
        let Some(seq) = directory.ceiling.draw(last, core.clock.wall()) else { return Ok(Step::Ceiling(last)) };
        let ticket = Ticket { key: Key { seq, session: core.id, number: entry.id.number }, claim: entry.claim };
        let note = TicketText {
            name: (!self.slot.is_inline()).then(|| entry.name.as_str().to_owned()),
            purpose: entry.purpose.as_deref().map(str::to_owned),
        };
        directory.set_last_number(self.bucket.index, seq).map_err(|errno| self.failed(errno))?;
        match rustix::fs::symlinkat(note.encode(), &lock.0, ticket.file_name(&self.slot.encoded)) {
            Ok(()) => {}
            Err(Errno::NOENT) => {
                state.forget_directory();
                return Ok(Step::TakesLonger);
            }
            Err(errno) => return Err(self.failed(errno)),
        }
        state.seen = Some(seq);
        state.line_or_new(&self.slot.encoded).insert(KnownContender::new(ticket, true));
        Ok(Step::Entered(self.place(state, ticket)))
    }

    fn place(&self, state: &mut BucketState, ticket: Ticket) -> Entered {
        let standing = state.line_or_new(&self.slot.encoded).standing(&ticket);
        Entered::In(Box::new(FilePlace {
            core: Arc::clone(self.core),
            bucket: Arc::clone(self.bucket),
            encoded: Arc::clone(&self.slot.encoded),
            name: self.entry.name.clone(),
            request: self.entry.id,
            ticket,
            standing,
            bell: LazyLock::new(Bell::new),
            targets: Vec::new(),
            pause: Duration::ZERO,
            looks: 0,
            is_repair: false,
            is_rung: false,
        }))
    }
}
