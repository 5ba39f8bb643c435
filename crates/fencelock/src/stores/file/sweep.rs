//! What dead processes left behind, removed whenever somebody opens the directory.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Mode};

use super::directory::Directory;
use super::files::READ_DIRECTORY;
use super::layout::{BUCKETS, TEMPORARY};
use super::lives::session_name;
use super::platform;
use super::show::modified;
use super::ticket::{Ticket, parse_base32};

/// How old a half-made file is when nobody can be about to finish it.
const ABANDONED: Duration = Duration::from_secs(60);

impl Directory {
    /// Removes dead sessions: first their tickets, then their files, so that no crash in between leaves a ticket whose
    /// session nobody finds. Errors are left to whoever meets them with a purpose.
    pub(super) fn sweep(&self) -> rustix::io::Result<()> {
        let mut sessions = Vec::new();
        platform::list(&self.root.sessions, |name| sessions.extend(parse_base32(name, 13)))?;
        let mut dead = HashSet::new();
        for session in sessions {
            if !self.lives.is_own(session) && !self.is_alive(session)? {
                dead.insert(session);
            }
        }
        if !dead.is_empty() {
            for bucket in self.buckets_on_disk()? {
                self.sweep_bucket(bucket, &mut dead)?;
            }
        }
        for session in dead {
            let _ = rustix::fs::unlinkat(&self.root.sessions, session_name(session).as_str(), AtFlags::empty());
        }
        self.sweep_half_made_sessions()?;
        sweep_temporary(&self.root.fd)?;
        sweep_temporary(&rustix::fs::openat(&self.root.fd, BUCKETS, READ_DIRECTORY, Mode::empty())?)
    }

    /// A half-made session file that nobody has locked is abandoned; an owner that was about to lock it makes another.
    fn sweep_half_made_sessions(&self) -> rustix::io::Result<()> {
        for name in temporary_names(&self.root.sessions)? {
            if !self.is_locked(&name)? {
                let _ = rustix::fs::unlinkat(&self.root.sessions, name.as_str(), AtFlags::empty());
            }
        }
        Ok(())
    }

    /// A session with a ticket that cannot be removed is taken out of `dead`: its file stays for a later sweep.
    fn sweep_bucket(&self, bucket: u16, dead: &mut HashSet<u64>) -> rustix::io::Result<()> {
        let mut left = Vec::new();
        self.list_bucket(bucket, |file| {
            if let Some((_, ticket)) = Ticket::parse(file)
                && dead.contains(&ticket.key.session)
            {
                left.push((ticket.key.session, file.to_owned()));
            }
        })?;
        for (session, file) in left {
            if self.remove(&format!("{}/{file}", Self::bucket_path(bucket))).is_err() {
                dead.remove(&session);
            }
        }
        Ok(())
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
