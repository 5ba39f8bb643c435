//! Removes the leftovers of dead processes, at every opening of the directory and now and then with renewals.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Mode};

use super::directory::Directory;
use super::files::READ_DIRECTORY;
use super::layout::{BUCKETS, TEMPORARY};
use super::linux;
use super::sessions::session_name;
use super::show::modified;
use super::ticket::{Ticket, parse_hex};
use crate::time::Moment;

/// The age of a half-made file that no process can be about to finish.
const ABANDONED: Duration = Duration::from_secs(60);
/// The interval of clean-ups in a process that only renews.
const SEARCHES: Duration = Duration::from_secs(60);
/// How many sessions one clean-up tests.
const TESTED: usize = 64;
/// The most tickets that one clean-up removes, in some milliseconds.
const REMOVED: usize = 1000;

impl Directory {
    /// Cleans up before a session is opened. Files that cannot be cleaned up stay: in a shared directory, a file of one user must not
    /// keep other users from opening it.
    pub(super) fn sweep(&self) {
        let _ = self.remove_dead();
        let _ = sweep_temporary(&self.root.fd);
        let _ = sweep_temporary(&self.root.sessions);
        let buckets = rustix::fs::openat(&self.root.fd, BUCKETS, READ_DIRECTORY, Mode::empty());
        let _ = buckets.and_then(|buckets| sweep_temporary(&buckets));
    }

    /// Removes the dead, each minute, and with the next renewal if some are left.
    pub(super) fn sweep_with_renewal(&self, now: Moment) {
        let mut due = self.sweep_at.lock();
        if due.is_none_or(|at| now >= at) {
            *due = self.remove_dead().unwrap_or(true).then(|| now.after(SEARCHES));
        }
    }

    /// Removes some dead sessions: their tickets, and then their files, so that no crash in between leaves a ticket whose session no
    /// process finds. The search begins at a random session, so that simultaneous openings test different ones. Returns `false` if tickets
    /// of these dead are left.
    fn remove_dead(&self) -> rustix::io::Result<bool> {
        let mut sessions = Vec::new();
        linux::list(&self.root.sessions, |name| sessions.extend(parse_hex(name, 16)))?;
        sessions.retain(|session| !self.own_sessions.is_own(*session));
        sessions.sort_unstable();
        let first = sessions.partition_point(|session| *session <= getrandom::u64().unwrap_or_default());
        sessions.rotate_left(first);
        sessions.truncate(TESTED);
        let dead: HashSet<u64> =
            sessions.into_iter().filter(|session| !self.is_alive(*session).unwrap_or(true)).collect();
        if dead.is_empty() {
            return Ok(true);
        }
        let (mut removed, mut kept) = (0, HashSet::new());
        for bucket in self.buckets_on_disk()? {
            let mut found = Vec::new();
            let listed = self.list_bucket(bucket, |file| {
                let session = Ticket::parse(file).map(|(_, ticket)| ticket.key.session);
                found
                    .extend(session.filter(|session| dead.contains(session)).map(|session| (session, file.to_owned())));
            });
            if listed.is_err() {
                // A bucket may hold tickets of all of them.
                kept.clone_from(&dead);
            }
            for (session, file) in found {
                match self.remove(&format!("{}/{file}", Self::bucket_path(bucket))) {
                    Ok(_) => removed += 1,
                    Err(_) => drop(kept.insert(session)),
                }
                if removed == REMOVED {
                    return Ok(false);
                }
            }
        }
        for session in dead.difference(&kept) {
            let _ = rustix::fs::unlinkat(&self.root.sessions, session_name(*session).as_str(), AtFlags::empty());
        }
        Ok(true)
    }
}

pub(super) fn sweep_temporary(directory: &OwnedFd) -> rustix::io::Result<()> {
    let mut names = Vec::new();
    linux::list(directory, |name| names.extend(name.starts_with(TEMPORARY).then(|| name.to_owned())))?;
    for name in names {
        let Ok(stat) = rustix::fs::statat(directory, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let age = modified(&stat).and_then(|made| SystemTime::now().duration_since(made).ok());
        if age.is_some_and(|age| age > ABANDONED) {
            let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
            let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            let _ = rustix::fs::unlinkat(directory, name.as_str(), flags);
        }
    }
    Ok(())
}
