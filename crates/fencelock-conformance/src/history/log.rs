//! The log that a process keeps of its sections: text, one line and one write call for each event.
//!
//! A process that is killed leaves every event that it wrote: the bytes are the kernel's once the call returned, and a
//! line that was cut short is recognised by its missing end. Times are nanoseconds of the clock that all processes of
//! one host share, see [`SystemClock`].
//!
//! The first line is `fencelock-history 1 <client>`. Every other one is `<letter> <section> <time> …`, where a section
//! is a number that the process gave:
//!
//! | letter | event | rest of the line |
//! |---|---|---|
//! | `a` | the acquire is called | weight, capacity, name of the lock (to the end of the line) |
//! | `q` | the place in the queue was taken by then | not before |
//! | `g` | granted | token, or `-` |
//! | `b` | busy | |
//! | `x` | timed out, cancelled or failed | |
//! | `i` | certainly inside | |
//! | `l` | the belief in the lock ends at this time | |
//! | `r` | the release is called | |
//! | `d` | the place is certainly gone from the store | |
//! | `k` | *another* process is certainly dead (section 0) | its client |
//! | `n` | a note for the reader (section 0) | text |
//!
//! A resource keeps a log of its own, first line `fencelock-register 1`, then `<token> <a or r> <name of the lock>` for
//! each write that it accepted or refused, in the order in which it decided.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use fencelock::inspect::Claim;
use fencelock::time::{Clock, SystemClock};

/// The first words of a history log.
pub(super) const HISTORY: &str = "fencelock-history 1";
/// The first words of a register's log.
pub(super) const REGISTER: &str = "fencelock-register 1";

/// One event in the life of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEvent<'a> {
    /// The acquire is called.
    Acquire {
        /// The lock.
        lock: &'a str,
        /// What is asked for.
        claim: Claim,
    },
    /// The place in the queue was taken by now, and not before `called`.
    Enqueued {
        /// Nanoseconds on the log's clock.
        called: u64,
    },
    /// The lock is granted.
    Granted {
        /// The fencing token, packed; `None` where the store has none.
        token: Option<i64>,
    },
    /// Somebody was ahead.
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
        /// Its client, as in the first line of its log.
        client: &'a str,
    },
    /// A note for the reader of the log.
    Note {
        /// One line.
        text: &'a str,
    },
}

/// Writes one process's log. May be shared by threads and tasks.
#[derive(Debug)]
pub struct LogWriter {
    file: File,
}

impl LogWriter {
    /// Starts the log at `path`, which must not exist, for the client `client`, a name without line breaks.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn create(path: &Path, client: &str) -> io::Result<Self> {
        let mut file = OpenOptions::new().append(true).create_new(true).open(path)?;
        file.write_all(format!("{HISTORY} {client}\n").as_bytes())?;
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
    /// Whatever the file system says.
    pub fn write(&self, section: u64, event: LogEvent<'_>) -> io::Result<()> {
        self.write_at(section, Self::now(), event)
    }

    /// Logs that `event` happened to `section` at the time `at`.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn write_at(&self, section: u64, at: u64, event: LogEvent<'_>) -> io::Result<()> {
        (&self.file).write_all(line(section, at, event).as_bytes())
    }
}

fn line(section: u64, at: u64, event: LogEvent<'_>) -> String {
    let mut line = format!("{} {section} {at}", letter(event));
    // Writing to a string cannot fail.
    let _ = match event {
        LogEvent::Acquire { lock, claim } => write!(line, " {} {} {lock}", claim.weight(), claim.capacity()),
        LogEvent::Enqueued { called } => write!(line, " {called}"),
        LogEvent::Granted { token: Some(token) } => write!(line, " {token}"),
        LogEvent::Granted { token: None } => write!(line, " -"),
        LogEvent::Dead { client: text } | LogEvent::Note { text } => write!(line, " {text}"),
        _ => Ok(()),
    };
    line.push('\n');
    line
}

const fn letter(event: LogEvent<'_>) -> char {
    match event {
        LogEvent::Acquire { .. } => 'a',
        LogEvent::Enqueued { .. } => 'q',
        LogEvent::Granted { .. } => 'g',
        LogEvent::Busy => 'b',
        LogEvent::GaveUp => 'x',
        LogEvent::Inside => 'i',
        LogEvent::BeliefEnds => 'l',
        LogEvent::Release => 'r',
        LogEvent::Gone => 'd',
        LogEvent::Dead { .. } => 'k',
        LogEvent::Note { .. } => 'n',
    }
}

/// The log of a fenced resource, shared by the processes that write to it.
#[derive(Debug)]
pub struct RegisterLog {
    file: File,
}

impl RegisterLog {
    /// Opens the log at `path`, or starts it. To be called by one process at a time.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        if file.metadata()?.len() == 0 {
            file.write_all(format!("{REGISTER}\n").as_bytes())?;
        }
        Ok(Self { file })
    }

    /// Logs a write that comes with `token`. To be called while the resource is locked, so that the order of the lines
    /// is the order of the decisions.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn write(&self, lock: &str, token: i64, accepted: bool) -> io::Result<()> {
        let verdict = if accepted { 'a' } else { 'r' };
        (&self.file).write_all(format!("{token} {verdict} {lock}\n").as_bytes())
    }
}
