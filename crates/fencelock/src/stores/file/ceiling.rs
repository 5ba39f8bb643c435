//! The numbers: `max(last + 1, wall clock, floor)`, always below a ceiling that is on disk.
//!
//! Counters are not synced. After a power cut they may be old, so a new boot starts at the ceiling of the one before;
//! the ceiling is synced, about ten minutes ahead of the clock, and so costs one sync in five minutes.

use std::os::fd::OwnedFd;
use std::time::SystemTime;

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::fault::fault;
use super::files::{open_file, read, replace_file};
use super::layout::{CEILING, Root};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::number::{PER_SECOND, clock_number};
use crate::kit::record;
use crate::sync::Mutex;
use crate::token::FencingToken;

/// How far the ceiling is moved ahead of the need.
const AHEAD: u64 = 600 * PER_SECOND;

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Limits {
    boot: String,
    floor: u64,
    ceiling: u64,
}

/// The ceiling, as this process last saw it.
#[derive(Debug)]
pub(super) struct Ceiling {
    /// The id of this boot.
    boot: String,
    /// Floor and ceiling; zero before the file was read.
    known: Mutex<(u64, u64)>,
}

impl Ceiling {
    pub(super) fn new(boot: String) -> Self {
        // Nothing is below a ceiling of 0, so the first draw reads the file.
        Self { boot, known: Mutex::new((0, 0)) }
    }

    /// The first content in a new directory.
    pub(super) fn first(boot: &str) -> Result<String> {
        record::text("set up", &Limits { boot: boot.to_owned(), floor: 0, ceiling: 0 })
    }

    /// The number after `last` in a bucket whose lock the caller holds; `None` if the ceiling must be moved first, or is being moved.
    pub(super) fn draw(&self, last: u64, wall: SystemTime) -> Option<u64> {
        let (floor, ceiling) = *self.known.try_lock()?;
        Some(next_number(last, wall, floor)).filter(|number| *number < ceiling)
    }

    /// Puts the ceiling above the number after `last`, or takes over a higher one; `false` while another process has its lock. This waits
    /// for the disk, so no caller holds the lock of a bucket.
    pub(super) fn raise(&self, path: &str, root: &Root, last: u64, wall: SystemTime) -> Result<bool> {
        let failed = |errno| fault("raise the ceiling", format_args!("{path}/{CEILING}"), errno);
        let mut known = self.known.lock();
        match rustix::fs::flock(&root.sessions, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(errno) => return Err(failed(errno)),
        }
        let raised = self.raise_locked(path, root, last, wall, known.1 > 0);
        unlock(&root.sessions);
        let limits = raised?;
        // The process that wrote it may have been killed before it was synced. Outside of the lock: a sync takes long.
        let file = open_file(&root.fd, CEILING, OFlags::RDONLY);
        file.and_then(rustix::fs::fsync).and_then(|()| rustix::fs::fsync(&root.fd)).map_err(failed)?;
        *known = (limits.floor, limits.ceiling);
        Ok(true)
    }

    /// A ceiling that was written after this process first read the file (`is_known`) is of the present boot.
    fn raise_locked(&self, path: &str, root: &Root, last: u64, wall: SystemTime, is_known: bool) -> Result<Limits> {
        let file = format!("{path}/{CEILING}");
        let failed = |errno| fault("raise the ceiling", &file, errno);
        let wrong = |kind, message| Error::new(kind, "raise the ceiling", message).with("path", &file);
        let text = read(&root.fd, CEILING).map_err(failed)?.unwrap_or_default();
        let Some(mut limits) = record::read::<Limits>(&text) else {
            let message = "the file is damaged or missing, so no number is known to be new; put it back, or remove the whole directory while no process uses it";
            return Err(wrong(ErrorKind::Layout, message));
        };
        let is_same = is_known || limits.boot == self.boot;
        if !is_same {
            limits.floor = limits.ceiling;
        }
        let number = next_number(last, wall, limits.floor);
        if is_same && number < limits.ceiling {
            return Ok(limits);
        }
        limits.boot.clone_from(&self.boot);
        limits.ceiling = number.saturating_add(AHEAD);
        if FencingToken::new(limits.ceiling).is_none() {
            let message = "the numbers of this directory are used up; is the clock right?";
            return Err(wrong(ErrorKind::Exhausted, message).with("number", number));
        }
        let text = record::text("raise the ceiling", &limits)?;
        replace_file(&root.fd, CEILING, text.as_bytes(), root.modes).map_err(failed).map(|()| limits)
    }
}

/// The number after the last one, and never behind the clock and the floor.
fn next_number(last: u64, wall: SystemTime, floor: u64) -> u64 {
    clock_number(wall).max(last.saturating_add(1)).max(floor)
}

/// Releases a short internal lock. The call cannot fail on an open descriptor; closing the descriptor would do the same.
pub(super) fn unlock(fd: &OwnedFd) {
    let _ = rustix::fs::flock(fd, FlockOperation::Unlock);
}
