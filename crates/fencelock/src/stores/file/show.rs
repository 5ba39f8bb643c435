//! Reading queues without their lock, for people and for error messages.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use super::directory::Directory;
use super::fault::fault;
use super::files::READ_DIRECTORY;
use super::line::{KnownContender, KnownQueue};
use super::linux;
use super::process;
use super::ticket::{EncodedName, Ticket, TicketText, decode};
use super::watch::Rung;
use crate::error::{Error, Result};
use crate::name::Name;
use crate::store::{Contender, Grant, Outline, Owner, Page, Queue, RequestId};
use crate::token::FencingToken;

/// The sessions of a listing: whether each is alive, and its owner. Each is looked up once.
#[derive(Default)]
pub(super) struct Roll {
    alive: HashMap<u64, bool>,
    owners: HashMap<u64, Option<Owner>>,
}

impl Roll {
    fn is_alive(&mut self, directory: &Directory, session: u64) -> bool {
        let is_alive = || directory.own_sessions.is_own(session) || directory.is_alive(session).unwrap_or(true);
        *self.alive.entry(session).or_insert_with(is_alive)
    }

    /// The owner of a session, if its file names one.
    pub(super) fn owner(&mut self, directory: &Directory, session: u64) -> Option<&Owner> {
        self.owners.entry(session).or_insert_with(|| directory.owner(session).ok()?).as_ref()
    }
}

/// The names in a directory, as far as they were listed.
pub(super) struct NameList {
    directory: Arc<Directory>,
    buckets: std::vec::IntoIter<u16>,
    roll: Roll,
    is_read: bool,
    failure: Option<Error>,
}

impl NameList {
    pub(super) fn of(directory: Arc<Directory>) -> Result<Self> {
        let buckets = directory.buckets_on_disk().map_err(|errno| fault("names", &directory.path, errno))?;
        Ok(Self { buckets: buckets.into_iter(), roll: Roll::default(), is_read: false, failure: None, directory })
    }

    /// The names in the next bucket; `None` after the last one. A bucket that cannot be read is logged; if none can be read, that is the error.
    pub(super) fn go_on(mut self, prefix: &str) -> Result<Option<(Vec<Name>, Self)>> {
        let Some(bucket) = self.buckets.next() else {
            return self.failure.filter(|_| !self.is_read).map_or(Ok(None), Err);
        };
        let names = self.directory.list_names(bucket, &mut self.roll, prefix);
        self.is_read |= names.is_ok();
        let names = names.unwrap_or_else(|errno| {
            let path = format!("{}/{}", self.directory.path, Directory::bucket_path(bucket));
            tracing::warn!(path, %errno, "the names in this bucket are not listed");
            self.failure = Some(fault("names", path, errno));
            BTreeSet::new()
        });
        Ok(Some((names.into_iter().collect(), self)))
    }
}

impl Directory {
    /// A page of the queue of `name`, as of some moment during the call.
    pub(super) fn read_queue(&self, name: &Name, page: Page) -> Result<Queue> {
        let slot = EncodedName::of(name);
        let (line, mut roll, strangers) = self.read_line(&slot)?;
        let (granted, queued) = (line.granted(), line.tickets().count());
        let shown = page.of(line.tickets().enumerate());
        let contenders =
            shown.filter_map(|(at, ticket)| self.contender(&slot, ticket, at < granted, &mut roll)).collect();
        Ok(Queue { name: name.clone(), contenders, queued, foreign_locks: Vec::new(), strangers, closed: None })
    }

    /// The outline of the queue of `name`.
    pub(super) fn read_outline(&self, name: &Name, mine: &[RequestId]) -> Result<Outline> {
        let slot = EncodedName::of(name);
        let (line, mut roll, _) = self.read_line(&slot)?;
        let holders = line.granted();
        let head = line.tickets().next().filter(|_| holders > 0);
        let mut positions = HashMap::new();
        for (at, Ticket { key, .. }) in line.tickets().enumerate() {
            let whose = self.own_sessions.client(key.session);
            let client = whose.or_else(|| roll.owner(self, key.session).map(|owner| owner.client));
            positions.insert((client, key.number), at + 1);
        }
        let positions = mine.iter().map(|id| positions.get(&(Some(id.client), id.number)).copied()).collect();
        let holder = head.and_then(|head| self.contender(&slot, head, true, &mut roll));
        Ok(Outline { holder, holders, queued: line.tickets().count(), positions, closed: None })
    }

    /// Every living contender in one queue, its owner, and names that only look like a part of it.
    pub(super) fn read_line(&self, slot: &EncodedName) -> Result<(KnownQueue, Roll, Vec<String>)> {
        let (mut line, strangers) = self.list_line(slot)?;
        let mut roll = Roll::default();
        let sessions: HashSet<u64> = line.iter().map(|known| known.ticket.key.session).collect();
        let dead = sessions.into_iter().filter(|session| !roll.is_alive(self, *session)).collect();
        line.depart_sessions(&dead, &mut Rung::new());
        Ok((line, roll, strangers))
    }

    /// Every contender with a ticket in one queue, and names that only look like a part of it.
    fn list_line(&self, slot: &EncodedName) -> Result<(KnownQueue, Vec<String>)> {
        let failed = |errno| fault("queue", format_args!("{}/{}", self.path, Self::bucket_path(slot.bucket)), errno);
        // Every contender that drew a number up to this one is listed, the very last one perhaps excepted; later arrivals may or may not
        // be, so they are left out. The rest is the front of the queue, without gaps.
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

    /// A place as other clients see it; `None` when it has gone. Unreadable fields are left out.
    fn contender(&self, slot: &EncodedName, ticket: Ticket, is_granted: bool, roll: &mut Roll) -> Option<Contender> {
        #[cfg(test)]
        super::tests::count(&self.counts.contents_read);
        let path = self.ticket_path(slot, &ticket);
        let owner = roll.owner(self, ticket.key.session).cloned();
        let note = match rustix::fs::readlinkat(&self.root.fd, path.as_str(), Vec::new()) {
            Ok(target) => TicketText::decode(&target.to_string_lossy()),
            Err(Errno::NOENT) => return None,
            Err(_) => TicketText::default(),
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

    /// The names in one bucket that start with `prefix` and have a living contender.
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
            names.extend(name.filter(|_| roll.is_alive(self, ticket.key.session)));
        }
        Ok(names)
    }

    fn name_of(&self, encoded: &str, path: &str) -> Option<Name> {
        if let Some(name) = decode(encoded) {
            return Some(name);
        }
        let target = rustix::fs::readlinkat(&self.root.fd, path, Vec::new()).ok()?;
        let name = Name::new(TicketText::decode(&target.to_string_lossy()).name?).ok()?;
        (*EncodedName::of(&name).encoded == *encoded).then_some(name)
    }

    /// Calls `each` with the entries of a bucket; a bucket that was never used has none.
    pub(super) fn list_bucket(&self, bucket: u16, each: impl FnMut(&str)) -> rustix::io::Result<()> {
        let path = Self::bucket_path(bucket);
        match rustix::fs::openat(&self.root.fd, path.as_str(), READ_DIRECTORY, Mode::empty()) {
            Ok(fd) => linux::list(&fd, each),
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
