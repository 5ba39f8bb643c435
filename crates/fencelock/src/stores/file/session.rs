//! One client's session: a locked file, and the places that name it.

use std::collections::{HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use rustix::fs::{AtFlags, FlockOperation, OFlags};
use rustix::io::Errno;

use super::config::Config;
use super::directory::Directory;
use super::enter;
use super::fault::fault;
use super::files::{temporary_name, write_all};
use super::layout::SESSIONS;
use super::lives::session_name;
use super::platform::Interest;
use super::renewal;
use super::ticket::EncodedName;
use super::watch::{Subscription, Watching, watch};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::bell::Bell;
use crate::kit::record::{self, Identity};
use crate::name::Name;
use crate::store::{
    Break, Entered, Entry, GrantId, Loss, Owner, PlaceId, PlaceList, Renewal, RequestId, Session, SessionEvent,
};
use crate::time::Clock;

/// How many withdrawn requests are remembered, in case one is still on its way. The engine has few in flight.
const WITHDRAWN: usize = 1024;

/// What places and the session's handle share. The kernel gives the session up when the last of them is gone.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) directory: Arc<Directory>,
    pub(super) id: u64,
    #[cfg(test)]
    pub(super) client: u64,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) request_deadline: Duration,
    file: Mutex<Option<OwnedFd>>,
    over: OnceLock<Loss>,
    withdrawn: Mutex<VecDeque<u64>>,
    /// The grants whose break was told, so that no renewal leaves it to the events again.
    told_breaks: Mutex<HashSet<GrantId>>,
    /// How often a waiting place of it looked at the store because something rang, or for the first time.
    #[cfg(test)]
    pub(super) looks: std::sync::atomic::AtomicU64,
    bell: Arc<Bell>,
}

/// The handle that the engine has.
#[derive(Debug)]
pub(super) struct FileSession(pub(super) Arc<Core>);

impl Core {
    /// Makes the session file. It is locked before it gets its name, so nobody ever sees it unlocked.
    pub(super) fn open(
        config: &Config,
        directory: Arc<Directory>,
        owner: &Owner,
        patience: Duration,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>> {
        let id = getrandom::u64().map_err(|error| {
            Error::new(ErrorKind::Internal, "open", "the system gave no random number").caused_by(error)
        })?;
        let name = session_name(id);
        let failed = |errno| fault("open session", format_args!("{}/{SESSIONS}/{name}", directory.path), errno);
        let text = record::text("open session", &Identity::of(owner))?;
        let file = directory.opening(|| make_session_file(&directory, &name, &text, config.inherit)).map_err(failed)?;
        directory.lives.adopt(id, owner.client);
        Ok(Arc::new(Self {
            id,
            #[cfg(test)]
            client: owner.client,
            clock,
            request_deadline: config.request_deadline.min(patience),
            file: Mutex::new(Some(file)),
            over: OnceLock::new(),
            withdrawn: Mutex::default(),
            told_breaks: Mutex::default(),
            #[cfg(test)]
            looks: Default::default(),
            bell: Bell::new(),
            directory,
        }))
    }

    /// Why the session is over, if it is.
    pub(super) fn over(&self) -> Option<Loss> {
        self.over.get().copied()
    }

    /// Somebody removed the session file. Its tickets, as far as they are still there, go when the session is closed.
    pub(super) fn removed(&self) {
        if self.over.set(Loss::Removed).is_ok() {
            self.bell.ring();
        }
    }

    /// Whether a request was taken back, so that it must not take effect any more.
    pub(super) fn is_withdrawn(&self, number: u64) -> bool {
        self.withdrawn().contains(&number)
    }

    fn withdrawn(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the session file is still in the directory, and the directory at its path.
    pub(super) fn is_linked(&self) -> Result<bool> {
        let linked = || -> rustix::io::Result<bool> {
            match &*self.file() {
                Some(file) => Ok(rustix::fs::fstat(file)?.st_nlink > 0 && self.directory.is_in_place()?),
                None => Ok(false),
            }
        };
        linked().map_err(|errno| fault("renew", &self.directory.path, errno))
    }

    /// Removes this session's tickets; the first thing that went wrong comes last.
    fn remove_tickets(&self) -> Result<()> {
        let mut outcome = Ok(());
        for bucket in self.directory.known_buckets() {
            let mut state = bucket.lock();
            let mut mine = Vec::new();
            for (encoded, line) in state.lines() {
                let own = line.iter().filter(|known| known.ticket.key.session == self.id);
                mine.extend(own.map(|known| (Arc::clone(encoded), known.ticket)));
            }
            for (encoded, ticket) in mine {
                let path = bucket.path(&ticket, &encoded);
                match self.directory.remove(&path) {
                    Ok(_) => state.depart(&encoded, &ticket),
                    Err(errno) => {
                        outcome = Err(fault("close", format_args!("{}/{path}", self.directory.path), errno));
                    }
                }
            }
        }
        outcome
    }

    /// Ends the session as a crash would: nothing is cleaned up, the kernel drops the lock.
    pub(super) fn forsake(&self) {
        let _ = self.over.set(Loss::Closed);
        self.directory.lives.disown(self.id);
        *self.file() = None;
        // Those in this process who wait behind its tickets are not told by the kernel.
        for bucket in self.directory.known_buckets() {
            bucket.lock().disown(self.id);
        }
        self.bell.ring();
    }

    fn close(&self) -> Result<()> {
        let _ = self.over.set(Loss::Closed);
        let removed = self.remove_tickets();
        if self.file().is_some() {
            let name = session_name(self.id);
            let unlinked = rustix::fs::unlinkat(&self.directory.root.sessions, name.as_str(), AtFlags::empty());
            self.forsake();
            if let Err(errno) = unlinked
                && errno != Errno::NOENT
            {
                return Err(fault("close", format_args!("{}/{SESSIONS}/{name}", self.directory.path), errno));
            }
        }
        removed
    }

    /// Takes what was broken off the list: the events tell that, with the reason.
    pub(super) fn leave_to_events(&self, gone: &mut Vec<(PlaceId, Loss)>) {
        let told = self.told_breaks();
        let is_untold = |order: &Break| !told.contains(&order.grant());
        let breaks = self.directory.breaks_of(self.id).into_iter();
        let broken: Vec<_> = breaks.filter(is_untold).map(|order| order.place).collect();
        drop(told);
        let before = gone.len();
        gone.retain(|(place, _)| !broken.contains(place));
        if gone.len() < before {
            self.bell.ring();
        }
    }

    /// The breaks of this session's grants that took effect and were not told yet.
    fn broken(&self) -> VecDeque<SessionEvent> {
        let mut events = VecDeque::new();
        for order in self.directory.breaks_of(self.id) {
            if !self.holds(&order.place) && self.told_breaks().insert(order.grant()) {
                events.push_back(SessionEvent::Broken(order.grant(), order.reason));
            }
        }
        events
    }

    fn told_breaks(&self) -> MutexGuard<'_, HashSet<GrantId>> {
        self.told_breaks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the ticket of a place is still there.
    fn holds(&self, place: &PlaceId) -> bool {
        let slot = EncodedName::of(&place.name);
        let bucket = self.directory.bucket(slot.bucket);
        let mut state = bucket.lock();
        let ticket = state.line(&slot.encoded).and_then(|line| line.find(self.id, place.request.number));
        ticket.is_some_and(|ticket| self.directory.exists(&bucket.path(&ticket, &slot.encoded)).unwrap_or(true))
    }

    fn withdraw(&self, name: &Name, id: RequestId) -> Result<()> {
        let slot = EncodedName::of(name);
        let bucket = self.directory.bucket(slot.bucket);
        let mut withdrawn = self.withdrawn();
        if !withdrawn.contains(&id.number) {
            if withdrawn.len() >= WITHDRAWN {
                withdrawn.pop_front();
            }
            withdrawn.push_back(id.number);
        }
        drop(withdrawn);
        // An `enter` looks at the withdrawn ones under this same lock.
        let mut state = bucket.lock();
        while let Some(ticket) = state.line(&slot.encoded).and_then(|line| line.find(self.id, id.number)) {
            let path = bucket.path(&ticket, &slot.encoded);
            let removed = self.directory.remove(&path);
            removed.map_err(|errno| fault("cancel", format_args!("{}/{path}", self.directory.path), errno))?;
            state.depart(&slot.encoded, &ticket);
        }
        Ok(())
    }

    /// What happens to the session file unasked.
    pub(super) fn events(self: &Arc<Self>) -> BoxStream<'static, SessionEvent> {
        struct Events {
            core: Weak<Core>,
            bell: Arc<Bell>,
            _subscription: Option<Subscription>,
            broken: VecDeque<SessionEvent>,
            told_end: bool,
        }
        let path = format!("{}/{SESSIONS}/{}", self.directory.path, session_name(self.id));
        let subscription = match watch(&path, Interest::Touch, &self.bell) {
            Watching::On(subscription) => Some(subscription),
            // Renewals look, too.
            Watching::Gone | Watching::Blind => None,
        };
        let events = Events {
            core: Arc::downgrade(self),
            bell: Arc::clone(&self.bell),
            _subscription: subscription,
            broken: VecDeque::new(),
            told_end: false,
        };
        Box::pin(futures_util::stream::unfold(events, |mut events| async move {
            if let Some(broken) = events.broken.pop_front() {
                return Some((broken, events));
            }
            events.bell.rung().await;
            let core = events.core.upgrade().filter(|_| !events.told_end)?;
            // What cannot be told now, the renewal asks again.
            if core.over().is_none() && !core.is_linked().unwrap_or(true) {
                core.removed();
            }
            if let Some(loss) = core.over() {
                events.told_end = true;
                return (loss != Loss::Closed).then_some((SessionEvent::Over, events));
            }
            events.broken = core.broken();
            Some((events.broken.pop_front().unwrap_or(SessionEvent::Doubtful), events))
        }))
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.file().is_some() {
            self.forsake();
        }
    }
}

/// How often a session file is made anew when a sweep takes it, still unlocked, for an abandoned one.
const SWEPT_AT_MOST: u32 = 1000;

/// Makes the session file under a temporary name, and gives it its own only once it is locked: nobody ever sees it
/// unlocked while its owner lives.
fn make_session_file(directory: &Directory, name: &str, text: &str, inherit: bool) -> rustix::io::Result<OwnedFd> {
    let mut tries = 0;
    loop {
        tries += 1;
        match try_session_file(directory, name, text, inherit) {
            Err(Errno::WOULDBLOCK | Errno::NOENT) if tries < SWEPT_AT_MOST => std::thread::yield_now(),
            made => return made,
        }
    }
}

fn try_session_file(directory: &Directory, name: &str, text: &str, inherit: bool) -> rustix::io::Result<OwnedFd> {
    let sessions = &directory.root.sessions;
    let modes = directory.root.modes;
    let temporary = temporary_name();
    let mut flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW;
    if !inherit {
        flags |= OFlags::CLOEXEC;
    }
    let file = rustix::fs::openat(sessions, temporary.as_str(), flags, modes.file)?;
    let named = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
        .and_then(|()| modes.apply(&file, modes.file))
        .and_then(|()| write_all(&file, text.as_bytes()))
        .and_then(|()| rustix::fs::renameat(sessions, temporary.as_str(), sessions, name));
    if let Err(errno) = named {
        let _ = rustix::fs::unlinkat(sessions, temporary.as_str(), AtFlags::empty());
        return Err(errno);
    }
    Ok(file)
}

impl Session for FileSession {
    fn over(&self) -> Option<Loss> {
        self.0.over()
    }

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        Box::pin(enter::enter(&self.0, entry))
    }

    fn enter_now(&self, entry: &Arc<Entry>) -> Option<Result<Entered>> {
        enter::enter_now(&self.0, entry)
    }

    fn withdraw<'a>(&'a self, name: &'a Name, id: RequestId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.0.withdraw(name, id) })
    }

    fn renew<'a>(&'a self, places: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>> {
        Box::pin(renewal::renew(&self.0, places.all()))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.0.close() })
    }
}
