//! Who is alive: a session is, as long as its file is there and locked by its owner.
//!
//! Others test with a *shared* lock through a read-only descriptor: two testers never take each other for the owner,
//! and their closing is not the event that the owner's closing is.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use tokio::runtime::Id;

use super::directory::Directory;
use super::files::open_file;
use super::layout::SESSIONS;
use super::line::{KnownContender, KnownQueue};
use super::platform::Interest;
use super::ticket::{Ticket, base32};
use super::watch::{Subscription, Watching, this_runtime, watch};
use crate::kit::bell::Bell;
use crate::kit::record::{self, Identity};
use crate::queue::Claim;
use crate::store::Owner;

/// The file name of a session.
pub(super) fn session_name(session: u64) -> String {
    base32(session, 13)
}

/// Sessions of other processes, by the runtime on which somebody relies on them.
type Others = HashMap<(Option<Id>, u64), Arc<Life>>;

/// What this process knows of sessions.
#[derive(Debug, Default)]
pub(super) struct Lives {
    /// Those of this process, and whose client they are.
    own: Mutex<HashMap<u64, u64>>,
    others: Mutex<Others>,
}

/// A session of another process that somebody on one runtime relies on.
#[derive(Debug)]
struct Life {
    bell: Arc<Bell>,
    subscription: Option<Subscription>,
    /// Set by the first event at its file, for good: from then on only tests count.
    doubtful: AtomicBool,
}

/// The answer to [`Lives::rely_on`].
#[derive(Debug)]
pub(super) enum Reliance {
    /// It is over.
    Dead,
    /// It is alive, and the bell will ring when that may have changed.
    Told(Subscription),
    /// It is alive, but its end may be near, or nobody will tell: test again soon.
    Doubtful(Option<Subscription>),
}

/// How many sessions are remembered before those that ended are forgotten.
const REMEMBERED: usize = 256;

impl Lives {
    fn own(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the session belongs to this process.
    pub(super) fn is_own(&self, session: u64) -> bool {
        self.own().contains_key(&session)
    }

    /// The sessions that this process has for a client.
    pub(super) fn of_client(&self, client: u64) -> Vec<u64> {
        self.own().iter().filter(|(_, whose)| **whose == client).map(|(session, _)| *session).collect()
    }

    pub(super) fn adopt(&self, session: u64, client: u64) {
        self.own().insert(session, client);
    }

    pub(super) fn disown(&self, session: u64) {
        self.own().remove(&session);
    }

    /// Arranges for `bell` to ring when the session of another process ends.
    pub(super) fn rely_on(&self, directory: &Directory, session: u64, bell: &Arc<Bell>) -> Reliance {
        let (life, is_new) = self.life(directory, session);
        if is_new || life.bell.take() {
            life.doubtful.fetch_or(!is_new, Ordering::AcqRel);
        } else if !life.doubtful.load(Ordering::Acquire)
            && let Some(subscription) = life.subscription.as_ref().and_then(|watched| watched.also(bell))
        {
            return Reliance::Told(subscription);
        }
        let subscription = life.subscription.as_ref().and_then(|watched| watched.also(bell));
        if !directory.is_alive(session).unwrap_or(true) {
            self.forget(session);
            return Reliance::Dead;
        }
        // The event may have come before our bell was there, and the lock lingers after it.
        if life.bell.take() {
            life.doubtful.store(true, Ordering::Release);
        }
        match subscription {
            Some(subscription) if !life.doubtful.load(Ordering::Acquire) => Reliance::Told(subscription),
            doubtful => Reliance::Doubtful(doubtful),
        }
    }

    fn forget(&self, session: u64) {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, other), _| *other != session);
    }

    fn life(&self, directory: &Directory, session: u64) -> (Arc<Life>, bool) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (this_runtime(), session);
        if let Some(life) = others.get(&key)
            && !life.subscription.as_ref().is_some_and(Subscription::is_blind)
        {
            return (Arc::clone(life), false);
        }
        if others.len() >= REMEMBERED {
            others.retain(|_, life| Arc::strong_count(life) > 1);
        }
        let bell = Bell::new();
        let path = format!("{}/{SESSIONS}/{}", directory.path, session_name(session));
        let subscription = match watch(&path, Interest::SessionEnd, &bell) {
            Watching::On(subscription) => Some(subscription),
            Watching::Gone | Watching::Blind => None,
        };
        let life = Arc::new(Life { bell, subscription, doubtful: AtomicBool::new(false) });
        others.insert(key, Arc::clone(&life));
        (life, true)
    }
}

/// Who is in a queue by what is known, and is not any more.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Tickets whose files are gone.
    pub(super) gone: Vec<Ticket>,
    /// Sessions that are over.
    pub(super) dead: HashSet<u64>,
}

impl Directory {
    /// Who of those that keep `claim` out at the tail of a queue has left. Looks at no more of them than it takes to be sure
    /// that the others keep it out: of a held mutex at the holder, however many wait.
    pub(super) fn who_left(
        &self,
        line: &KnownQueue,
        claim: Claim,
        path: impl Fn(&Ticket) -> String,
    ) -> rustix::io::Result<Left> {
        let (mut left, mut alive) = (Left::default(), HashSet::new());
        let mut room = claim.capacity() - claim.weight();
        for KnownContender { ticket, local, .. } in line.in_the_way(claim) {
            let session = ticket.key.session;
            if left.dead.contains(&session) {
                continue;
            }
            if !local && !alive.contains(&session) && !self.is_alive(session)? {
                left.dead.insert(session);
                continue;
            }
            alive.insert(session);
            if !local && !self.exists(&path(ticket))? {
                left.gone.push(*ticket);
                continue;
            }
            let fits = ticket.claim.capacity() == claim.capacity();
            match room.checked_sub(ticket.claim.weight()).filter(|_| fits) {
                Some(rest) => room = rest,
                None => break,
            }
        }
        Ok(left)
    }

    /// Tests whether a session of another process is alive.
    pub(super) fn is_alive(&self, session: u64) -> rustix::io::Result<bool> {
        #[cfg(test)]
        self.sessions_tested.fetch_add(1, Ordering::SeqCst);
        self.is_locked(&session_name(session))
    }

    /// Whether a file among the session files is there and locked by its owner.
    pub(super) fn is_locked(&self, name: &str) -> rustix::io::Result<bool> {
        let file = match self.opening(|| open_file(&self.root.sessions, name, OFlags::RDONLY)) {
            Ok(file) => file,
            // Nothing that an owner could have locked.
            Err(Errno::NOENT | Errno::NXIO) => return Ok(false),
            // Its owner keeps others from opening it, and so lives; or it may, for all that this user can find out.
            Err(Errno::WOULDBLOCK | Errno::ACCESS | Errno::PERM) => return Ok(true),
            Err(errno) => return Err(errno),
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false),
            Err(Errno::WOULDBLOCK) => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    /// Who a session belongs to, if its file is there and tells.
    pub(super) fn owner(&self, session: u64) -> Option<Owner> {
        let text = super::files::read(&self.root.sessions, &session_name(session)).ok()??;
        record::read::<Identity<'_>>(text.as_bytes())?.owner()
    }
}
