//! The living sessions: a session lives as long as its file is there and locked by its owner.
//!
//! Others test with a *shared* lock through a read-only descriptor: two testers never take each other for the owner,
//! and the closing of a tester's descriptor notifies no waiter.

use std::collections::{HashMap, HashSet};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use super::directory::Directory;
use super::files::open_file;
use super::line::KnownQueue;
use crate::kit::record::{self, Identity};
use crate::store::Owner;
use crate::sync::Mutex;

/// The file name of a session.
pub(super) fn session_name(session: u64) -> String {
    format!("{session:016x}")
}

/// The sessions of this process, and whose client they are.
#[derive(Debug, Default)]
pub(super) struct OwnSessions(Mutex<HashMap<u64, u64>>);

impl OwnSessions {
    /// Whether the session belongs to this process.
    pub(super) fn is_own(&self, session: u64) -> bool {
        self.0.lock().contains_key(&session)
    }

    /// The client of a session of this process.
    pub(super) fn client(&self, session: u64) -> Option<u64> {
        self.0.lock().get(&session).copied()
    }

    pub(super) fn adopt(&self, session: u64, client: u64) {
        self.0.lock().insert(session, client);
    }

    pub(super) fn disown(&self, session: u64) {
        self.0.lock().remove(&session);
    }
}

impl Directory {
    /// Which sessions of other processes with a place in a queue are dead.
    pub(super) fn dead_in(&self, line: &KnownQueue) -> rustix::io::Result<HashSet<u64>> {
        let others: HashSet<u64> =
            line.iter().filter(|known| !known.local).map(|known| known.ticket.key.session).collect();
        let mut dead = HashSet::new();
        for session in others {
            if !self.is_alive(session)? {
                dead.insert(session);
            }
        }
        Ok(dead)
    }

    /// Tests whether a session of another process is alive: whether its file is there and locked by its owner.
    pub(super) fn is_alive(&self, session: u64) -> rustix::io::Result<bool> {
        #[cfg(test)]
        super::tests::count(&self.counts.sessions_tested);
        let file = match open_file(&self.root.sessions, &session_name(session), OFlags::RDONLY) {
            Ok(file) => file,
            // There is no file that an owner could have locked.
            Err(Errno::NOENT | Errno::NXIO) => return Ok(false),
            // The owner prevents other users from opening the file, so it lives. Or this user may not open the file, and the owner counts as alive.
            Err(Errno::WOULDBLOCK | Errno::ACCESS | Errno::PERM) => return Ok(true),
            Err(errno) => return Err(errno),
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false),
            Err(Errno::WOULDBLOCK) => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    /// The owner of a session, if its file is there and names one.
    pub(super) fn owner(&self, session: u64) -> rustix::io::Result<Option<Owner>> {
        let text = super::files::read(&self.root.sessions, &session_name(session))?;
        Ok(text.and_then(|text| record::read::<Identity<'_>>(&text)?.owner()))
    }
}
