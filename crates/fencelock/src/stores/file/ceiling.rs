//! The numbers: `max(last + 1, wall clock, floor)`, always below a ceiling that is on disk.
//!
//! Counters are not synced. After a power cut they may be old, so a new boot starts at the ceiling of the one before;
//! the ceiling is synced, about ten minutes ahead of the clock, and so costs one sync in five minutes.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use super::fault::fault;
use super::files::{open_file, read, replace_file};
use super::layout::{CEILING, Root};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::number::{PER_SECOND, clock_number};
use crate::token::FencingToken;

const FORMAT: &str = "fencelock ceiling 1";
/// How far ahead of what is needed the ceiling is put.
const AHEAD: u64 = 600 * PER_SECOND;

/// The answer to [`Ceiling::draw`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Drawn {
    /// A number that nobody drew in this bucket before.
    Number(u64),
    /// The ceiling must be moved, and somebody is at it, or it takes too long here: try again.
    Busy,
}

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Limits {
    boot: String,
    floor: u64,
    ceiling: u64,
}

impl Limits {
    fn encode(&self) -> String {
        format!("{FORMAT}\nboot {}\nfloor {}\nceiling {}\n", self.boot, self.floor, self.ceiling)
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.split_terminator('\n');
        let limits = (lines.next()? == FORMAT).then(|| {
            Some(Self {
                boot: lines.next()?.strip_prefix("boot ")?.to_owned(),
                floor: lines.next()?.strip_prefix("floor ")?.parse().ok()?,
                ceiling: lines.next()?.strip_prefix("ceiling ")?.parse().ok()?,
            })
        });
        limits.flatten()
    }
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

    /// What a new directory starts with.
    pub(super) fn first(boot: &str) -> String {
        Limits { boot: boot.to_owned(), floor: 0, ceiling: 0 }.encode()
    }

    /// The number after `last` in a bucket whose lock the caller holds, if the ceiling need not be moved soon: that waits
    /// for the disk.
    pub(super) fn draw_now(&self, last: u64, wall: SystemTime) -> Drawn {
        let known = match self.known.try_lock() {
            Ok(known) => *known,
            Err(TryLockError::Poisoned(known)) => *known.into_inner(),
            // Somebody may be moving it.
            Err(TryLockError::WouldBlock) => return Drawn::Busy,
        };
        let number = next_number(last, wall, known.0);
        let is_far = wanted(wall, known).is_none() && number < known.1 && FencingToken::new(number).is_some();
        if is_far { Drawn::Number(number) } else { Drawn::Busy }
    }

    /// The number after `last` in a bucket whose lock the caller holds.
    pub(super) fn draw(&self, path: &str, root: &Root, last: u64, wall: SystemTime) -> Result<Drawn> {
        let mut known = self.lock();
        loop {
            let (floor, ceiling) = *known;
            let number = next_number(last, wall, floor);
            if FencingToken::new(number).is_none() {
                return Err(Error::new(
                    ErrorKind::Exhausted,
                    "enter",
                    "the numbers of this directory are used up; is the clock right?",
                )
                .with("path", path)
                .with("number", number));
            }
            if number < ceiling {
                return Ok(Drawn::Number(number));
            }
            if !self.raise(path, root, number, &mut known)? {
                return Ok(Drawn::Busy);
            }
        }
    }

    /// Learns the ceiling, and moves it well before it is reached, outside of every bucket's lock. Failures show when it
    /// matters.
    pub(super) fn prepare(&self, path: &str, root: &Root, wall: SystemTime) {
        let mut known = self.lock();
        if let Some(wanted) = wanted(wall, *known) {
            let _ = self.raise(path, root, wanted, &mut known);
        }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, u64)> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the ceiling above `number`, or takes over that somebody did; `false` when somebody is at it.
    fn raise(&self, path: &str, root: &Root, number: u64, known: &mut (u64, u64)) -> Result<bool> {
        let failed = |errno| fault("raise the ceiling", format_args!("{path}/{CEILING}"), errno);
        match rustix::fs::flock(&root.sessions, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(errno) => return Err(failed(errno)),
        }
        let raised = self.raise_locked(path, root, number, known.1 > 0);
        unlock(&root.sessions);
        let (limits, is_synced) = raised?.map_err(failed)?;
        if !is_synced {
            // The process that wrote it may have been killed before it was synced. Outside of the lock: a sync takes long.
            let file = open_file(&root.fd, CEILING, OFlags::RDONLY);
            file.and_then(rustix::fs::fsync).and_then(|()| rustix::fs::fsync(&root.fd)).map_err(failed)?;
        }
        *known = (limits.floor, limits.ceiling);
        Ok(true)
    }

    /// The limits, and whether they are on disk. What was written since this process read the file first (`is_known`) is of
    /// its own boot.
    fn raise_locked(
        &self,
        path: &str,
        root: &Root,
        number: u64,
        is_known: bool,
    ) -> Result<rustix::io::Result<(Limits, bool)>> {
        let text = match read(&root.fd, CEILING) {
            Ok(text) => text.unwrap_or_default(),
            Err(errno) => return Ok(Err(errno)),
        };
        let Some(mut limits) = Limits::decode(&text) else {
            return Err(Error::new(
                ErrorKind::Layout,
                "raise the ceiling",
                "the file is damaged or missing, so no number is known to be new; put it back, or remove the whole directory while nobody uses it",
            )
            .with("path", format_args!("{path}/{CEILING}")));
        };
        let is_same = is_known || limits.boot == self.boot;
        if is_same && number < limits.ceiling {
            return Ok(Ok((limits, false)));
        }
        if !is_same {
            limits.floor = limits.ceiling;
        }
        limits.boot.clone_from(&self.boot);
        limits.ceiling = number.max(limits.floor).saturating_add(AHEAD);
        let replaced = replace_file(&root.fd, CEILING, limits.encode().as_bytes(), root.modes);
        Ok(replaced.map(|()| (limits, true)))
    }
}

/// Where the ceiling should be moved above, if it is near: the floor and the ceiling are known.
fn wanted(wall: SystemTime, known: (u64, u64)) -> Option<u64> {
    let wanted = clock_number(wall).max(known.0).saturating_add(AHEAD / 2);
    (wanted >= known.1).then_some(wanted)
}

/// Past the last one, and never behind the clock and the floor.
fn next_number(last: u64, wall: SystemTime, floor: u64) -> u64 {
    clock_number(wall).max(last.saturating_add(1)).max(floor)
}

/// Gives a short internal lock back. It cannot fail on an open descriptor; closing it would do the same.
pub(super) fn unlock(fd: &OwnedFd) {
    let _ = rustix::fs::flock(fd, FlockOperation::Unlock);
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn limits_are_read_back_and_damage_is_noticed() {
        let limits = Limits { boot: "b-1".to_owned(), floor: 7, ceiling: 9 };
        let text = limits.encode();
        assert_eq!(Limits::decode(&text), Some(limits));
        assert_eq!(Limits::decode("fencelock ceiling 2\nboot b\nfloor 1\nceiling 2\n"), None);
        assert_eq!(Limits::decode("fencelock ceiling 1\nboot b\n"), None);
    }
}
