//! The session of one client: a locked file, and the places that name it.

use std::collections::{HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use rustix::fs::{FlockOperation, OFlags};

use super::config::Config;
use super::directory::Directory;
use super::enter;
use super::fault::fault;
use super::files::{Temporary, remove, temporary_name, write_all};
use super::layout::SESSIONS;
use super::linux::Interest;
use super::sessions::session_name;
use super::ticket::EncodedName;
use super::watch::watch;
use crate::error::Result;
use crate::kit::bell::Bell;
use crate::kit::own_places;
use crate::kit::record::{self, Identity};
use crate::kit::session_state::random_number;
use crate::name::Name;
use crate::store::{
    Break, Entered, Entry, GrantId, Loss, Owner, PlaceId, PlaceList, Renewal, RequestId, Session, SessionEvent,
};
use crate::sync::Mutex;
use crate::time::Clock;

/// How many places a renewal looks at before other tasks run.
const STEP: usize = 64;
/// How many withdrawn requests are remembered, in case one is still on its way. The engine has few in flight.
const WITHDRAWN: usize = 1024;

/// The state that places and the session's handle share. The kernel gives the session up when the last of them is gone.
#[derive(Debug)]
pub(super) struct SessionCore {
    pub(super) directory: Arc<Directory>,
    pub(super) id: u64,
    #[cfg(test)]
    pub(super) client: u64,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) request_deadline: Duration,
    file: Mutex<Option<OwnedFd>>,
    over: OnceLock<Loss>,
    withdrawn: Mutex<VecDeque<u64>>,
    /// The grants whose break was reported: a renewal need not wait for the event again.
    reported_breaks: Mutex<HashSet<GrantId>>,
    /// The number of looks of waiting places after an event, or for the first time.
    #[cfg(test)]
    pub(super) looks: std::sync::atomic::AtomicU64,
    bell: Arc<Bell>,
}

/// The handle that the engine has.
#[derive(Debug)]
pub(super) struct FileSession(pub(super) Arc<SessionCore>);

impl SessionCore {
    /// Makes the session file. The file is locked before it gets its name, so no process ever sees it unlocked.
    pub(super) fn open(
        config: &Config,
        directory: Arc<Directory>,
        owner: &Owner,
        patience: Duration,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>> {
        let id = random_number("open session")?;
        let name = session_name(id);
        let failed = |errno| fault("open session", format_args!("{}/{SESSIONS}/{name}", directory.path), errno);
        let text = record::text("open session", &Identity::of(owner))?;
        let file = make_session_file(&directory, &name, &text, config.inherit).map_err(failed)?;
        directory.own_sessions.adopt(id, owner.client);
        Ok(Arc::new(Self {
            id,
            #[cfg(test)]
            client: owner.client,
            clock,
            request_deadline: config.request_deadline.min(patience),
            file: Mutex::new(Some(file)),
            over: OnceLock::new(),
            withdrawn: Mutex::default(),
            reported_breaks: Mutex::default(),
            #[cfg(test)]
            looks: Default::default(),
            bell: Bell::new(),
            directory,
        }))
    }

    /// Why the session has ended, if it has.
    pub(super) fn over(&self) -> Option<Loss> {
        self.over.get().copied()
    }

    /// Another process removed the session file. Its tickets, as far as they are still there, go when the session is closed.
    fn removed(&self) {
        if self.over.set(Loss::Removed).is_ok() {
            self.bell.ring();
        }
    }

    /// Whether a request was withdrawn, so that it must no longer take effect.
    pub(super) fn is_withdrawn(&self, number: u64) -> bool {
        self.withdrawn.lock().contains(&number)
    }

    /// Whether the session file is still in the directory, and the directory at its path.
    fn is_linked(&self) -> Result<bool> {
        let linked = || -> rustix::io::Result<bool> {
            match &*self.file.lock() {
                Some(file) => Ok(rustix::fs::fstat(file)?.st_nlink > 0 && self.directory.is_in_place()?),
                None => Ok(false),
            }
        };
        linked().map_err(|errno| fault("renew", &self.directory.path, errno))
    }

    /// Removes all tickets of this session, and then returns the first error.
    fn remove_tickets(&self) -> Result<()> {
        let mut outcome = Ok(());
        for bucket in self.directory.known_buckets() {
            let mut state = bucket.lock();
            let mut mine = Vec::new();
            for (encoded, line) in &state.lines {
                let own = line.iter().filter(|known| known.ticket.key.session == self.id);
                mine.extend(own.map(|known| (Arc::clone(encoded), known.ticket)));
            }
            for (encoded, ticket) in mine {
                if let Err(error) = bucket.remove(&self.directory, &mut state, "close", &encoded, &ticket) {
                    outcome = Err(error);
                }
            }
        }
        outcome
    }

    /// Ends the session as a crash would: nothing is cleaned up, the kernel drops the lock.
    pub(super) fn drop_session(&self) {
        let _ = self.over.set(Loss::Closed);
        self.directory.own_sessions.disown(self.id);
        *self.file.lock() = None;
        // The kernel does not notify waiters in this process of its own tickets.
        for bucket in self.directory.known_buckets() {
            bucket.lock().disown(self.id);
        }
        self.bell.ring();
    }

    fn close(&self) -> Result<()> {
        let _ = self.over.set(Loss::Closed);
        let removed = self.remove_tickets();
        if self.file.lock().is_some() {
            let name = session_name(self.id);
            let unlinked = remove(&self.directory.root.sessions, &name);
            self.drop_session();
            if let Err(errno) = unlinked {
                return Err(fault("close", format_args!("{}/{SESSIONS}/{name}", self.directory.path), errno));
            }
        }
        removed
    }

    /// Looks at every place, and lets other tasks run in between.
    async fn renew(&self, places: Vec<PlaceId>) -> Result<Renewal> {
        let confirmed = self.clock.now();
        if self.over().is_none() && !self.is_linked()? {
            self.removed();
        }
        if self.over().is_some() {
            return Err(own_places::over("renew"));
        }
        let mut gone = Vec::new();
        for (at, place) in places.into_iter().enumerate() {
            if at % STEP == 0 {
                tokio::task::yield_now().await;
            }
            if !self.finds(&place)? {
                gone.push((place, Loss::Removed));
            }
        }
        if !gone.is_empty() {
            self.leave_to_events(&mut gone);
        }
        self.directory.sweep_with_renewal(confirmed);
        Ok(Renewal { gone, ..Renewal::at(confirmed) })
    }

    /// Whether the ticket of a place is there still; if not, its waiters are notified.
    fn finds(&self, place: &PlaceId) -> Result<bool> {
        let (directory, slot) = (&self.directory, EncodedName::of(&place.name));
        let bucket = directory.bucket(slot.bucket);
        let mut state = bucket.lock();
        let ticket = state.line(&slot.encoded).and_then(|line| line.find(self.id, place.request.number));
        let Some(ticket) = ticket else { return Ok(false) };
        let path = bucket.path(&ticket, &slot.encoded);
        let there = directory.exists(&path);
        let there = there.map_err(|errno| fault("renew", format_args!("{}/{path}", directory.path), errno))?;
        if !there {
            bucket.remove(directory, &mut state, "renew", &slot.encoded, &ticket)?;
        }
        Ok(there)
    }

    /// Removes broken places from the list: events report them, with the reason.
    fn leave_to_events(&self, gone: &mut Vec<(PlaceId, Loss)>) {
        let reported = self.reported_breaks.lock();
        let is_unreported = |order: &Break| !reported.contains(&order.grant());
        let breaks = self.directory.breaks_of(self.id).into_iter();
        let broken: Vec<_> = breaks.filter(is_unreported).map(|order| order.place).collect();
        drop(reported);
        let before = gone.len();
        gone.retain(|(place, _)| !broken.contains(place));
        if gone.len() < before {
            self.bell.ring();
        }
    }

    /// The breaks of this session's grants that took effect and were not reported yet.
    fn broken(&self) -> VecDeque<SessionEvent> {
        let mut events = VecDeque::new();
        for order in self.directory.breaks_of(self.id) {
            if !self.finds(&order.place).unwrap_or(true) && self.reported_breaks.lock().insert(order.grant()) {
                events.push_back(SessionEvent::Broken(order.grant(), order.reason));
            }
        }
        events
    }

    fn withdraw(&self, name: &Name, id: RequestId) -> Result<()> {
        let slot = EncodedName::of(name);
        let bucket = self.directory.bucket(slot.bucket);
        let mut withdrawn = self.withdrawn.lock();
        if !withdrawn.contains(&id.number) {
            if withdrawn.len() >= WITHDRAWN {
                withdrawn.pop_front();
            }
            withdrawn.push_back(id.number);
        }
        drop(withdrawn);
        // `enter` checks for withdrawn requests under this lock, too.
        let mut state = bucket.lock();
        while let Some(ticket) = state.line(&slot.encoded).and_then(|line| line.find(self.id, id.number)) {
            bucket.remove(&self.directory, &mut state, "cancel", &slot.encoded, &ticket)?;
        }
        Ok(())
    }

    /// The unrequested events of the session file.
    pub(super) fn events(self: &Arc<Self>) -> BoxStream<'static, SessionEvent> {
        let path = format!("{}/{SESSIONS}/{}", self.directory.path, session_name(self.id));
        // Without a watch, renewals notice.
        let subscription = watch(&path, Interest::Touch, &self.bell);
        let start = (Arc::downgrade(self), Arc::clone(&self.bell), VecDeque::new(), subscription);
        Box::pin(futures_util::stream::unfold(start, |(open, bell, mut broken, subscription)| async move {
            if let Some(event) = broken.pop_front() {
                return Some((event, (open, bell, broken, subscription)));
            }
            bell.rung().await;
            let core = open.upgrade()?;
            // After an error, the renewal asks again.
            if core.over().is_none() && !core.is_linked().unwrap_or(true) {
                core.removed();
            }
            if let Some(loss) = core.over() {
                // Reported once.
                return (loss != Loss::Closed)
                    .then_some((SessionEvent::Over, (Weak::new(), bell, broken, subscription)));
            }
            broken = core.broken();
            let event = broken.pop_front().unwrap_or(SessionEvent::Doubtful);
            Some((event, (open, bell, broken, subscription)))
        }))
    }
}

impl Drop for SessionCore {
    fn drop(&mut self) {
        if self.file.lock().is_some() {
            self.drop_session();
        }
    }
}

/// Makes the session file under a temporary name, and gives it its own once it is locked: no process sees it unlocked while its owner lives.
fn make_session_file(directory: &Directory, name: &str, text: &str, inherit: bool) -> rustix::io::Result<OwnedFd> {
    let sessions = &directory.root.sessions;
    let modes = directory.root.modes;
    let temporary = temporary_name();
    let mut flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW;
    if !inherit {
        flags |= OFlags::CLOEXEC;
    }
    let file = rustix::fs::openat(sessions, temporary.as_str(), flags, modes.file)?;
    let temporary = Temporary(sessions, temporary);
    let named = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
        .and_then(|()| modes.apply(&file, modes.file))
        .and_then(|()| write_all(&file, text.as_bytes()))
        .and_then(|()| rustix::fs::renameat(sessions, temporary.1.as_str(), sessions, name));
    named.map(|()| file)
}

impl Session for FileSession {
    fn over(&self) -> Option<Loss> {
        self.0.over()
    }

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        Box::pin(enter::enter(&self.0, entry))
    }

    fn answers_inline(&self) -> bool {
        // A directory on a file server, whose calls may hang, was refused.
        true
    }

    fn withdraw<'a>(&'a self, name: &'a Name, id: RequestId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.0.withdraw(name, id) })
    }

    fn renew<'a>(&'a self, places: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>> {
        Box::pin(self.0.renew(places.all()))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.0.close() })
    }
}
