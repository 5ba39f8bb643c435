//! A place: waits for contenders ahead, marks its grant, leaves.
//!
//! A waiter listens only to the contenders that the rule names. Contenders of its process signal it in memory; of other processes it
//! watches ticket and session file. Events are hints: only the presence of the file and the life of its session count.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_core::future::BoxFuture;
use rustix::fs::{AtFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;

use super::bucket::{Bucket, BucketLock, BucketState};
use super::enter::Patience;
use super::fault::fault;
use super::line::KnownContender;
use super::listen::{Listened, Target};
use super::session::SessionCore;
use super::ticket::Ticket;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::bell::Bell;
use crate::kit::own_places::not_there;
use crate::kit::pause::second_poll;
use crate::name::Name;
use crate::queue::{Admission, Claim};
use crate::store::{Left, Loss, Place, PlaceId, RequestId, Standing};
use crate::time::Moment;

/// The shortest and the longest pause between two looks of a waiter; each is twice as long as the one before.
pub(super) type Pauses = (Duration, Duration);

/// The pause for places with events: bounds the cost of a lost event.
pub(super) const REPAIR: Pauses = (Duration::from_secs(1), Duration::from_secs(1));
/// The pause for places behind this process, which loses no event: thousands may wait there.
pub(super) const NOTIFIED: Pauses = (Duration::from_secs(60), Duration::from_secs(60));
/// The pause for places without events.
pub(super) const POLL: Pauses = (Duration::from_millis(5), Duration::from_millis(200));
/// The pause after an event without an effect: a session file may stay locked for a moment after its closing (by an inherited descriptor).
pub(super) const LINGER: Pauses = (Duration::from_millis(1), REPAIR.1);

/// A place of this process.
#[derive(Debug)]
pub(super) struct FilePlace {
    pub(super) core: Arc<SessionCore>,
    pub(super) bucket: Arc<Bucket>,
    pub(super) encoded: Arc<str>,
    pub(super) name: Name,
    pub(super) request: RequestId,
    pub(super) ticket: Ticket,
    pub(super) standing: Standing,
    /// Made when the first wait begins: most places never wait.
    pub(super) bell: LazyLock<Arc<Bell>>,
    pub(super) targets: Vec<Target>,
    /// The last pause between two looks.
    pub(super) pause: Duration,
    /// The number of looks.
    pub(super) looks: u32,
    /// Whether this look follows a long time without an event.
    pub(super) is_repair: bool,
    /// Whether an event came while all contenders that this place listens to were still there.
    pub(super) is_rung: bool,
}

impl FilePlace {
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
        if self.looks > 1 && self.needs_listing() && !bucket.relist(&self.core.directory, &mut state)? {
            return Ok(self.pause(LINGER));
        }
        loop {
            let admission = match state.line(&self.encoded) {
                Some(line) if line.has(&self.ticket) => line.judge(self.ticket.key, self.ticket.claim),
                _ => {
                    let loss = self.core.over().unwrap_or(Loss::Removed);
                    self.settle(Standing::Lost(loss));
                    return Ok(REPAIR.0);
                }
            };
            if admission == Admission::Admitted {
                self.grant(&mut state)?;
                return Ok(REPAIR.0);
            }
            match self.listen(&mut state)? {
                Listened::There(again) => return Ok(self.pause(again)),
                Listened::Gone => self.pause = Duration::ZERO,
                Listened::Dead(session) => {
                    state.remove_dead(&self.core.directory, &bucket, &self.encoded, &HashSet::from([session]));
                }
            }
        }
    }

    /// Whether contenders other than the watched ones may have made room: a writer waits for the place before its own, a reader for the
    /// nearest writer, permits for any contender.
    fn needs_listing(&self) -> bool {
        let claim = self.ticket.claim;
        let waits_for_one = claim.is_whole()
            || claim.is_reader() && self.targets.iter().all(|target| target.local || target.ticket.claim.is_whole());
        !waits_for_one && self.targets.iter().any(|target| !target.local)
    }

    fn pause(&mut self, (shortest, longest): Pauses) -> Duration {
        self.pause = (self.pause * 2).clamp(shortest, longest);
        self.pause
    }

    fn settle(&mut self, standing: Standing) {
        (self.standing, self.targets) = (standing, Vec::new());
    }

    /// Marks the ticket as granted, which also proves that it is still there.
    fn grant(&mut self, state: &mut BucketState) -> rustix::io::Result<()> {
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: omit, last_modification: now };
        let root = &self.core.directory.root.fd;
        let marked = rustix::fs::utimensat(root, self.path(&self.ticket), &times, AtFlags::SYMLINK_NOFOLLOW);
        if matches!(marked, Err(Errno::NOENT | Errno::NOTDIR)) {
            let _ = self.bucket.remove(&self.core.directory, state, "wait", &self.encoded, &self.ticket);
            self.settle(Standing::Lost(Loss::Removed));
            return Ok(());
        }
        // Behind a grant of the whole capacity no waiter can be granted, so none needs the event.
        if !self.ticket.claim.is_whole() {
            state.tell_of_grant(&self.encoded, &self.ticket);
        }
        if let Some(standing) = state.line(&self.encoded).map(|line| line.standing(&self.ticket)) {
            self.settle(standing);
        }
        Ok(())
    }

    /// Creates the lighter ticket next to the heavier one, and removes the heavier.
    fn replace(&mut self, state: &mut BucketState, lock: &BucketLock, lighter: Ticket) -> rustix::io::Result<()> {
        let (old, new) = (self.ticket.file_name(&self.encoded), lighter.file_name(&self.encoded));
        let note = rustix::fs::readlinkat(&lock.0, old.as_str(), Vec::new())?;
        match rustix::fs::symlinkat(note, &lock.0, new.as_str()) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        state.line_or_new(&self.encoded).insert(KnownContender::new(lighter, true));
        rustix::fs::unlinkat(&lock.0, old.as_str(), AtFlags::empty())?;
        state.depart(&self.encoded, &self.ticket);
        self.ticket = lighter;
        Ok(())
    }

    fn leave_in(&mut self, state: &mut BucketState) -> Result<Left> {
        let mut left = Left::AlreadyGone;
        // A downgrade that stopped half-way left two tickets.
        while let Some(ticket) = state.line(&self.encoded).and_then(|line| line.lightest(self.ticket.key)) {
            if self.bucket.remove(&self.core.directory, state, "leave", &self.encoded, &ticket)? {
                left = Left::Released;
            }
        }
        if !matches!(self.standing, Standing::Lost(_)) {
            self.settle(Standing::Lost(Loss::Removed));
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
            let mut is_woken = false;
            loop {
                if !matches!(self.standing, Standing::Waiting(_)) {
                    return Ok(self.standing);
                }
                if self.bell.take() || is_woken {
                    (self.pause, self.is_rung) = (Duration::ZERO, true);
                }
                let pause = self.look().map_err(|errno| self.failed("wait", errno))?;
                let now = self.core.clock.now();
                if !matches!(self.standing, Standing::Waiting(_)) || now >= until {
                    return Ok(self.standing);
                }
                is_woken = tokio::select! {
                    () = self.bell.rung() => true,
                    () = self.core.clock.sleep_until(now.after(pause).min(until)) => false,
                };
                self.is_repair = !is_woken;
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
            let (core, bucket) = (Arc::clone(&self.core), Arc::clone(&self.bucket));
            let lighter = Ticket { key: self.ticket.key, claim };
            let step = |state: &mut BucketState, lock: &BucketLock| {
                let replaced = self.replace(state, lock, lighter);
                replaced.map_err(|errno| match errno {
                    Errno::NOENT | Errno::NOTDIR => not_there(),
                    errno => self.failed("downgrade", errno),
                })
            };
            let mut patience = Patience::new(&*core.clock, core.request_deadline);
            bucket.locked(&core.directory, "downgrade", &mut patience, step).await
        })
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<Left>> {
        Box::pin(async move {
            let bucket = Arc::clone(&self.bucket);
            if let Some(mut state) = bucket.lock_now() {
                return self.leave_in(&mut state);
            }
            // Another thread may list the bucket, and the first poll does not wait for it.
            second_poll().await;
            self.leave_in(&mut bucket.lock())
        })
    }
}
