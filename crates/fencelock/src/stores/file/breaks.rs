//! Grants broken on purpose, and the record of it: a file of lines that only grows.
//!
//! The record is written before the ticket is removed, so every break has a record. If the ticket was already gone, a second line voids the
//! record. A touch of the broken grant's session file notifies the client.

use std::io::Read as _;

use rustix::fs::{AtFlags, OFlags, SeekFrom, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::bucket::{Bucket, BucketLock, BucketState};
use super::directory::Directory;
use super::enter::Patience;
use super::fault::fault;
use super::files::{make_file, open_file, write_all};
use super::layout::SESSIONS;
use super::sessions::session_name;
use super::ticket::{EncodedName, Ticket};
use crate::error::Result;
use crate::kit::record::{self, Record, milliseconds};
use crate::name::Name;
use crate::queue::Admission;
use crate::store::{Break, PlaceId};
use crate::token::FencingToken;

/// The file of the records.
pub(super) const BREAKS: &str = "breaks";
/// The part of the file that a reader reads, from its end: some thousands of records.
const READ_AT_MOST: u64 = 4 << 20;

/// A line: the record in the format of all stores, with the name and the session.
#[derive(Clone, Serialize, Deserialize)]
struct RecordLine {
    name: String,
    session: String,
    /// The grant had ended before the break.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    void: bool,
    #[serde(flatten)]
    record: Record,
}

impl RecordLine {
    fn new(order: &Break, ticket: &Ticket) -> Self {
        Self {
            name: order.place.name.to_string(),
            session: session_name(ticket.key.session),
            void: false,
            record: Record::of(order),
        }
    }

    fn order(&self) -> Option<Break> {
        self.record.order(&Name::new(&self.name).ok()?)
    }
}

impl Directory {
    /// Breaks the grant that `order` names, and no later one. Returns whether the grant was there, or the same order broke it before.
    pub(super) async fn break_grant(&self, order: &Break, mut patience: Patience<'_>) -> Result<bool> {
        let slot = EncodedName::of(&order.place.name);
        let bucket = self.bucket(slot.bucket);
        let step = |state: &mut BucketState, _: &BucketLock| self.break_locked(order, &slot, &bucket, state);
        bucket.locked(self, "break", &mut patience, step).await
    }

    fn break_locked(
        &self,
        order: &Break,
        slot: &EncodedName,
        bucket: &Bucket,
        state: &mut BucketState,
    ) -> Result<bool> {
        let failed = |errno| fault("break", format_args!("{}/{BREAKS}", self.path), errno);
        let Some(ticket) = self.granted(slot, &order.place, order.token)? else {
            let same = |known: Break| {
                let is_of_then = milliseconds(known.at) == milliseconds(order.at);
                known.place == order.place && known.by == order.by && is_of_then
            };
            return Ok(self.read_breaks(&order.place.name)?.into_iter().any(same));
        };
        let line = RecordLine::new(order, &ticket);
        self.append(&line).map_err(failed)?;
        let mut removed = false;
        // There are two tickets if a downgrade could not remove the heavier one.
        while let Some(ticket) = self.granted(slot, &order.place, order.token)? {
            removed |= bucket.remove(self, state, "break", &slot.encoded, &ticket)?;
        }
        if !removed {
            self.append(&RecordLine { void: true, ..line }).map_err(failed)?;
            return Ok(false);
        }
        // Without the permission to touch the file, the holder notices the break at its next renewal.
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        let session = session_name(ticket.key.session);
        let _ = rustix::fs::utimensat(&self.root.sessions, session.as_str(), &times, AtFlags::SYMLINK_NOFOLLOW);
        Ok(true)
    }

    /// The ticket of `place` with `token`, if the ticket is there and granted.
    pub(super) fn granted(
        &self,
        slot: &EncodedName,
        place: &PlaceId,
        token: Option<FencingToken>,
    ) -> Result<Option<Ticket>> {
        let (line, ..) = self.read_line(slot)?;
        let is_it = |ticket: &Ticket| {
            ticket.key.number == place.request.number
                && FencingToken::new(ticket.key.seq) == token
                && line.judge(ticket.key, ticket.claim) == Admission::Admitted
        };
        let Some(ticket) = line.iter().map(|known| known.ticket).rfind(is_it) else { return Ok(None) };
        let session = session_name(ticket.key.session);
        let client = match self.owner(ticket.key.session) {
            Ok(owner) => owner.map_or(0, |owner| owner.client),
            // A queue shows client 0 for a session whose file cannot be read.
            Err(_) if place.request.client == 0 => 0,
            Err(errno) => return Err(fault("read session", format_args!("{}/{SESSIONS}/{session}", self.path), errno)),
        };
        Ok((client == place.request.client).then_some(ticket))
    }

    fn append(&self, line: &RecordLine) -> rustix::io::Result<()> {
        // The line break before it ends a line that a full disk cut short.
        let line = format!("\n{}\n", serde_json::to_string(line).map_err(|_| Errno::INVAL)?);
        // Creates the file complete, and opens it then: no process ever sees the file without its permissions.
        make_file(&self.root.fd, BREAKS, b"", self.root.modes)?;
        let file = open_file(&self.root.fd, BREAKS, OFlags::WRONLY | OFlags::APPEND)?;
        write_all(&file, line.as_bytes())?;
        rustix::fs::fsync(&file)
    }

    /// The records that are not void, oldest first. Reads only the end of a very long file, and skips unreadable lines.
    fn lines(&self) -> rustix::io::Result<Vec<RecordLine>> {
        let file = match open_file(&self.root.fd, BREAKS, OFlags::RDONLY) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(errno) => return Err(errno),
        };
        let length = rustix::fs::fstat(&file)?.st_size as u64;
        rustix::fs::seek(&file, SeekFrom::Start(length.saturating_sub(READ_AT_MOST)))?;
        let mut text = Vec::new();
        std::fs::File::from(file).take(READ_AT_MOST).read_to_end(&mut text).map_err(|_| Errno::IO)?;
        let text = String::from_utf8_lossy(&text);
        let mut lines: Vec<RecordLine> = Vec::new();
        for line in text.lines().filter_map(|line| record::read::<RecordLine>(line.as_bytes())) {
            if line.void {
                lines.retain(|known| (&known.session, &known.record) != (&line.session, &line.record));
            } else {
                lines.push(line);
            }
        }
        Ok(lines)
    }

    /// The breaks of `name`, oldest first.
    pub(super) fn read_breaks(&self, name: &Name) -> Result<Vec<Break>> {
        let lines = self.lines().map_err(|errno| fault("breaks", format_args!("{}/{BREAKS}", self.path), errno))?;
        Ok(lines.iter().filter(|line| line.name == name.as_str()).filter_map(RecordLine::order).collect())
    }

    /// The breaks of a session's grants.
    pub(super) fn breaks_of(&self, session: u64) -> Vec<Break> {
        let session = session_name(session);
        // An unreadable record only costs the reason.
        let lines = self.lines().unwrap_or_default();
        lines.iter().filter(|line| line.session == session).filter_map(RecordLine::order).collect()
    }
}
