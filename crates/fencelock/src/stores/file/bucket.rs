//! A bucket: a directory of tickets, its short lock, and this process's view of the queues in it.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;

use super::ceiling::unlock;
use super::directory::Directory;
use super::enter::Patience;
use super::fault::fault;
use super::files::{self, READ_DIRECTORY, make_directory};
use super::layout::identity;
use super::line::{KnownContender, KnownQueue};
use super::linux;
use super::ticket::Ticket;
use super::watch::Rung;
use crate::error::Result;
use crate::kit::waking_lock::{Locked, WakingLock};

/// A bucket of one directory, shared by all sessions of this process.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) index: u16,
    state: WakingLock<BucketState>,
}

/// The view of a bucket. Held only for short system calls, never over an await.
#[derive(Debug, Default)]
pub(super) struct BucketState {
    /// The open directory, and its identity.
    open: Option<(Arc<OwnedFd>, (u64, u64))>,
    /// The last number of the bucket when `lines` was complete: no ticket has arrived while the number is still the last.
    pub(super) seen: Option<u64>,
    /// Every queue with a known place in it.
    pub(super) lines: HashMap<Arc<str>, KnownQueue>,
    /// Rung once the state is unlocked.
    rung: Rung,
}

impl AsMut<Rung> for BucketState {
    fn as_mut(&mut self) -> &mut Rung {
        &mut self.rung
    }
}

/// The bucket's lock among processes, given back on drop.
#[derive(Debug)]
pub(super) struct BucketLock(pub(super) Arc<OwnedFd>);

impl Drop for BucketLock {
    fn drop(&mut self) {
        unlock(&self.0);
    }
}

impl Bucket {
    pub(super) fn new(index: u16) -> Self {
        Self { index, state: WakingLock::default() }
    }

    pub(super) fn lock(&self) -> Locked<'_, BucketState> {
        self.state.lock()
    }

    /// The state, unless another thread has locked it.
    pub(super) fn lock_now(&self) -> Option<Locked<'_, BucketState>> {
        self.state.lock_now()
    }

    /// Where a ticket is, from the root of the store.
    pub(super) fn path(&self, ticket: &Ticket, encoded: &str) -> String {
        format!("{}/{}", Directory::bucket_path(self.index), ticket.file_name(encoded))
    }

    /// Removes one ticket, and notifies its waiters; returns whether the ticket was there.
    pub(super) fn remove(
        &self,
        directory: &Directory,
        state: &mut BucketState,
        operation: &'static str,
        encoded: &str,
        ticket: &Ticket,
    ) -> Result<bool> {
        let path = self.path(ticket, encoded);
        let removed = directory.remove(&path);
        let removed = removed.map_err(|errno| fault(operation, format_args!("{}/{path}", directory.path), errno))?;
        if let (false, Some((fd, _))) = (removed, &state.open) {
            // Another user may have renamed the bucket, and may give it its name back.
            let _ = files::remove(fd, &ticket.file_name(encoded));
        }
        state.depart(encoded, ticket);
        Ok(removed)
    }

    /// Tries to take the lock among processes. `None` while another process has it, or if the path names another directory: the next try opens that.
    pub(super) fn try_lock(
        &self,
        directory: &Directory,
        state: &mut BucketState,
    ) -> rustix::io::Result<Option<BucketLock>> {
        let (fd, identity) = state.open(directory, self.index)?;
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(errno),
        }
        let lock = BucketLock(fd);
        if !directory.leads_to(&Directory::bucket_path(self.index), identity)? {
            state.forget_directory();
            return Ok(None);
        }
        Ok(Some(lock))
    }

    /// Does `step` under the lock, once no other process has it.
    pub(super) async fn locked<T>(
        &self,
        directory: &Directory,
        operation: &'static str,
        patience: &mut Patience<'_>,
        step: impl FnOnce(&mut BucketState, &BucketLock) -> Result<T>,
    ) -> Result<T> {
        let path = Directory::bucket_path(self.index);
        loop {
            {
                let mut state = self.lock();
                let lock = self.try_lock(directory, &mut state);
                let failed = |errno| fault(operation, format_args!("{}/{path}", directory.path), errno);
                if let Some(lock) = lock.map_err(failed)? {
                    return step(&mut state, &lock);
                }
            }
            if !patience.lasts().await {
                return Err(directory.stuck(operation, &path));
            }
        }
    }

    /// Lists the bucket under its lock; `false` while another process has the lock.
    pub(super) fn relist(&self, directory: &Directory, state: &mut BucketState) -> rustix::io::Result<bool> {
        let Some(lock) = self.try_lock(directory, state)? else { return Ok(false) };
        let last = directory.last_number(self.index)?;
        state.relist(directory, &lock.0, last).map(|()| true)
    }
}

impl BucketState {
    /// The queue of `encoded`, if it has known contenders.
    pub(super) fn line(&mut self, encoded: &str) -> Option<&mut KnownQueue> {
        self.lines.get_mut(encoded)
    }

    pub(super) fn line_or_new(&mut self, encoded: &Arc<str>) -> &mut KnownQueue {
        self.lines.entry(Arc::clone(encoded)).or_default()
    }

    /// Removes one ticket from the known ones, and notifies its waiters.
    pub(super) fn depart(&mut self, encoded: &str, ticket: &Ticket) {
        if let Some(line) = self.lines.get_mut(encoded) {
            line.depart(ticket, &mut self.rung);
            if line.is_empty() {
                self.lines.remove(encoded);
            }
        }
    }

    /// Notifies the waiter of this ticket of its grant.
    pub(super) fn tell_of_grant(&mut self, encoded: &str, ticket: &Ticket) {
        if let Some(known) = self.lines.get_mut(encoded).and_then(|line| line.get_mut(ticket)) {
            known.ring(&mut self.rung);
        }
    }

    /// Treats the places of one session as another process's, and makes their waiters look.
    pub(super) fn disown(&mut self, session: u64) {
        for line in self.lines.values_mut() {
            line.disown(session, &mut self.rung);
        }
    }

    /// Makes the next use open the directory anew and list it.
    pub(super) fn forget_directory(&mut self) {
        (self.open, self.seen) = (None, None);
    }

    fn open(&mut self, directory: &Directory, index: u16) -> rustix::io::Result<(Arc<OwnedFd>, (u64, u64))> {
        if let Some(open) = &self.open {
            return Ok(open.clone());
        }
        let fd = directory.open_bucket(index)?;
        let identity = identity(&rustix::fs::fstat(&fd)?);
        let open = (Arc::new(fd), identity);
        self.open = directory.keeps_descriptor().then(|| open.clone());
        Ok(open)
    }

    /// Lists the bucket under its lock, and keeps the list. `last` is the last number drawn.
    pub(super) fn relist(&mut self, directory: &Directory, fd: &OwnedFd, last: u64) -> rustix::io::Result<()> {
        #[cfg(test)]
        super::tests::count(&directory.counts.listings);
        let mut listed: HashMap<Arc<str>, Vec<KnownContender>> = HashMap::new();
        let mut abandoned = Vec::new();
        linux::list(fd, |file| {
            let Some((encoded, ticket)) = Ticket::parse(file) else { return };
            let known = KnownContender::new(ticket, directory.own_sessions.is_own(ticket.key.session));
            // A place of ours that ended while the bucket had another name, or that a backup brought back.
            if known.local && !self.lines.get(encoded).is_some_and(|line| line.has(&ticket)) {
                return abandoned.push(file.to_owned());
            }
            match listed.get_mut(encoded) {
                Some(line) => line.push(known),
                None => {
                    let key = self.lines.get_key_value(encoded).map_or_else(|| encoded.into(), |(key, _)| key.clone());
                    listed.insert(key, vec![known]);
                }
            }
        })?;
        abandoned.iter().try_for_each(|file| files::remove(fd, file).map(drop))?;
        self.lines.retain(|encoded, line| {
            line.replace(listed.remove(encoded).unwrap_or_default(), &mut self.rung);
            !line.is_empty()
        });
        for (encoded, known) in listed {
            self.lines.entry(encoded).or_default().replace(known, &mut self.rung);
        }
        self.seen = Some(last);
        Ok(())
    }

    /// Removes the tickets of dead sessions from one queue, and from the remembered contenders.
    pub(super) fn remove_dead(&mut self, directory: &Directory, bucket: &Bucket, encoded: &str, dead: &HashSet<u64>) {
        let Some(line) = self.lines.get_mut(encoded) else { return };
        for ticket in line.depart_sessions(dead, &mut self.rung) {
            // A ticket that cannot be removed is dead nonetheless.
            let _ = directory.remove(&bucket.path(&ticket, encoded));
        }
        if line.is_empty() {
            self.lines.remove(encoded);
        }
    }
}

impl Directory {
    /// Opens a bucket's directory, and makes it if it is not there.
    fn open_bucket(&self, index: u16) -> rustix::io::Result<OwnedFd> {
        let path = Self::bucket_path(index);
        let open = || rustix::fs::openat(&self.root.fd, path.as_str(), READ_DIRECTORY, Mode::empty());
        match open() {
            Err(Errno::NOENT) => {
                let parent = rustix::fs::openat(&self.root.fd, super::layout::BUCKETS, READ_DIRECTORY, Mode::empty())?;
                let modes = self.root.modes;
                make_directory(&parent, &path[path.len() - 3..], modes, modes.directory)?;
                open()
            }
            opened => opened,
        }
    }

    /// Where a bucket's directory is, from the root of the store.
    pub(super) fn bucket_path(index: u16) -> String {
        format!("{}/{index:03x}", super::layout::BUCKETS)
    }

    /// Whether there is anything at this path, from the root of the store.
    pub(super) fn exists(&self, path: &str) -> rustix::io::Result<bool> {
        #[cfg(test)]
        super::tests::count(&self.counts.tickets_looked_for);
        files::exists(&self.root.fd, path)
    }

    /// Removes a ticket. Returns whether the ticket was there.
    pub(super) fn remove(&self, path: &str) -> rustix::io::Result<bool> {
        files::remove(&self.root.fd, path)
    }
}
