//! One place: waiting for those ahead, marking the grant, leaving.
//!
//! A waiter listens only to whom the rule names. Those of this process tell it in memory; of others it watches the
//! ticket and the session file. Events are hints: what counts is whether the file is there and its session alive.

use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use rustix::fs::{AtFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;

use super::bucket::{Bucket, State};
use super::directory::Directory;
use super::enter::Patience;
use super::fault::fault;
use super::line::{Known, Line};
use super::lives::Reliance;
use super::platform::Interest;
use super::session::Core;
use super::ticket::{Slot, Ticket};
use super::watch::{Bell, Subscription, Watching, watch};
use crate::engine::clock::Moment;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::queue::{Admission, Claim, Hear, hears};
use crate::store::{Entry, Left, Loss, Place, PlaceId, RequestId, Standing};

/// How often a waiter looks although nothing rang: bounds what a lost event can cost.
pub(super) const REPAIR: Duration = Duration::from_secs(1);
/// How often it looks when no event will come.
const POLL: Duration = Duration::from_millis(10);
/// The first pause after an event at a session file whose lock is still there.
const LINGER: Duration = Duration::from_millis(1);
/// How many tickets of others one waiter watches before it watches the directory instead.
const WATCHED: usize = 64;

/// A place of this process.
#[derive(Debug)]
pub(super) struct FilePlace {
    core: Arc<Core>,
    bucket: Arc<Bucket>,
    encoded: Arc<str>,
    name: Name,
    request: RequestId,
    ticket: Ticket,
    standing: Standing,
    bell: Arc<Bell>,
    targets: Vec<Target>,
    /// Watches the whole directory of the bucket.
    crowd: Option<Subscription>,
    linger: Duration,
    has_looked: bool,
}

/// Somebody ahead whom this place listens to.
#[derive(Debug)]
struct Target {
    ticket: Ticket,
    local: bool,
    departure: Option<Subscription>,
    session: Option<Subscription>,
}

/// When to look again at the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Again {
    Linger,
    Poll,
    Repair,
}

impl FilePlace {
    pub(super) fn new(
        core: Arc<Core>,
        bucket: Arc<Bucket>,
        slot: &Slot,
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
            bell: Bell::new(),
            targets: Vec::new(),
            crowd: None,
            linger: LINGER,
            has_looked: false,
        }
    }

    fn path(&self, ticket: &Ticket) -> String {
        self.bucket.path(ticket, &self.encoded)
    }

    fn failed(&self, operation: &'static str, errno: Errno) -> Error {
        fault(operation, format_args!("{}/{}", self.core.directory.path, self.path(&self.ticket)), errno)
    }

    /// Settles the standing, or arranges to be rung and says when to look again at the latest.
    fn look(&mut self) -> rustix::io::Result<Duration> {
        let bucket = Arc::clone(&self.bucket);
        let mut state = bucket.lock();
        let relook = std::mem::replace(&mut self.has_looked, true);
        if relook && !self.ticket.claim.is_whole() && self.targets.iter().any(|target| !target.local) {
            state.refresh(&self.core.directory, &bucket, &self.encoded)?;
        }
        loop {
            let admission = match state.line(&self.encoded) {
                Some(line) if line.has(&self.ticket) => line.judge(self.ticket.key, self.ticket.claim),
                _ => {
                    self.settle(Standing::Lost(if self.core.is_over() { Loss::Closed } else { Loss::Removed }));
                    return Ok(REPAIR);
                }
            };
            if admission == Admission::Admitted {
                self.grant(&mut state)?;
                return Ok(REPAIR);
            }
            if let Some(again) = self.listen(&mut state)? {
                return Ok(self.pause(again));
            }
        }
    }

    fn pause(&mut self, again: Again) -> Duration {
        match again {
            Again::Repair => REPAIR,
            Again::Poll => POLL,
            Again::Linger => {
                let pause = self.linger;
                self.linger = (self.linger * 2).min(REPAIR);
                pause
            }
        }
    }

    fn settle(&mut self, standing: Standing) {
        self.standing = standing;
        self.targets = Vec::new();
        self.crowd = None;
    }

    /// Marks the ticket as granted, which also proves that it is still there.
    fn grant(&mut self, state: &mut State) -> rustix::io::Result<()> {
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: omit, last_modification: now };
        let root = &self.core.directory.root.fd;
        let marked = rustix::fs::utimensat(root, self.path(&self.ticket), &times, AtFlags::SYMLINK_NOFOLLOW);
        if matches!(marked, Err(Errno::NOENT | Errno::NOTDIR)) {
            state.depart(&self.encoded, &self.ticket);
            self.settle(Standing::Lost(Loss::Removed));
            return Ok(());
        }
        if let Some(line) = state.line(&self.encoded) {
            let standing = line.standing(&self.ticket);
            // Behind a grant of everything nobody can be granted, so nobody needs to hear of it.
            if !self.ticket.claim.is_whole()
                && let Some(known) = line.get_mut(&self.ticket)
            {
                known.ring();
            }
            self.settle(standing);
        }
        Ok(())
    }

    /// Listens to those whom the rule names; `None` when one of them turned out to be gone, so that the rule must be
    /// asked again.
    fn listen(&mut self, state: &mut State) -> rustix::io::Result<Option<Again>> {
        let Some(line) = state.line(&self.encoded) else { return Ok(None) };
        let wanted = wanted(line, &self.ticket);
        self.unlisten_but(line, &wanted);
        let core = Arc::clone(&self.core);
        let mut again = Again::Repair;
        let others = wanted.iter().filter(|(_, local)| !local).count();
        if others > WATCHED {
            again = again.min(self.watch_directory(&core.directory));
        }
        for &(ticket, local) in &wanted {
            if local {
                if let Some(known) = line.get_mut(&ticket) {
                    known.tell(&self.bell);
                }
                self.target(ticket, local);
                continue;
            }
            match self.listen_to(&core.directory, ticket, others > WATCHED)? {
                Some(when) => again = again.min(when),
                None => {
                    // A heavy ticket may have been replaced by a lighter one, which only a listing shows.
                    if ticket.can_lighten() || !self.ticket.claim.is_whole() {
                        state.refresh(&core.directory, &self.bucket, &self.encoded)?;
                    } else {
                        state.depart(&self.encoded, &ticket);
                    }
                    return Ok(None);
                }
            }
        }
        Ok(Some(again))
    }

    fn target(&mut self, ticket: Ticket, local: bool) -> &mut Target {
        let at = self.targets.iter().position(|target| target.ticket == ticket).unwrap_or_else(|| {
            self.targets.push(Target { ticket, local, departure: None, session: None });
            self.targets.len() - 1
        });
        &mut self.targets[at]
    }

    /// Listens to a place of another process; `None` when it is gone.
    fn listen_to(&mut self, directory: &Directory, ticket: Ticket, crowded: bool) -> rustix::io::Result<Option<Again>> {
        let path = self.path(&ticket);
        let bell = Arc::clone(&self.bell);
        let interest = if self.ticket.claim.is_whole() { Interest::Departure } else { Interest::GrantOrDeparture };
        let target = self.target(ticket, false);
        let mut again = Again::Repair;
        let mut certain = false;
        if target.departure.is_none() && !crowded {
            match watch(&format!("{}/{path}", directory.path), interest, &bell) {
                Watching::On(subscription) => {
                    target.departure = Some(subscription);
                    certain = true;
                }
                Watching::Gone => {}
                Watching::Blind => again = Again::Poll,
            }
        }
        if !certain && !directory.exists(&path)? {
            return Ok(None);
        }
        match directory.lives.rely_on(directory, ticket.key.session, &bell) {
            Reliance::Told(subscription) => target.session = Some(subscription),
            Reliance::Doubtful(subscription) => {
                target.session = subscription;
                again = again.min(Again::Linger);
            }
            Reliance::Dead => {
                // A ticket that cannot be removed is dead all the same.
                let _ = directory.remove(&path);
                return Ok(None);
            }
        }
        Ok(Some(again))
    }

    fn watch_directory(&mut self, directory: &Directory) -> Again {
        if self.crowd.is_none() {
            let path = format!("{}/{}", directory.path, Directory::bucket_path(self.bucket.index()));
            if let Watching::On(subscription) = watch(&path, Interest::AnyDeletion, &self.bell) {
                self.crowd = Some(subscription);
            }
        }
        if self.crowd.is_some() { Again::Repair } else { Again::Poll }
    }

    /// Stops listening to everybody but those `wanted`.
    fn unlisten_but(&mut self, line: &mut Line, wanted: &[(Ticket, bool)]) {
        let bell = &self.bell;
        self.targets.retain(|target| {
            let keep = wanted.contains(&(target.ticket, target.local));
            if !keep && let Some(known) = line.get_mut(&target.ticket) {
                known.forget(bell);
            }
            keep
        });
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
        state.line_or_new(&self.encoded).insert(Known::new(lighter, true));
        rustix::fs::unlinkat(lock.fd(), old.as_str(), AtFlags::empty())?;
        state.depart(&self.encoded, &self.ticket);
        drop(lock);
        drop(state);
        self.ticket = lighter;
        Ok(true)
    }

    fn leave_now(&mut self) -> Result<Left> {
        let bucket = Arc::clone(&self.bucket);
        let mut state = bucket.lock();
        let mut left = Left::AlreadyGone;
        let mut ticket = self.ticket;
        loop {
            let removed = self.core.directory.remove(&self.path(&ticket));
            if removed.map_err(|errno| self.failed("leave", errno))? {
                left = Left::Released;
            }
            state.depart(&self.encoded, &ticket);
            // A lightening that stopped half way left two tickets.
            match state.line(&self.encoded).and_then(|line| line.find(ticket.key.session, ticket.key.number)) {
                Some(other) => ticket = other,
                None => break,
            }
        }
        if !matches!(self.standing, Standing::Lost(_)) {
            self.settle(Standing::Lost(Loss::Removed));
        }
        Ok(left)
    }
}

/// Whom to listen to, and whether they are of this process.
fn wanted(line: &Line, mine: &Ticket) -> Vec<(Ticket, bool)> {
    let as_wanted = |known: &Known| (known.ticket, known.local);
    let mut ahead = line.ahead(mine.key);
    if mine.claim.is_whole() {
        return ahead.next_back().map(as_wanted).into_iter().collect();
    }
    let ahead: Vec<_> = ahead.map(as_wanted).collect();
    let claims: Vec<Claim> = ahead.iter().map(|(ticket, _)| ticket.claim).chain([mine.claim]).collect();
    match hears(&claims, ahead.len()) {
        Some(Hear::Departure(at) | Hear::GrantOrDeparture(at)) => vec![ahead[at]],
        Some(Hear::AnyDepartureAhead) | None => ahead,
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
                self.bell.take();
                let pause = self.look().map_err(|errno| self.failed("wait", errno))?;
                let now = self.core.clock.now();
                if !matches!(self.standing, Standing::Waiting(_)) || now >= until {
                    return Ok(self.standing);
                }
                tokio::select! {
                    () = self.bell.rung() => {}
                    () = self.core.clock.sleep_until(now.after(pause).min(until)) => {}
                }
            }
        })
    }

    fn lighten(&mut self, claim: Claim) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mine = self.ticket.claim;
            if claim == mine {
                return Ok(());
            }
            if claim.capacity() != mine.capacity() || claim.weight() > mine.weight() {
                return Err(Error::new(
                    ErrorKind::Config,
                    "lighten",
                    "a lighter claim has the same capacity and less weight",
                )
                .with("held", mine)
                .with("asked", claim));
            }
            if !matches!(self.standing, Standing::Granted(_)) {
                return Err(Error::new(ErrorKind::Lost, "lighten", "the place is not held"));
            }
            let core = Arc::clone(&self.core);
            let mut patience = Patience::new(&core);
            let lighter = Ticket { key: self.ticket.key, claim };
            while !self.try_lighten(lighter).map_err(|errno| self.failed("lighten", errno))? {
                if !patience.lasts().await {
                    return Err(core.directory.stuck("lighten", &Directory::bucket_path(self.bucket.index())));
                }
            }
            Ok(())
        })
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<Left>> {
        Box::pin(async move { self.leave_now() })
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
