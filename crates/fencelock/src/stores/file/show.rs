//! Reading queues without their lock, for people and for error messages.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use super::directory::Directory;
use super::fault::fault;
use super::files::READ_DIRECTORY;
use super::layout::COUNTERS;
use super::line::{KnownContender, KnownQueue};
use super::platform;
use super::process;
use super::sweep::{REMOVED, STEP};
use super::ticket::{EncodedName, Note, Ticket, decode};
use super::watch::Rung;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::store::{Contender, Grant, Outline, Owner, Page, Queue, RequestId};
use crate::token::FencingToken;

/// Which sessions are alive, and whose they are, asked once each.
#[derive(Default)]
pub(super) struct Roll {
    alive: HashMap<u64, bool>,
    owners: HashMap<u64, Option<Owner>>,
    removed: usize,
}

impl Roll {
    /// Whether the session of `ticket` is alive; removes the ticket if it is not.
    fn is_alive(&mut self, directory: &Directory, ticket: &Ticket, path: &str) -> bool {
        let session = ticket.key.session;
        let is_alive = || directory.lives.is_own(session) || directory.is_alive(session).unwrap_or(true);
        let alive = *self.alive.entry(session).or_insert_with(is_alive);
        if !alive && self.removed < REMOVED {
            self.removed += 1;
            // A ticket that cannot be removed is dead all the same.
            let _ = directory.remove(path);
        }
        alive
    }

    /// Who a session belongs to, if its file tells.
    pub(super) fn owner(&mut self, directory: &Directory, session: u64) -> Option<&Owner> {
        self.owners.entry(session).or_insert_with(|| directory.owner(session)).as_ref()
    }
}

/// The names in a directory, as far as they were listed.
pub(super) struct NameList {
    directory: Arc<Directory>,
    /// Those that are still to be listed, the last one first; `None` before they are known.
    buckets: Option<Vec<u16>>,
    roll: Roll,
    is_read: bool,
    failure: Option<Error>,
}

impl NameList {
    pub(super) fn of(directory: Arc<Directory>) -> Self {
        Self { directory, buckets: None, roll: Roll::default(), is_read: false, failure: None }
    }

    /// The names in some more buckets; `None` after the last one. A bucket that cannot be read is told to the log, and costs the
    /// names in it; if none can be read, that is the error.
    pub(super) fn go_on(mut self, prefix: &str) -> Result<Option<(Vec<Name>, Option<Self>)>> {
        let directory = &self.directory;
        let failed = |errno| fault("names", &directory.path, errno);
        let buckets = match &mut self.buckets {
            Some(buckets) => buckets,
            unknown => {
                let mut all = directory.buckets_on_disk().map_err(failed)?;
                all.reverse();
                unknown.insert(all)
            }
        };
        if buckets.is_empty() {
            return self.failure.filter(|_| !self.is_read).map_or(Ok(None), Err);
        }
        let mut names = Vec::new();
        for bucket in buckets.split_off(buckets.len().saturating_sub(STEP)) {
            match directory.list_names(bucket, &mut self.roll, prefix) {
                Ok(found) => {
                    self.is_read = true;
                    names.extend(found);
                }
                Err(errno) => {
                    let path = format!("{}/{}", directory.path, Directory::bucket_path(bucket));
                    tracing::warn!(path, %errno, "the names in this bucket are not listed");
                    self.failure = Some(fault("names", path, errno));
                }
            }
        }
        Ok(Some((names, Some(self))))
    }
}

impl Directory {
    /// One page of the queue of `name`, as of some moment during the call.
    pub(super) fn read_queue(&self, name: &Name, page: Page) -> Result<Queue> {
        let slot = EncodedName::of(name);
        let (line, mut roll, strangers) = self.read_line(&slot)?;
        let (granted, queued) = (line.granted(), line.tickets().count());
        let shown = page.of(line.tickets().enumerate());
        let contenders =
            shown.filter_map(|(at, ticket)| self.contender(&slot, ticket, at < granted, &mut roll)).collect();
        Ok(Queue { name: name.clone(), contenders, queued, beside: Vec::new(), strangers })
    }

    /// The queue of `name` in short. Nobody is asked for but the head: those who wait are counted by their tickets, also
    /// the dead among them whom nobody has met yet.
    pub(super) fn read_outline(&self, name: &Name, mine: &[RequestId]) -> Result<Outline> {
        let slot = EncodedName::of(name);
        if let Some(outline) = self.outline_from_memory(&slot, mine)? {
            return Ok(outline);
        }
        let (mut line, _) = self.list_line(&slot)?;
        let mut roll = Roll::default();
        while let Some(head) = line.head() {
            if roll.is_alive(self, &head, &self.ticket_path(&slot, &head)) {
                break;
            }
            line.depart(&head, &mut Rung::new());
        }
        Ok(self.outline(&slot, &line, mine, &mut roll))
    }

    /// The same without listing the bucket, while only places of this process are in the queue.
    fn outline_from_memory(&self, slot: &EncodedName, mine: &[RequestId]) -> Result<Option<Outline>> {
        let bucket = self.bucket(slot.bucket);
        let mut state = bucket.lock();
        let last = self.last_number(slot.bucket);
        let last = last.map_err(|errno| fault("contention", format_args!("{}/{COUNTERS}", self.path), errno))?;
        if !state.is_complete(last) {
            return Ok(None);
        }
        let line = state.line(&slot.encoded).filter(|line| line.iter().all(|known| known.local));
        Ok(line.map(|line| self.outline(slot, line, mine, &mut Roll::default())))
    }

    fn outline(&self, slot: &EncodedName, line: &KnownQueue, mine: &[RequestId], roll: &mut Roll) -> Outline {
        let holders = line.granted();
        let head = line.head().filter(|_| holders > 0);
        Outline {
            holder: head.and_then(|head| self.contender(slot, head, true, roll)),
            holders,
            queued: line.tickets().count(),
            positions: self.positions(line, mine, roll),
        }
    }

    /// Where these requests stand. Sessions of other processes are asked whose they are only for clients of theirs.
    fn positions(&self, line: &KnownQueue, mine: &[RequestId], roll: &mut Roll) -> Vec<Option<usize>> {
        let mut sessions: HashMap<u64, Vec<u64>> = HashMap::new();
        for id in mine {
            sessions.entry(id.client).or_insert_with(|| self.lives.of_client(id.client));
        }
        if sessions.values().any(Vec::is_empty) {
            let others: HashSet<u64> = line.tickets().map(|ticket| ticket.key.session).collect();
            for session in others {
                let client = roll.owner(self, session).map(|owner| owner.client);
                if let Some(known) = client.and_then(|client| sessions.get_mut(&client)) {
                    known.push(session);
                }
            }
        }
        let place = |id: &RequestId| sessions[&id.client].iter().find_map(|session| line.find(*session, id.number));
        mine.iter().map(|id| place(id).map(|ticket| line.position(ticket.key))).collect()
    }

    /// Everybody alive in one queue, who they are, and what only looks like a part of it.
    pub(super) fn read_line(&self, slot: &EncodedName) -> Result<(KnownQueue, Roll, Vec<String>)> {
        let (mut line, strangers) = self.list_line(slot)?;
        let mut roll = Roll::default();
        let tickets: Vec<Ticket> = line.iter().map(|known| known.ticket).collect();
        for ticket in tickets {
            if !roll.is_alive(self, &ticket, &self.ticket_path(slot, &ticket)) {
                line.depart(&ticket, &mut Rung::new());
            }
        }
        Ok((line, roll, strangers))
    }

    /// Everybody with a ticket in one queue, and what only looks like a part of it.
    fn list_line(&self, slot: &EncodedName) -> Result<(KnownQueue, Vec<String>)> {
        let failed = |errno| fault("queue", format_args!("{}/{}", self.path, Self::bucket_path(slot.bucket)), errno);
        // Every contender that drew a number up to this one is listed, the very last one perhaps excepted; later arrivals may or may
        // not be, so they are left out. What remains is the front of the queue, without gaps.
        let last = self.last_number(slot.bucket).map_err(failed)?;
        let mut strangers = Vec::new();
        let mut listed = Vec::new();
        self.list_bucket(slot.bucket, |file| match Ticket::parse(file) {
            Some((encoded, ticket)) if *encoded == *slot.encoded && ticket.key.seq <= last => {
                listed.push(KnownContender::new(ticket, false));
            }
            Some(_) => {}
            None => strangers.push(file.to_owned()),
        })
        .map_err(failed)?;
        let mut line = KnownQueue::default();
        line.replace(listed, &mut Rung::new());
        strangers.retain(|file| file.starts_with(&*slot.encoded));
        Ok((line, strangers))
    }

    fn ticket_path(&self, slot: &EncodedName, ticket: &Ticket) -> String {
        format!("{}/{}", Self::bucket_path(slot.bucket), ticket.file_name(&slot.encoded))
    }

    /// What others see of a place; `None` when it has gone. What cannot be read of it is left out.
    fn contender(&self, slot: &EncodedName, ticket: Ticket, is_granted: bool, roll: &mut Roll) -> Option<Contender> {
        #[cfg(test)]
        self.contents_read.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let path = self.ticket_path(slot, &ticket);
        let owner = roll.owner(self, ticket.key.session).cloned();
        let note = match rustix::fs::readlinkat(&self.root.fd, path.as_str(), Vec::new()) {
            Ok(target) => Note::decode(&target.to_string_lossy()),
            Err(Errno::NOENT) => return None,
            Err(_) => Note::default(),
        };
        let stat = rustix::fs::statat(&self.root.fd, path.as_str(), AtFlags::SYMLINK_NOFOLLOW).ok();
        let client = owner.as_ref().map_or(0, |owner| owner.client);
        let process = owner.as_ref().and_then(|owner| process::state_of(ticket.key.session, owner));
        Some(Contender {
            owner: owner.filter(|owner| !owner.host.is_empty() || owner.pid != 0),
            grant: is_granted.then(|| Grant::new(FencingToken::new(ticket.key.seq))),
            since: stat.as_ref().and_then(modified),
            purpose: note.purpose.map(Arc::from),
            process,
            ..Contender::new(RequestId { client, number: ticket.key.number }, ticket.claim)
        })
    }

    /// The names in one bucket that start with `prefix`, and that somebody alive queues for.
    fn list_names(&self, bucket: u16, roll: &mut Roll, prefix: &str) -> rustix::io::Result<BTreeSet<Name>> {
        let mut tickets = Vec::new();
        self.list_bucket(bucket, |file| {
            tickets.extend(Ticket::parse(file).map(|(encoded, ticket)| (encoded.to_owned(), ticket)));
        })?;
        let mut names = BTreeSet::new();
        for (encoded, ticket) in tickets {
            let path = format!("{}/{}", Self::bucket_path(bucket), ticket.file_name(&encoded));
            let name =
                self.name_of(&encoded, &path).filter(|name| name.as_str().starts_with(prefix) && !names.contains(name));
            names.extend(name.filter(|_| roll.is_alive(self, &ticket, &path)));
        }
        Ok(names)
    }

    fn name_of(&self, encoded: &str, path: &str) -> Option<Name> {
        if let Some(name) = decode(encoded) {
            return Some(name);
        }
        let target = rustix::fs::readlinkat(&self.root.fd, path, Vec::new()).ok()?;
        let name = Name::new(Note::decode(&target.to_string_lossy()).name?).ok()?;
        (*EncodedName::of(&name).encoded == *encoded).then_some(name)
    }

    /// Calls `each` with what is in a bucket; nothing is in one that was never used.
    pub(super) fn list_bucket(&self, bucket: u16, mut each: impl FnMut(&str)) -> rustix::io::Result<()> {
        self.list_bucket_until(bucket, |file| {
            each(file);
            ControlFlow::Continue(())
        })
    }

    /// The same until `each` breaks off.
    pub(super) fn list_bucket_until(
        &self,
        bucket: u16,
        each: impl FnMut(&str) -> ControlFlow<()>,
    ) -> rustix::io::Result<()> {
        let path = Self::bucket_path(bucket);
        let open = || rustix::fs::openat(&self.root.fd, path.as_str(), READ_DIRECTORY, Mode::empty());
        match self.opening(open) {
            Ok(fd) => platform::list_until(&fd, each),
            Err(Errno::NOENT) if self.is_in_place()? => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// When a ticket was made, or its grant marked.
pub(super) fn modified(stat: &rustix::fs::Stat) -> Option<SystemTime> {
    let seconds = u64::try_from(stat.st_mtime).ok()?;
    let nanos = u32::try_from(stat.st_mtime_nsec).ok()?;
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}
