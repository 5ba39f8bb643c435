//! Reading queues without their lock, for people and for error messages.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use super::directory::Directory;
use super::fault::fault;
use super::files::READ_DIRECTORY;
use super::line::{Known, Line};
use super::lives::Identity;
use super::platform;
use super::ticket::{Note, Slot, Ticket, decode};
use crate::error::Result;
use crate::name::Name;
use crate::store::{Contender, Page, Queue, RequestId, Standing};

/// Which sessions are alive, asked once each.
#[derive(Default)]
pub(super) struct Roll(HashMap<u64, (bool, Option<Identity>)>);

impl Roll {
    /// Whether the session of `ticket` is alive; removes the ticket if it is not.
    fn is_alive(&mut self, directory: &Directory, ticket: &Ticket, path: &str) -> bool {
        let session = ticket.key.session;
        let (alive, _) = self.0.entry(session).or_insert_with(|| {
            let alive = directory.lives.is_own(session) || directory.is_alive(session).unwrap_or(true);
            (alive, directory.identity(session))
        });
        if !*alive {
            // A ticket that cannot be removed is dead all the same.
            let _ = directory.remove(path);
        }
        *alive
    }

    pub(super) fn identity(&self, session: u64) -> Option<&Identity> {
        self.0.get(&session)?.1.as_ref()
    }
}

impl Directory {
    /// The queue of `name`, as of some moment during the call.
    pub(super) fn read_queue(&self, name: &Name, page: Page) -> Result<Queue> {
        let slot = Slot::of(name);
        let (line, roll, strangers) = self.read_line(&slot)?;
        let contenders = line.iter().filter_map(|known| self.contender(&slot, &line, known.ticket, &roll)).collect();
        Ok(Queue { strangers, ..Queue::page_of(name.clone(), contenders, page) })
    }

    /// Everybody alive in one queue, who they are, and what only looks like a part of it.
    pub(super) fn read_line(&self, slot: &Slot) -> Result<(Line, Roll, Vec<String>)> {
        let path = Self::bucket_path(slot.bucket);
        let failed = |errno| fault("queue", format_args!("{}/{path}", self.path), errno);
        // Whoever drew a number up to this one is listed, the very last one perhaps excepted; later arrivals may or may
        // not be, so they are left out. What remains is the front of the queue, without gaps.
        let last = self.last_number(slot.bucket).map_err(failed)?;
        let mut roll = Roll::default();
        let mut line = Line::default();
        let mut strangers = Vec::new();
        let mut tickets = Vec::new();
        self.list_bucket(slot.bucket, |file| match Ticket::parse(file) {
            Some((encoded, ticket)) if *encoded == *slot.encoded && ticket.key.seq <= last => tickets.push(ticket),
            Some(_) => {}
            None => strangers.push(file.to_owned()),
        })
        .map_err(failed)?;
        for ticket in tickets {
            if roll.is_alive(self, &ticket, &format!("{path}/{}", ticket.file_name(&slot.encoded))) {
                line.insert(Known::new(ticket, false));
            }
        }
        strangers.retain(|file| file.starts_with(&*slot.encoded));
        Ok((line, roll, strangers))
    }

    fn contender(&self, slot: &Slot, line: &Line, ticket: Ticket, roll: &Roll) -> Option<Contender> {
        // Of two tickets of one place only the lighter counts.
        line.find(ticket.key.session, ticket.key.number).filter(|lightest| *lightest == ticket)?;
        let path = format!("{}/{}", Self::bucket_path(slot.bucket), ticket.file_name(&slot.encoded));
        let owner = roll.identity(ticket.key.session).and_then(Identity::owner);
        let target = rustix::fs::readlinkat(&self.root.fd, path.as_str(), Vec::new()).ok()?;
        let stat = rustix::fs::statat(&self.root.fd, path.as_str(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let note = Note::decode(&target.to_string_lossy());
        let grant = match line.standing(&ticket) {
            Standing::Granted(grant) => Some(grant),
            Standing::Waiting(_) | Standing::Lost(_) => None,
        };
        Some(Contender {
            id: RequestId { client: owner.as_ref().map_or(0, |owner| owner.client), number: ticket.key.number },
            owner: owner.filter(|owner| !owner.host.is_empty() || owner.pid != 0),
            claim: ticket.claim,
            grant,
            since: modified(&stat),
            purpose: note.purpose.map(Arc::from),
        })
    }

    /// Up to `limit` names that start with `prefix`, in their order, after `from`.
    pub(super) fn read_names(&self, prefix: &str, from: Option<&Name>, limit: usize) -> Result<Vec<Name>> {
        let failed = |errno| fault("names", &self.path, errno);
        let mut roll = Roll::default();
        let mut names = BTreeSet::new();
        for bucket in self.buckets_on_disk().map_err(failed)? {
            let mut tickets = Vec::new();
            self.list_bucket(bucket, |file| {
                tickets.extend(Ticket::parse(file).map(|(encoded, ticket)| (encoded.to_owned(), ticket)));
            })
            .map_err(failed)?;
            for (encoded, ticket) in tickets {
                let path = format!("{}/{}", Self::bucket_path(bucket), ticket.file_name(&encoded));
                if let Some(name) = self.name_of(&encoded, &path)
                    && name.as_str().starts_with(prefix)
                    && from.is_none_or(|from| name > *from)
                    && roll.is_alive(self, &ticket, &path)
                {
                    names.insert(name);
                    if names.len() > limit {
                        names.pop_last();
                    }
                }
            }
        }
        Ok(names.into_iter().collect())
    }

    fn name_of(&self, encoded: &str, path: &str) -> Option<Name> {
        if let Some(name) = decode(encoded) {
            return Some(name);
        }
        let target = rustix::fs::readlinkat(&self.root.fd, path, Vec::new()).ok()?;
        let name = Name::new(Note::decode(&target.to_string_lossy()).name?).ok()?;
        (*Slot::of(&name).encoded == *encoded).then_some(name)
    }

    /// Calls `each` with what is in a bucket; nothing is in one that was never used.
    pub(super) fn list_bucket(&self, bucket: u16, each: impl FnMut(&str)) -> rustix::io::Result<()> {
        let path = Self::bucket_path(bucket);
        let open = || rustix::fs::openat(&self.root.fd, path.as_str(), READ_DIRECTORY, Mode::empty());
        match self.opening(open) {
            Ok(fd) => platform::list(&fd, each),
            Err(Errno::NOENT) if self.is_intact()? => Ok(()),
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
