//! Notes on locks: a file for each, a line of JSON and then the value.
//!
//! It is replaced under the lock of the bucket, and only while the ticket of the grant is there. Who breaks a grant takes that lock as
//! well, and departures of this process take the one in memory: what a late holder writes never counts.

use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::directory::Directory;
use super::enter::Patience;
use super::fault::fault;
use super::files::{READ_DIRECTORY, make_directory, read, write_temporary};
use super::platform;
use super::ticket::EncodedName;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::record::{self, Identity, milliseconds};
use crate::name::Name;
use crate::store::{Note, NoteOrder, NoteRead};
use crate::token::FencingToken;

/// The directory of the notes; made with the first one.
pub(super) const NOTES: &str = "notes";
/// What the file names of notes begin with, before the encoded name.
const PREFIX: &str = "n.";

/// The first line of a file.
#[derive(Serialize, Deserialize)]
struct Head<'a> {
    /// The number of the grant.
    number: u64,
    written_ms: u64,
    /// When its time is over; 0 for never.
    expires_ms: u64,
    #[serde(borrow)]
    owner: Identity<'a>,
}

impl Directory {
    /// Writes or deletes a note, if the grant of `order` is current; says whether it was.
    pub(super) async fn write_note(
        &self,
        order: &NoteOrder,
        now: SystemTime,
        mut patience: Patience<'_>,
    ) -> Result<bool> {
        let (place, slot) = (&order.grant.place, EncodedName::of(&order.grant.place.name));
        let failed = |errno| self.note_failed(&slot, errno);
        let Some(ticket) = self.granted(&slot, place, order.grant.token)? else { return Ok(false) };
        let (folder, file) = (self.make_folder(slot.bucket).map_err(failed)?, format!("{PREFIX}{}", slot.encoded));
        let expires = order.ttl.and_then(|ttl| now.checked_add(ttl));
        let head = Head {
            number: ticket.key.seq,
            written_ms: milliseconds(now),
            expires_ms: expires.map_or(0, milliseconds),
            owner: Identity::of(&order.owner),
        };
        let content =
            [record::text("note", &head)?.as_bytes(), b"\n", order.value.as_deref().unwrap_or_default()].concat();
        // On disk before the lock is taken.
        let new = write_temporary(&folder, &content, self.root.modes).map_err(failed)?;
        let bucket = self.bucket(slot.bucket);
        let written = bucket.locked(self, "note", &mut patience, |_, _| {
            if self.granted(&slot, place, order.grant.token)?.is_none() {
                return Ok(false);
            }
            let put = match order.value {
                Some(_) => rustix::fs::renameat(&folder, new.as_str(), &folder, file.as_str()),
                None => remove(&folder, &file),
            };
            put.map_err(failed)?;
            // What cannot be cleared now stays for the next one.
            let _ = clear(&folder, now);
            Ok(true)
        });
        let written = written.await;
        let _ = remove(&folder, &new);
        if matches!(written, Ok(true)) {
            rustix::fs::fsync(&folder).map_err(failed)?;
        }
        written
    }

    pub(super) fn read_note(&self, name: &Name, now: SystemTime) -> Result<NoteRead> {
        let slot = EncodedName::of(name);
        let failed = |errno| self.note_failed(&slot, errno);
        let content = match self.folder(slot.bucket).map_err(failed)? {
            Some(folder) => read(&folder, &format!("{PREFIX}{}", slot.encoded)).map_err(failed)?,
            None => None,
        };
        let Some(content) = content else { return Ok(NoteRead { note: None, now }) };
        let note = note_of(&content).ok_or_else(|| {
            let message = "a note is not what this release writes";
            Error::new(ErrorKind::Layout, "note", message).with("name", name)
        })?;
        Ok(NoteRead { note: Some(note).filter(|note| !is_over(note, now)), now })
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

/// Removes the notes of a bucket whose time is over. Under its lock.
fn clear(folder: &OwnedFd, now: SystemTime) -> rustix::io::Result<()> {
    let mut files = Vec::new();
    platform::list(folder, |file| files.extend(file.starts_with(PREFIX).then(|| file.to_owned())))?;
    for file in files {
        if read(folder, &file)?.and_then(|content| note_of(&content)).is_some_and(|note| is_over(&note, now)) {
            remove(folder, &file)?;
        }
    }
    Ok(())
}

fn is_over(note: &Note, now: SystemTime) -> bool {
    note.expires.is_some_and(|expires| expires <= now)
}

/// Removes a file that need not be there.
fn remove(folder: &OwnedFd, file: &str) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(folder, file, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
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
