//! What dead processes left behind, removed a bounded number at a time: at every opening of the directory, and with
//! renewals.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Mode};

use super::directory::Directory;
use super::files::READ_DIRECTORY;
use super::layout::{BUCKETS, TEMPORARY};
use super::lives::session_name;
use super::platform;
use super::show::modified;
use super::ticket::{Ticket, parse_base32};
use crate::kit::bucket;
use crate::time::Moment;

/// How old a half-made file is when nobody can be about to finish it.
const ABANDONED: Duration = Duration::from_secs(60);

/// How often a process looks for the dead while it does nothing but renew: listing the sessions takes long where there are
/// thousands.
const SEARCHES: Duration = Duration::from_secs(60);

/// How much is looked at before others go on: places, sessions, buckets, or contenders that are gone.
pub(super) const STEP: usize = 64;
/// How many tickets of dead sessions one step removes: some milliseconds. The others are out of everybody's way all the same.
pub(super) const REMOVED: usize = 1000;

/// How far this process has come.
#[derive(Debug, Default)]
pub(super) struct Janitor {
    /// When the next search of a process that only renews is due.
    search_at: Option<Moment>,
    /// The last session that was tested: the next go tests those behind it.
    tested: Option<u64>,
    /// Dead sessions whose tickets are being removed, and the bucket where that goes on.
    dead: HashSet<u64>,
    next_bucket: u16,
    /// Those of them with a ticket that cannot be removed: their files stay.
    left: HashSet<u64>,
}

impl Directory {
    /// Cleans up before a session is opened. What cannot be cleaned up stays: in a directory that others use, one file of
    /// somebody else's must not keep everybody from opening it.
    pub(super) fn sweep(&self) {
        let _ = self.tidy_up(usize::from(bucket::BUCKETS));
        let _ = self.sweep_half_made_sessions();
        let _ = sweep_temporary(&self.root.fd);
        let buckets = rustix::fs::openat(&self.root.fd, BUCKETS, READ_DIRECTORY, Mode::empty());
        let _ = buckets.and_then(|buckets| sweep_temporary(&buckets));
    }

    /// Goes on with the dead that are known, and looks for more now and then. What cannot be cleaned up stays, as above.
    pub(super) fn sweep_with_renewal(&self, now: Moment) {
        let mut janitor = self.janitor();
        if janitor.dead.is_empty() {
            if janitor.search_at.is_some_and(|at| now < at) {
                return;
            }
            janitor.search_at = Some(now.after(SEARCHES));
        }
        drop(janitor);
        let _ = self.tidy_up(STEP);
    }

    /// Removes dead sessions, listing so many buckets at most: first their tickets, then their files, so that no crash in
    /// between leaves a ticket whose session nobody finds.
    fn tidy_up(&self, most: usize) -> rustix::io::Result<()> {
        let mut janitor = self.janitor();
        if janitor.dead.is_empty() {
            self.find_dead(&mut janitor)?;
        }
        if janitor.dead.is_empty() {
            return Ok(());
        }
        let mut buckets = self.buckets_on_disk()?;
        buckets.retain(|bucket| *bucket >= janitor.next_bucket);
        let mut room = REMOVED;
        for (listed, bucket) in buckets.into_iter().enumerate() {
            janitor.next_bucket = bucket;
            if listed == most {
                return Ok(());
            }
            self.sweep_bucket(bucket, &mut janitor, &mut room);
            if room == 0 {
                // More may be left in this bucket.
                return Ok(());
            }
        }
        janitor.next_bucket = 0;
        let left = std::mem::take(&mut janitor.left);
        for session in std::mem::take(&mut janitor.dead).difference(&left) {
            let _ = rustix::fs::unlinkat(&self.root.sessions, session_name(*session).as_str(), AtFlags::empty());
        }
        Ok(())
    }

    fn janitor(&self) -> MutexGuard<'_, Janitor> {
        self.janitor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tests some more sessions of others. It begins anywhere, so that those who open the directory
    /// at the same time do not all test the same ones.
    fn find_dead(&self, janitor: &mut Janitor) -> rustix::io::Result<()> {
        let mut sessions = Vec::new();
        platform::list(&self.root.sessions, |name| sessions.extend(parse_base32(name, 13)))?;
        sessions.retain(|session| !self.lives.is_own(*session));
        sessions.sort_unstable();
        let tested = janitor.tested.unwrap_or_else(|| getrandom::u64().unwrap_or_default());
        let first = sessions.partition_point(|session| *session <= tested);
        sessions.rotate_left(first);
        for session in sessions.into_iter().take(STEP) {
            janitor.tested = Some(session);
            if !self.is_alive(session).unwrap_or(true) {
                janitor.dead.insert(session);
            }
        }
        Ok(())
    }

    /// A half-made session file that nobody has locked is abandoned; an owner that was about to lock it makes another.
    fn sweep_half_made_sessions(&self) -> rustix::io::Result<()> {
        for name in temporary_names(&self.root.sessions)? {
            if !self.is_locked(&name).unwrap_or(true) {
                let _ = rustix::fs::unlinkat(&self.root.sessions, name.as_str(), AtFlags::empty());
            }
        }
        Ok(())
    }

    /// Removes tickets of the dead from one bucket, `room` of them at most, and takes them off that. A bucket that cannot be
    /// listed may hold tickets of all of them.
    fn sweep_bucket(&self, bucket: u16, janitor: &mut Janitor, room: &mut usize) {
        // Where one ticket of a session cannot be removed, the others of it here are not tried: there may be thousands.
        let mut refused = HashSet::new();
        let mut is_more = true;
        while is_more && *room > 0 {
            let Ok(found) = self
                .find_tickets(bucket, *room, |session| janitor.dead.contains(&session) && !refused.contains(&session))
            else {
                janitor.left.clone_from(&janitor.dead);
                return;
            };
            is_more = found.len() == *room;
            for (session, file) in found {
                if !refused.contains(&session) {
                    match self.remove(&format!("{}/{file}", Self::bucket_path(bucket))) {
                        Ok(_) => *room -= 1,
                        Err(_) => drop(refused.insert(session)),
                    }
                }
            }
        }
        janitor.left.extend(refused);
    }

    /// The first `most` tickets in a bucket whose sessions are wanted. It lists no more than it takes to find them.
    fn find_tickets(
        &self,
        bucket: u16,
        most: usize,
        is_wanted: impl Fn(u64) -> bool,
    ) -> rustix::io::Result<Vec<(u64, String)>> {
        let mut found = Vec::new();
        self.list_bucket_until(bucket, |file| {
            let session = Ticket::parse(file).map(|(_, ticket)| ticket.key.session);
            found.extend(session.filter(|session| is_wanted(*session)).map(|session| (session, file.to_owned())));
            if found.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }
}

fn temporary_names(directory: &OwnedFd) -> rustix::io::Result<Vec<String>> {
    let mut found = Vec::new();
    platform::list(directory, |name| found.extend(name.starts_with(TEMPORARY).then(|| name.to_owned())))?;
    Ok(found)
}

fn sweep_temporary(directory: &OwnedFd) -> rustix::io::Result<()> {
    for name in temporary_names(directory)? {
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
