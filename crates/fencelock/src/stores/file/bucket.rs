//! One bucket: a directory of tickets, its short lock, and what this process knows of the queues in it.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, FlockOperation, Mode};
use rustix::io::Errno;

use super::ceiling::unlock;
use super::directory::Directory;
use super::files::{READ_DIRECTORY, make_directory};
use super::line::{KnownContender, KnownQueue};
use super::lives::Left;
use super::platform;
use super::sweep::REMOVED;
use super::ticket::Ticket;
use super::watch::Rung;
use crate::kit::waking_lock::{self, WakingLock};
use crate::queue::Claim;

/// A bucket of one directory, shared by all sessions of this process.
#[derive(Debug)]
pub(super) struct Bucket {
    index: u16,
    state: WakingLock<BucketState>,
}

/// The state, locked.
pub(super) type Locked<'a> = waking_lock::Locked<'a, BucketState>;

/// What is known of a bucket. Held only for short system calls, never over an await.
#[derive(Debug, Default)]
pub(super) struct BucketState {
    fd: Option<Arc<OwnedFd>>,
    /// The last number of the bucket when `lines` was complete: while it is still the last, nobody has arrived since.
    seen: Option<u64>,
    lines: HashMap<Arc<str>, KnownQueue>,
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
pub(super) struct BucketLock(Arc<OwnedFd>);

impl Drop for BucketLock {
    fn drop(&mut self) {
        unlock(&self.0);
    }
}

impl BucketLock {
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.0
    }
}

impl Bucket {
    pub(super) fn new(index: u16) -> Self {
        Self { index, state: WakingLock::default() }
    }

    pub(super) fn index(&self) -> u16 {
        self.index
    }

    /// The state.
    pub(super) fn lock(&self) -> Locked<'_> {
        self.state.lock()
    }

    /// The state, if nobody is at it.
    pub(super) fn lock_now(&self) -> Option<Locked<'_>> {
        self.state.lock_now()
    }

    /// Gives the descriptor back unless the bucket is in use this very moment.
    pub(super) fn close_descriptor(&self) -> bool {
        let Some(mut state) = self.lock_now() else { return false };
        state.forget_directory();
        if !state.lines.values().any(KnownQueue::has_local) {
            state.lines.clear();
        }
        true
    }

    /// Where a ticket is, from the root of the store.
    pub(super) fn path(&self, ticket: &Ticket, encoded: &str) -> String {
        let mut path = Directory::bucket_path(self.index);
        path.push('/');
        path.push_str(&ticket.file_name(encoded));
        path
    }

    /// Tries to take the lock among processes; `None` while another one has it.
    pub(super) fn try_lock(
        &self,
        directory: &Directory,
        state: &mut BucketState,
    ) -> rustix::io::Result<Option<BucketLock>> {
        let fd = state.open(directory, self.index)?;
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(BucketLock(fd))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl BucketState {
    /// The queue of `encoded`, if anybody is known to be in it.
    pub(super) fn line(&mut self, encoded: &str) -> Option<&mut KnownQueue> {
        self.lines.get_mut(encoded)
    }

    pub(super) fn line_or_new(&mut self, encoded: &Arc<str>) -> &mut KnownQueue {
        self.lines.entry(Arc::clone(encoded)).or_default()
    }

    /// Every queue that somebody is known to be in.
    pub(super) fn lines(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut KnownQueue)> {
        self.lines.iter_mut()
    }

    /// Removes one ticket from what is known, and tells its waiters.
    pub(super) fn depart(&mut self, encoded: &str, ticket: &Ticket) {
        if let Some(line) = self.lines.get_mut(encoded) {
            line.depart(ticket, &mut self.rung);
            if line.is_empty() {
                self.lines.remove(encoded);
            }
        }
    }

    /// Tells the waiter of this ticket that it was granted.
    pub(super) fn tell_of_grant(&mut self, encoded: &str, ticket: &Ticket) {
        if let Some(known) = self.lines.get_mut(encoded).and_then(|line| line.get_mut(ticket)) {
            known.ring(&mut self.rung);
        }
    }

    /// Takes the places of one session for those of another process, and tells those that wait for them to look.
    pub(super) fn disown(&mut self, session: u64) {
        for line in self.lines.values_mut() {
            line.disown(session, &mut self.rung);
        }
    }

    /// Makes the next use open the directory anew and list it.
    pub(super) fn forget_directory(&mut self) {
        self.fd = None;
        self.seen = None;
    }

    /// Whether nobody has arrived since everybody was listed, `last` being the last number drawn. Ask under the lock.
    pub(super) fn is_complete(&self, last: u64) -> bool {
        self.seen == Some(last)
    }

    /// Notes that `last` is the last number drawn, and everybody up to it is known.
    pub(super) fn completed(&mut self, last: u64) {
        self.seen = Some(last);
    }

    fn open(&mut self, directory: &Directory, index: u16) -> rustix::io::Result<Arc<OwnedFd>> {
        if let Some(fd) = &self.fd {
            return Ok(Arc::clone(fd));
        }
        let fd = Arc::new(directory.open_bucket(index)?);
        self.fd = Some(Arc::clone(&fd));
        directory.count_descriptor();
        Ok(fd)
    }

    /// Lists the bucket and takes it over. Exact about arrivals only under the lock.
    pub(super) fn relist(&mut self, directory: &Directory, fd: &OwnedFd) -> rustix::io::Result<()> {
        #[cfg(test)]
        directory.listings.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let mut listed: HashMap<Arc<str>, Vec<KnownContender>> = HashMap::new();
        platform::list(fd, |file| {
            let Some((encoded, ticket)) = Ticket::parse(file) else { return };
            let known = KnownContender::new(ticket, directory.lives.is_own(ticket.key.session));
            match listed.get_mut(encoded) {
                Some(line) => line.push(known),
                None => {
                    let key = self.lines.get_key_value(encoded).map_or_else(|| encoded.into(), |(key, _)| key.clone());
                    listed.insert(key, vec![known]);
                }
            }
        })?;
        self.lines.retain(|encoded, line| {
            line.replace(listed.remove(encoded).unwrap_or_default(), &mut self.rung);
            !line.is_empty()
        });
        for (encoded, known) in listed {
            self.lines.entry(encoded).or_default().replace(known, &mut self.rung);
        }
        Ok(())
    }

    /// Takes out of one queue who keeps `claim` out at its tail without being there and alive, and removes tickets of the
    /// dead, a bounded number. Whether a ticket is gone that a lighter one may have replaced: a listing tells. Under the lock.
    pub(super) fn reap(
        &mut self,
        directory: &Directory,
        bucket: &Bucket,
        encoded: &str,
        claim: Claim,
    ) -> rustix::io::Result<bool> {
        let Some(line) = self.lines.get_mut(encoded) else { return Ok(false) };
        let Left { gone, dead } = directory.who_left(line, claim, |ticket| bucket.path(ticket, encoded))?;
        for ticket in &gone {
            line.depart(ticket, &mut self.rung);
        }
        if line.is_empty() {
            self.lines.remove(encoded);
        }
        self.bury(directory, bucket, encoded, &dead, REMOVED);
        Ok(gone.iter().any(Ticket::can_lighten))
    }

    /// Takes what dead sessions have in one queue out of what is known, and removes `most` of their tickets; says how many.
    pub(super) fn bury(
        &mut self,
        directory: &Directory,
        bucket: &Bucket,
        encoded: &str,
        dead: &HashSet<u64>,
        most: usize,
    ) -> usize {
        let Some(line) = self.lines.get_mut(encoded) else { return 0 };
        let departed = line.depart_sessions(dead, &mut self.rung);
        if line.is_empty() {
            self.lines.remove(encoded);
        }
        for ticket in departed.iter().take(most) {
            // A ticket that cannot be removed is dead all the same.
            let _ = directory.remove(&bucket.path(ticket, encoded));
        }
        departed.len().min(most)
    }

    /// Looks without the lock who of one queue is still there. Only departures and lighter claims of places known
    /// before are taken over, for a listing without the lock may miss an arrival.
    pub(super) fn refresh(&mut self, directory: &Directory, bucket: &Bucket, encoded: &str) -> rustix::io::Result<()> {
        #[cfg(test)]
        directory.listings.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let fd = self.open(directory, bucket.index)?;
        self.refresh_by(directory, bucket, encoded, || {
            let mut listed = HashSet::new();
            platform::list(&fd, |file| match Ticket::parse(file) {
                Some((name, ticket)) if name == encoded => {
                    listed.insert(ticket);
                }
                _ => {}
            })?;
            Ok(listed)
        })
    }

    /// The same with a listing of the caller's, each time from the start.
    pub(super) fn refresh_by(
        &mut self,
        directory: &Directory,
        bucket: &Bucket,
        encoded: &str,
        mut list: impl FnMut() -> rustix::io::Result<HashSet<Ticket>>,
    ) -> rustix::io::Result<()> {
        // Of every round: a place whose heavy ticket an earlier round saw go is still a place known before.
        let Some(places) = self.lines.get(encoded).map(KnownQueue::places) else { return Ok(()) };
        // A lighter ticket is made before the heavier one goes. So once a heavy one is seen to be gone, a listing that
        // begins afterwards shows what took its place.
        let mut again = true;
        while std::mem::take(&mut again) {
            let listed = list()?;
            let Some(line) = self.lines.get_mut(encoded) else { return Ok(()) };
            let mut gone = Vec::new();
            for known in line.iter().filter(|known| !listed.contains(&known.ticket)) {
                // The listing is only a hint: a place ends when its file is certainly gone.
                if !directory.exists(&bucket.path(&known.ticket, encoded))? {
                    gone.push(known.ticket);
                }
            }
            for ticket in listed {
                if places.contains(&ticket.key) && !line.has(&ticket) {
                    line.insert(KnownContender::new(ticket, directory.lives.is_own(ticket.key.session)));
                }
            }
            for ticket in gone {
                again |= ticket.can_lighten() && line.get_mut(&ticket).is_some_and(|known| !known.local);
                line.depart(&ticket, &mut self.rung);
            }
            if line.is_empty() {
                self.lines.remove(encoded);
            }
        }
        Ok(())
    }
}

impl Directory {
    /// Opens a bucket's directory, and makes it if it is not there.
    fn open_bucket(&self, index: u16) -> rustix::io::Result<OwnedFd> {
        let path = Self::bucket_path(index);
        let open = || self.opening(|| rustix::fs::openat(&self.root.fd, path.as_str(), READ_DIRECTORY, Mode::empty()));
        match open() {
            Err(Errno::NOENT) => {
                let parent = self.opening(|| {
                    rustix::fs::openat(&self.root.fd, super::layout::BUCKETS, READ_DIRECTORY, Mode::empty())
                })?;
                let modes = self.root.modes;
                self.opening(|| make_directory(&parent, &path[path.len() - 3..], modes, modes.directory))?;
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
        Ok(self.links(path)? > 0)
    }

    /// How many links there are to what is at this path; 0 if nothing is there.
    #[allow(clippy::unnecessary_cast, reason = "the count has another type on other processors")]
    pub(super) fn links(&self, path: &str) -> rustix::io::Result<u64> {
        #[cfg(test)]
        self.tickets_looked_for.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        match rustix::fs::statat(&self.root.fd, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok((stat.st_nlink as u64).max(1)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(0),
            Err(errno) => Err(errno),
        }
    }

    /// Removes a ticket; whether it was there.
    pub(super) fn remove(&self, path: &str) -> rustix::io::Result<bool> {
        match rustix::fs::unlinkat(&self.root.fd, path, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}
