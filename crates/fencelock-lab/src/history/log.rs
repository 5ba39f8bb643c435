//! The log that a process keeps of its sections: JSON lines, one line and one write call for each event. The README of
//! this crate documents the form.
//!
//! The log of a killed process has every event that the process wrote: the kernel has the bytes once the call returned, and
//! a line that was cut short lacks its end. Times are nanoseconds of the clock that all processes of one host share, see
//! [`SystemClock`].

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use fencelock::inspect::Claim;
use fencelock::time::{Clock, SystemClock};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The format of a process's log.
pub(super) const SECTIONS: &str = "fencelock-sections 1";
/// The format of a resource's log.
pub(super) const WRITES: &str = "fencelock-writes 1";

/// The first line of a log.
#[derive(Serialize, Deserialize)]
pub(super) struct Header<T> {
    pub(super) format: T,
    /// The process that writes the log; a resource has none.
    #[serde(skip_serializing_if = "Option::is_none", default = "Option::default")]
    pub(super) client: Option<T>,
}

/// A line of a process's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line<T> {
    /// The section's number, given by the process; 0 for events outside of a section.
    pub section: u64,
    /// The time of the event, in nanoseconds.
    pub at: u64,
    /// The event.
    #[serde(flatten)]
    pub event: LogEvent<T>,
}

/// An event in the life of a section; `T` is a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LogEvent<T> {
    /// The acquire is called.
    Acquire {
        /// The lock.
        lock: T,
        /// The claim of the request.
        #[serde(flatten, serialize_with = "write_claim", deserialize_with = "read_claim")]
        claim: Claim,
    },
    /// The place in the queue was taken, not before the call.
    Enqueued {
        /// Nanoseconds on the log's clock.
        called: u64,
    },
    /// The lock is granted.
    Granted {
        /// The fencing token, packed; `None` where the store has none.
        token: Option<i64>,
    },
    /// Another contender was ahead.
    Busy,
    /// The acquire timed out, was cancelled or failed.
    GaveUp,
    /// The holder is inside.
    Inside,
    /// The holder does not believe in its lock any more.
    BeliefEnds,
    /// The release is called.
    Release,
    /// The place is certainly gone from the store.
    Gone,
    /// Another process is certainly dead.
    Dead {
        /// The client of the dead process, as in the first line of its log.
        client: T,
    },
    /// A note for the reader of the log.
    Note {
        /// The note.
        text: T,
    },
}

/// A claim in a log.
#[derive(Serialize, Deserialize)]
struct Share {
    weight: u32,
    capacity: u32,
}

fn write_claim<S: Serializer>(claim: &Claim, to: S) -> Result<S::Ok, S::Error> {
    Share { weight: claim.weight(), capacity: claim.capacity() }.serialize(to)
}

fn read_claim<'de, D: Deserializer<'de>>(from: D) -> Result<Claim, D::Error> {
    let Share { weight, capacity } = Share::deserialize(from)?;
    Claim::new(weight, capacity).map_err(D::Error::custom)
}

/// A line of a resource's log.
#[derive(Serialize, Deserialize)]
pub(super) struct Written<T> {
    pub(super) lock: T,
    pub(super) token: i64,
    pub(super) accepted: bool,
}

/// Appends a line with one call.
fn append(mut file: &File, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    file.write_all(&text)
}

/// Writes one process's log. Threads and tasks may share it.
#[derive(Debug)]
pub struct LogWriter {
    file: File,
}

impl LogWriter {
    /// Starts the log at `path`, which must not exist, for the client `client`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn create(path: &Path, client: &str) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).open(path)?;
        append(&file, &Header { format: SECTIONS, client: Some(client) })?;
        Ok(Self { file })
    }

    /// Now, on the log's clock.
    #[must_use]
    pub fn now() -> u64 {
        SystemClock.now().as_nanos()
    }

    /// Logs that `event` happened to `section` now.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(&self, section: u64, event: LogEvent<&str>) -> io::Result<()> {
        self.write_at(section, Self::now(), event)
    }

    /// Logs that `event` happened to `section` at the time `at`.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write_at(&self, section: u64, at: u64, event: LogEvent<&str>) -> io::Result<()> {
        append(&self.file, &Line { section, at, event })
    }
}

/// The log of a fenced resource, shared by the processes that write to it.
#[derive(Debug)]
pub struct RegisterLog {
    file: File,
}

impl RegisterLog {
    /// Opens the log at `path`, or starts it. Only a single process may call this at a time.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        if file.metadata()?.len() == 0 {
            append(&file, &Header { format: WRITES, client: None })?;
        }
        Ok(Self { file })
    }

    /// Logs a write that comes with `token`. The caller has locked the resource, so that the order of the lines is the order
    /// of the decisions.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(&self, lock: &str, token: i64, accepted: bool) -> io::Result<()> {
        append(&self.file, &Written { lock, token, accepted })
    }
}
