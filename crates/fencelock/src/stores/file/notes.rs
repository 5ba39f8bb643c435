//! Notes on locks: a file for each, a line of JSON and then the value. An empty file is no note.
//!
//! A new note is first written next to the old one (`p.…`), and counts from the instant that the ticket of its grant has a second hard link
//! (`k.…`). The kernel creates that link atomically, and only while the ticket exists: so a late holder's note never counts, even if its
//! writer was stopped. Then the new note replaces the old one. Writers hold the lock of the bucket; readers take no lock.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::directory::Directory;
use super::enter::Patience;
use super::fault::fault;
use super::files::{READ_DIRECTORY, Temporary, exists, make_directory, read, remove, was_there, write_temporary};
use super::linux;
use super::sweep::sweep_temporary;
use super::ticket::{EncodedName, Ticket};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::record::{self, Identity, milliseconds};
use crate::name::Name;
use crate::store::{Note, NoteOrder, NoteRead};
use crate::token::FencingToken;

/// The directory of the notes; made with the first one.
pub(super) const NOTES: &str = "notes";
/// The prefixes of the file names, before the encoded name: of a note, of the next note, and of the link that makes the next note count.
const NOTE: &str = "n.";
const NEXT: &str = "p.";
const COUNTS: &str = "k.";

/// The first line of a file.
#[derive(Serialize, Deserialize)]
struct Head<'a> {
    /// The number of the grant.
    number: u64,
    written_ms: u64,
    /// The time of its expiry; 0 for never.
    expires_ms: u64,
    #[serde(borrow)]
    owner: Identity<'a>,
}

impl Directory {
    /// Writes or deletes a note, if the grant of `order` is current. Returns whether the grant was current.
    pub(super) async fn write_note(
        &self,
        order: &NoteOrder,
        now: SystemTime,
        mut patience: Patience<'_>,
    ) -> Result<bool> {
        let (place, slot) = (&order.grant.place, EncodedName::of(&order.grant.place.name));
        let failed = |errno| self.note_failed(&slot, errno);
        let folder = self.make_folder(slot.bucket).map_err(failed)?;
        let expires = order.ttl.and_then(|ttl| now.checked_add(ttl));
        let head = Head {
            number: order.grant.token.map_or(0, FencingToken::get),
            written_ms: milliseconds(now),
            expires_ms: expires.map_or(0, milliseconds),
            owner: Identity::of(&order.owner),
        };
        let head = record::text("note", &head)?;
        let content = order.value.as_deref().map(|value| [head.as_bytes(), b"\n", value].concat()).unwrap_or_default();
        // On disk before the lock is taken.
        let new = write_temporary(&folder, &content, self.root.modes).map_err(failed)?;
        let bucket = self.bucket(slot.bucket);
        let written = bucket.locked(self, "note", &mut patience, |_, lock| {
            let Some(ticket) = self.granted(&slot, place, order.grant.token)? else { return Ok(false) };
            let counts = put(&new, &slot.encoded, &lock.0, &ticket).map_err(failed)?;
            // The next call clears the rest.
            let _ = clear(&folder, now);
            Ok(counts)
        });
        let written = written.await?;
        if written {
            rustix::fs::fsync(&folder).map_err(|errno| failed(errno).outcome_unknown())?;
        }
        Ok(written)
    }

    pub(super) fn read_note(&self, name: &Name, now: SystemTime) -> Result<NoteRead> {
        let slot = EncodedName::of(name);
        let failed = |errno| self.note_failed(&slot, errno);
        let content = match self.folder(slot.bucket).map_err(failed)? {
            Some(folder) => current(&folder, &slot.encoded).map_err(failed)?,
            None => None,
        };
        let Some(content) = content.filter(|content| !content.is_empty()) else {
            return Ok(NoteRead { note: None, now });
        };
        let note = note_of(&content).ok_or_else(|| {
            let message = "a note is not what this release writes";
            Error::new(ErrorKind::Layout, "note", message).with("name", name)
        })?;
        Ok(NoteRead { note: Some(note).filter(|note| !has_expired(note, now)), now })
    }

    fn note_failed(&self, slot: &EncodedName, errno: Errno) -> Error {
        fault("note", format_args!("{}/{NOTES}/{:03x}", self.path, slot.bucket), errno)
    }

    /// Where the notes of a bucket are; `None` if there is none yet.
    fn folder(&self, bucket: u16) -> rustix::io::Result<Option<OwnedFd>> {
        let path = format!("{NOTES}/{bucket:03x}");
        match rustix::fs::openat(&self.root.fd, path.as_str(), READ_DIRECTORY, Mode::empty()) {
            Ok(folder) => Ok(Some(folder)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn make_folder(&self, bucket: u16) -> rustix::io::Result<OwnedFd> {
        if let Some(folder) = self.folder(bucket)? {
            return Ok(folder);
        }
        let modes = self.root.modes;
        make_directory(&self.root.fd, NOTES, modes, modes.directory)?;
        let notes = rustix::fs::openat(&self.root.fd, NOTES, READ_DIRECTORY, Mode::empty())?;
        make_directory(&notes, &format!("{bucket:03x}"), modes, modes.directory)?;
        self.folder(bucket)?.ok_or(Errno::NOENT)
    }
}

/// Makes a new note count, if the ticket is there; under the lock. Returns whether the ticket was there.
fn put(new: &Temporary<'_>, encoded: &str, bucket: &OwnedFd, ticket: &Ticket) -> rustix::io::Result<bool> {
    let folder = new.0;
    settle(folder, encoded)?;
    rustix::fs::renameat(folder, new.1.as_str(), folder, format!("{NEXT}{encoded}"))?;
    let counts = format!("{COUNTS}{encoded}");
    let linked = rustix::fs::linkat(bucket, ticket.file_name(encoded), folder, counts, AtFlags::empty());
    // From here on the note counts, or never will. The next call clears the rest.
    let _ = settle(folder, encoded);
    was_there(linked)
}

/// Finishes an interrupted write under the lock: the new note replaces the old one if it counts, and is removed otherwise.
fn settle(folder: &OwnedFd, encoded: &str) -> rustix::io::Result<()> {
    let next = format!("{NEXT}{encoded}");
    let counts = format!("{COUNTS}{encoded}");
    if !exists(folder, &counts)? {
        return remove(folder, &next).map(drop);
    }
    was_there(rustix::fs::renameat(folder, next, folder, format!("{NOTE}{encoded}")))?;
    remove(folder, &counts).map(drop)
}

/// The content of the note that counts, without the lock.
fn current(folder: &OwnedFd, encoded: &str) -> rustix::io::Result<Option<Vec<u8>>> {
    let next = || read(folder, &format!("{NEXT}{encoded}"));
    while let Some(content) = next()?
        && exists(folder, &format!("{COUNTS}{encoded}"))?
    {
        // If the content changed meanwhile, the link was for another writer's note.
        if next()?.as_ref() == Some(&content) {
            return Ok(Some(content));
        }
    }
    read(folder, &format!("{NOTE}{encoded}"))
}

/// Removes the expired notes of a bucket, and the leftovers of killed writers. Under its lock.
fn clear(folder: &OwnedFd, now: SystemTime) -> rustix::io::Result<()> {
    sweep_temporary(folder)?;
    let mut names = BTreeSet::new();
    linux::list(folder, |file| {
        let encoded = [NOTE, NEXT, COUNTS].iter().find_map(|prefix| file.strip_prefix(prefix));
        names.extend(encoded.map(str::to_owned));
    })?;
    for encoded in names {
        settle(folder, &encoded)?;
        let file = format!("{NOTE}{encoded}");
        let is_none =
            |content: &[u8]| content.is_empty() || note_of(content).is_some_and(|note| has_expired(&note, now));
        if read(folder, &file)?.is_some_and(|content| is_none(&content)) {
            remove(folder, &file)?;
        }
    }
    Ok(())
}

fn has_expired(note: &Note, now: SystemTime) -> bool {
    note.expires.is_some_and(|expires| expires <= now)
}

fn note_of(content: &[u8]) -> Option<Note> {
    let end = content.iter().position(|byte| *byte == b'\n')?;
    let (head, value) = (&content[..end], &content[end + 1..]);
    let head: Head<'_> = serde_json::from_slice(head).ok()?;
    let at = |ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms));
    Some(Note {
        value: value.into(),
        token: FencingToken::new(head.number),
        owner: head.owner.owner()?,
        written: at(head.written_ms)?,
        expires: if head.expires_ms == 0 { None } else { Some(at(head.expires_ms)?) },
    })
}
