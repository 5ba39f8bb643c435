//! Notes on locks: two files for each version of a note, `c.…` with its content and `k.…`, which says that it counts.
//!
//! `k.…` is a hard link of the holder's ticket. So the kernel makes it in one step, and only while the ticket is there: what a late
//! holder writes never counts, whenever it was stopped. Of the versions that count, the one of the latest grant is the note, and of several
//! the latest of that grant. A deletion is a version, too. Who made a version count removes the older ones, and, of the bucket,
//! those whose time is over. A writer that is killed in between leaves a content that never counts.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::directory::Directory;
use super::fault::fault;
use super::files::{READ_DIRECTORY, make_directory, make_file, open_file};
use super::platform;
use super::ticket::{EncodedName, base32, parse_base32};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::record::{self, Identity, milliseconds};
use crate::name::Name;
use crate::store::{Note, NoteOrder, NoteRead};
use crate::token::FencingToken;

/// The directory of the notes; made with the first one.
pub(super) const NOTES: &str = "notes";
/// How often a note is looked for again that was replaced while it was read.
const ROUNDS: usize = 64;
/// More than the longest file of content.
const LONGEST: u64 = 2 * Note::MAX_BYTES as u64;

/// One version of a note; the later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    /// The number of its grant.
    seq: u64,
    /// Rises with every version of a grant.
    stamp: u64,
    /// When its time is over, in ms since 1970; 0 for never.
    expires: u64,
}

/// The first line of a content.
#[derive(Serialize, Deserialize)]
struct Head<'a> {
    written_ms: u64,
    ttl_ms: u64,
    #[serde(borrow)]
    owner: Identity<'a>,
    /// The note was deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    gone: bool,
}

impl Version {
    fn file(&self, kind: char, encoded: &str) -> String {
        let [seq, stamp, expires] = [(self.seq, 11), (self.stamp, 1), (self.expires, 1)].map(|(n, w)| base32(n, w));
        format!("{kind}.{encoded}.{seq}.{stamp}.{expires}")
    }

    /// The name and the version of a file that makes one count.
    fn parse(file: &str) -> Option<(&str, Self)> {
        let mut fields = file.strip_prefix("k.")?.rsplitn(4, '.');
        let mut number = |width| parse_base32(fields.next()?, width);
        let (expires, stamp, seq) = (number(1)?, number(1)?, number(11)?);
        Some((fields.next()?, Self { seq, stamp, expires }))
    }

    fn is_over(&self, now_ms: u64) -> bool {
        self.expires != 0 && self.expires <= now_ms
    }
}

impl Directory {
    /// Writes or deletes a note, if the grant of `order` is current; says whether it was.
    pub(super) fn write_note(&self, order: &NoteOrder, now: SystemTime) -> Result<bool> {
        let (place, slot) = (&order.grant.place, EncodedName::of(&order.grant.place.name));
        let failed = |errno| self.note_failed(&slot, errno);
        let Some(ticket) = self.granted(&slot, place, order.grant.token)? else { return Ok(false) };
        let folder = self.make_folder(slot.bucket).map_err(failed)?;
        let mut known = versions(&folder).map_err(failed)?;
        let (written_ms, ttl_ms) = (milliseconds(now), order.ttl.map_or(0, |ttl| ttl.as_millis() as u64));
        let mine =
            known.iter().filter(|(encoded, version)| **encoded == *slot.encoded && version.seq == ticket.key.seq);
        // Two guards of one grant may write in the same millisecond.
        let by_clock = written_ms << 20 | getrandom::u64().unwrap_or_default() >> 44;
        let stamp = mine.map(|(_, version)| version.stamp + 1).max().unwrap_or(0).max(by_clock);
        let expires = if ttl_ms == 0 { 0 } else { written_ms.saturating_add(ttl_ms) };
        let version = Version { seq: ticket.key.seq, stamp, expires };
        let head = Head { written_ms, ttl_ms, owner: Identity::of(&order.owner), gone: order.value.is_none() };
        let head = record::text("note", &head)?;
        let content = [head.as_bytes(), b"\n", order.value.as_deref().unwrap_or_default()].concat();
        let [content_file, counts_file] = ['c', 'k'].map(|kind| version.file(kind, &slot.encoded));
        make_file(&folder, &content_file, &content, self.root.modes).map_err(failed)?;
        let bucket_file = format!("{}/{}", Self::bucket_path(slot.bucket), ticket.file_name(&slot.encoded));
        match rustix::fs::linkat(&self.root.fd, bucket_file, &folder, counts_file, AtFlags::empty()) {
            Ok(()) => {}
            Err(errno) => {
                remove(&folder, &content_file);
                return if errno == Errno::NOENT { Ok(false) } else { Err(failed(errno)) };
            }
        }
        known.push((slot.encoded.to_string(), version));
        clear(&folder, known, written_ms, order.value.is_none().then_some((&slot.encoded, version)));
        rustix::fs::fsync(&folder).map_err(failed).map(|()| true)
    }

    pub(super) fn read_note(&self, name: &Name, now: SystemTime) -> Result<NoteRead> {
        let slot = EncodedName::of(name);
        let failed = |errno| self.note_failed(&slot, errno);
        for _ in 0..ROUNDS {
            let none = Ok(NoteRead { note: None, now });
            let Some(folder) = self.folder(slot.bucket).map_err(failed)? else { return none };
            let known = versions(&folder).map_err(failed)?;
            let newest =
                known.iter().filter(|(encoded, _)| **encoded == *slot.encoded).map(|(_, version)| version).max();
            let Some(version) = newest.filter(|version| !version.is_over(milliseconds(now))) else { return none };
            match content(&folder, &version.file('c', &slot.encoded)).map_err(failed)? {
                Some(content) => {
                    let note = note_of(version, &content).ok_or_else(|| {
                        let message = "a note is not what this release writes";
                        Error::new(ErrorKind::Layout, "note", message).with("name", name)
                    })?;
                    return Ok(NoteRead { note, now });
                }
                // It was replaced meanwhile.
                None => continue,
            }
        }
        let message = "the note is replaced faster than it can be read";
        Err(Error::new(ErrorKind::Unreachable, "note", message).with("name", name).retryable())
    }

    fn note_failed(&self, slot: &EncodedName, errno: Errno) -> Error {
        fault("note", format_args!("{}/{NOTES}/{:03x}", self.path, slot.bucket), errno)
    }

    /// Where the notes of a bucket are; `None` if there is none yet.
    fn folder(&self, bucket: u16) -> rustix::io::Result<Option<OwnedFd>> {
        let path = format!("{NOTES}/{bucket:03x}");
        match self.opening(|| rustix::fs::openat(&self.root.fd, path.as_str(), READ_DIRECTORY, Mode::empty())) {
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

/// The versions that count of all notes in a folder.
fn versions(folder: &OwnedFd) -> rustix::io::Result<Vec<(String, Version)>> {
    let mut found = Vec::new();
    platform::list(folder, |file| {
        found.extend(Version::parse(file).map(|(encoded, version)| (encoded.to_owned(), version)));
    })?;
    Ok(found)
}

/// Removes what is not the latest version of its note, and the latest where its time is over or it is `gone`: after those before it, which
/// would be the note again otherwise.
fn clear(folder: &OwnedFd, mut known: Vec<(String, Version)>, now_ms: u64, gone: Option<(&str, Version)>) {
    known.sort();
    for versions in known.chunk_by(|(one, _), (other, _)| one == other) {
        let Some(((encoded, latest), earlier)) = versions.split_last() else { continue };
        // What says that it counts goes first: no content is missing that counts.
        let forget = |version: &Version| ['k', 'c'].iter().all(|kind| remove(folder, &version.file(*kind, encoded)));
        let are_gone = earlier.iter().fold(true, |all, (_, version)| forget(version) && all);
        if are_gone && (latest.is_over(now_ms) || gone == Some((encoded, *latest))) {
            forget(latest);
        }
    }
}

/// Whether the file is gone now.
fn remove(folder: &OwnedFd, file: &str) -> bool {
    matches!(rustix::fs::unlinkat(folder, file, AtFlags::empty()), Ok(()) | Err(Errno::NOENT))
}

fn content(folder: &OwnedFd, file: &str) -> rustix::io::Result<Option<Vec<u8>>> {
    let file = match open_file(folder, file, OFlags::RDONLY) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let mut content = Vec::new();
    std::fs::File::from(file).take(LONGEST).read_to_end(&mut content).map_err(|_| Errno::IO)?;
    Ok(Some(content))
}

/// The note that a content holds, `None` inside for one that was deleted.
fn note_of(version: &Version, content: &[u8]) -> Option<Option<Note>> {
    let end = content.iter().position(|byte| *byte == b'\n')?;
    let (head, value) = (&content[..end], &content[end + 1..]);
    let head: Head<'_> = serde_json::from_slice(head).ok()?;
    let written = UNIX_EPOCH.checked_add(Duration::from_millis(head.written_ms))?;
    let expires = (head.ttl_ms != 0).then(|| written + Duration::from_millis(head.ttl_ms));
    let (token, owner) = (FencingToken::new(version.seq), head.owner.owner()?);
    Some((!head.gone).then(|| Note { value: value.into(), token, owner, written, expires }))
}
