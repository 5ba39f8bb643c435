//! One place: waiting for those ahead, marking the grant, leaving.
//!
//! A waiter listens only to whom the rule names. Those of this process tell it in memory; of others it watches the
//! ticket and the session file. Events are hints: what counts is whether the file is there and its session alive.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_core::future::BoxFuture;
use rustix::fs::{AtFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;

use super::bucket::{Bucket, BucketState};
use super::directory::Directory;
use super::enter::Patience;
use super::fault::fault;
use super::line::KnownContender;
use super::listen::{Again, Heard, Target};
use super::platform;
use super::session::Core;
use super::sweep::{REMOVED, STEP};
use super::ticket::{EncodedName, Ticket};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::bell::Bell;
use crate::kit::own_places::not_there;
use crate::name::Name;
use crate::queue::{Admission, Claim};
use crate::store::{Entry, Left, Loss, Place, PlaceId, RequestId, Standing};
use crate::time::Moment;

/// How often a waiter looks although nothing rang: bounds what a lost event can cost.
pub(super) const REPAIR: Duration = Duration::from_secs(1);
/// The same behind this process, where nothing is lost: thousands may wait there.
const TOLD: Duration = Duration::from_secs(60);
/// How often it looks when no event will come.
pub(super) const POLL: RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_millis(200);
/// How often it looks after an event: the lock of a session file may outlive the event of its closing for a moment (a descriptor
/// that a child has inherited), and the name of a ticket that of its removal.
const LINGER: RangeInclusive<Duration> = Duration::from_millis(1)..=REPAIR;

/// A place of this process.
#[derive(Debug)]
pub(super) struct FilePlace {
    pub(super) core: Arc<Core>,
    pub(super) bucket: Arc<Bucket>,
    pub(super) encoded: Arc<str>,
    name: Name,
    request: RequestId,
    pub(super) ticket: Ticket,
    standing: Standing,
    /// Made when the first wait begins: most places never wait.
    pub(super) bell: LazyLock<Arc<Bell>>,
    pub(super) targets: Vec<Target>,
    /// How long it waited for its last look in a row.
    pause: Duration,
    /// How often it looked.
    pub(super) looks: u32,
    /// Whether it looks because nothing rang for long.
    pub(super) is_repair: bool,
    /// Whether it looks because something rang.
    pub(super) is_rung: bool,
}

impl FilePlace {
    pub(super) fn new(
        core: Arc<Core>,
        bucket: Arc<Bucket>,
        slot: &EncodedName,
        entry: &Entry,
        ticket: Ticket,
        standing: Standing,
    ) -> Self {
        Self {
            core,
            bucket,
            encoded: Arc::clone(&slot.encoded),
            name: entry.name.clone(),
            request: entry.id,
            ticket,
            standing,
            bell: LazyLock::new(Bell::new),
            targets: Vec::new(),
            pause: Duration::ZERO,
            looks: 0,
            is_repair: false,
            is_rung: false,
        }
    }

    pub(super) fn path(&self, ticket: &Ticket) -> String {
        self.bucket.path(ticket, &self.encoded)
    }

    fn failed(&self, operation: &'static str, errno: Errno) -> Error {
        fault(operation, format_args!("{}/{}", self.core.directory.path, self.path(&self.ticket)), errno)
    }

    /// Settles the standing, or arranges to be rung and says when to look again at the latest.
    fn look(&mut self) -> rustix::io::Result<Duration> {
        let bucket = Arc::clone(&self.bucket);
        let mut state = bucket.lock();
        self.looks = self.looks.saturating_add(1);
        #[cfg(test)]
        self.core.looks.fetch_add(u64::from(!self.is_repair), std::sync::atomic::Ordering::SeqCst);
        if self.looks > 1 && self.needs_listing() {
            state.refresh(&self.core.directory, &bucket, &self.encoded)?;
        }
        let mut room = REMOVED;
        for _ in 0..STEP {
            let admission = match state.line(&self.encoded) {
                Some(line) if line.has(&self.ticket) => line.judge(self.ticket.key, self.ticket.claim),
                _ => {
                    let loss = self.core.over().unwrap_or(Loss::Removed);
                    self.settle(&mut state, Standing::Lost(loss));
                    return Ok(REPAIR);
                }
            };
            if admission == Admission::Admitted {
                self.grant(&mut state)?;
                return Ok(REPAIR);
            }
            match self.listen(&mut state)? {
                Heard::There(again) => return Ok(self.pause(again)),
                Heard::Gone => self.pause = Duration::ZERO,
                Heard::Dead(session) => {
                    let dead = HashSet::from([session]);
                    room -= state.bury(&self.core.directory, &bucket, &self.encoded, &dead, room);
                }
            }
        }
        Ok(Duration::ZERO)
    }

    /// Whether others than those it listens to may have made room for it: a writer waits for the place before its own, a
    /// reader for the nearest writer, permits for anybody.
    fn needs_listing(&self) -> bool {
        let claim = self.ticket.claim;
        let waits_for_one = claim.is_whole()
            || claim.is_reader() && self.targets.iter().all(|target| target.local || target.ticket.claim.is_whole());
        !waits_for_one && self.targets.iter().any(|target| !target.local)
    }

    fn pause(&mut self, again: Again) -> Duration {
        // Without a watch on the ticket its departure is polled for, whatever its session does.
        let blind = self.targets.iter().any(|target| !target.local && target.departure.is_none());
        let bounds = match again {
            Again::Told => return TOLD,
            Again::Repair => return REPAIR,
            Again::Linger if !blind => LINGER,
            Again::Poll | Again::Linger => POLL,
        };
        self.pause = (self.pause * 2).clamp(*bounds.start(), *bounds.end());
        self.pause
    }

    fn settle(&mut self, state: &mut BucketState, standing: Standing) {
        self.standing = standing;
        if let Some(line) = state.line(&self.encoded) {
            self.unlisten_but(line, &[]);
        }
        self.targets = Vec::new();
    }

    /// Marks the ticket as granted, which also proves that it is still there.
    fn grant(&mut self, state: &mut BucketState) -> rustix::io::Result<()> {
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: omit, last_modification: now };
        let root = &self.core.directory.root.fd;
        let marked = rustix::fs::utimensat(root, self.path(&self.ticket), &times, AtFlags::SYMLINK_NOFOLLOW);
        if matches!(marked, Err(Errno::NOENT | Errno::NOTDIR)) {
            state.depart(&self.encoded, &self.ticket);
            self.settle(state, Standing::Lost(Loss::Removed));
            return Ok(());
        }
        // Behind a grant of everything nobody can be granted, so nobody needs to hear of it.
        if !self.ticket.claim.is_whole() {
            state.tell_of_grant(&self.encoded, &self.ticket);
        }
        if let Some(standing) = state.line(&self.encoded).map(|line| line.standing(&self.ticket)) {
            self.settle(state, standing);
        }
        Ok(())
    }

    fn not_lightened(&self, errno: Errno) -> Error {
        match errno {
            Errno::NOENT | Errno::NOTDIR => not_there(),
            errno => self.failed("downgrade", errno),
        }
    }

    /// Puts the lighter ticket beside the heavier one and takes that away; `false` while another process is in the lock.
    fn try_lighten(&mut self, lighter: Ticket) -> rustix::io::Result<bool> {
        let bucket = Arc::clone(&self.bucket);
        let directory = &self.core.directory;
        let mut state = bucket.lock();
        let Some(lock) = bucket.try_lock(directory, &mut state)? else { return Ok(false) };
        let (old, new) = (self.ticket.file_name(&self.encoded), lighter.file_name(&self.encoded));
        let note = rustix::fs::readlinkat(lock.fd(), old.as_str(), Vec::new())?;
        let stat = rustix::fs::statat(lock.fd(), old.as_str(), AtFlags::SYMLINK_NOFOLLOW)?;
        match rustix::fs::symlinkat(note, lock.fd(), new.as_str()) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let since = Timespec { tv_sec: stat.st_mtime as _, tv_nsec: stat.st_mtime_nsec as _ };
        let times = Timestamps { last_access: since, last_modification: since };
        // Only for show.
        let _ = rustix::fs::utimensat(lock.fd(), new.as_str(), &times, AtFlags::SYMLINK_NOFOLLOW);
        state.line_or_new(&self.encoded).insert(KnownContender::new(lighter, true));
        rustix::fs::unlinkat(lock.fd(), old.as_str(), AtFlags::empty())?;
        state.depart(&self.encoded, &self.ticket);
        drop(lock);
        drop(state);
        self.ticket = lighter;
        Ok(true)
    }

    fn leave_in(&mut self, state: &mut BucketState) -> Result<Left> {
        let mut left = Left::AlreadyGone;
        let mut ticket = self.ticket;
        loop {
            let removed = self.core.directory.remove(&self.path(&ticket));
            if removed.map_err(|errno| self.failed("leave", errno))? {
                left = Left::Released;
            }
            state.depart(&self.encoded, &ticket);
            // A lightening that stopped half way left two tickets.
            match state.line(&self.encoded).and_then(|line| line.lightest(ticket.key)) {
                Some(other) => ticket = other,
                None => break,
            }
        }
        if !matches!(self.standing, Standing::Lost(_)) {
            self.settle(state, Standing::Lost(Loss::Removed));
        }
        Ok(left)
    }
}

impl Place for FilePlace {
    fn id(&self) -> PlaceId {
        PlaceId { name: self.name.clone(), request: self.request }
    }

    fn standing(&self) -> Standing {
        self.standing
    }

    fn next(&mut self, until: Moment) -> BoxFuture<'_, Result<Standing>> {
        Box::pin(async move {
            loop {
                if !matches!(self.standing, Standing::Waiting(_)) {
                    return Ok(self.standing);
                }
                self.is_rung = self.bell.take();
                if self.is_rung {
                    self.pause = Duration::ZERO;
                }
                let pause = self.look().map_err(|errno| self.failed("wait", errno))?;
                let now = self.core.clock.now();
                if !matches!(self.standing, Standing::Waiting(_)) || now >= until {
                    return Ok(self.standing);
                }
                if pause.is_zero() {
                    // Not done yet, but others want the bucket and the thread as well.
                    tokio::task::yield_now().await;
                    continue;
                }
                self.is_repair = tokio::select! {
                    () = self.bell.rung() => false,
                    () = self.core.clock.sleep_until(now.after(pause).min(until)) => true,
                };
            }
        })
    }

    fn lighten(&mut self, claim: Claim) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if claim == self.ticket.claim {
                return Ok(());
            }
            if !matches!(self.standing, Standing::Granted(_)) {
                return Err(Error::new(ErrorKind::Lost, "downgrade", "the place is not held"));
            }
            let core = Arc::clone(&self.core);
            let mut patience = Patience::new(&core);
            let lighter = Ticket { key: self.ticket.key, claim };
            while !self.try_lighten(lighter).map_err(|errno| self.not_lightened(errno))? {
                if !patience.lasts().await {
                    return Err(core.directory.stuck("downgrade", &Directory::bucket_path(self.bucket.index())));
                }
            }
            Ok(())
        })
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<Left>> {
        Box::pin(async move {
            let bucket = Arc::clone(&self.bucket);
            self.leave_in(&mut bucket.lock())
        })
    }

    fn leave_now(&mut self) -> Option<Result<Left>> {
        if !platform::KNOWS_FILE_SYSTEMS {
            return None;
        }
        let bucket = Arc::clone(&self.bucket);
        let mut state = bucket.lock_now()?;
        Some(self.leave_in(&mut state))
    }
}

impl Drop for FilePlace {
    fn drop(&mut self) {
        if self.targets.iter().any(|target| target.local)
            && let Some(line) = self.bucket.lock().line(&self.encoded)
        {
            for target in &self.targets {
                if let Some(known) = line.get_mut(&target.ticket) {
                    known.forget(&self.bell);
                }
            }
        }
    }
}
