//! The numbers: `max(last + 1, wall clock, floor)`, always below a ceiling that is on disk.
//!
//! Counters are not synced. After a power cut they may be old, so a new boot starts at the ceiling of the one before;
//! the ceiling is synced, about ten minutes ahead of the clock, and so costs one sync in five minutes.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::fault::fault;
use super::files::{read, replace_file};
use super::layout::{CEILING, Root};
use crate::error::{Error, ErrorKind, Result};
use crate::token::FencingToken;

const FORMAT: &str = "fencelock ceiling 1";
/// Numbers per second: the clock is read in 1/128 ms.
const PER_SECOND: u64 = 128_000;
/// How far ahead of what is needed the ceiling is put.
const AHEAD: u64 = 600 * PER_SECOND;

/// The wall clock as a number.
pub(super) fn ticks(wall: SystemTime) -> u64 {
    let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs().saturating_mul(PER_SECOND).saturating_add(u64::from(since.subsec_nanos()) * 16 / 125_000)
}

/// The answer to [`Ceiling::draw`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Drawn {
    /// A number that nobody drew in this bucket before.
    Number(u64),
    /// Another process is moving the ceiling, and it must be moved: try again.
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
    boot: String,
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

    /// The number after `last` in a bucket whose lock the caller holds.
    pub(super) fn draw(&self, path: &str, root: &Root, last: u64, wall: SystemTime) -> Result<Drawn> {
        let mut known = self.lock();
        loop {
            let (floor, ceiling) = *known;
            let number = ticks(wall).max(last.saturating_add(1)).max(floor);
            if number >= FencingToken::GRANT_LIMIT {
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

    /// Moves the ceiling well before it is reached, outside of every bucket's lock. Failures show when it matters.
    pub(super) fn prepare(&self, path: &str, root: &Root, wall: SystemTime) {
        let mut known = self.lock();
        let wanted = ticks(wall).max(known.0).saturating_add(AHEAD / 2);
        if known.1 != 0 && wanted >= known.1 {
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
        let raised = self.raise_locked(path, root, number);
        unlock(&root.sessions);
        let limits = raised?.map_err(failed)?;
        *known = (limits.floor, limits.ceiling);
        Ok(true)
    }

    fn raise_locked(&self, path: &str, root: &Root, number: u64) -> Result<rustix::io::Result<Limits>> {
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
        if limits.boot == self.boot && number < limits.ceiling {
            // Whoever wrote it may have been killed before it was synced.
            return Ok(rustix::fs::fsync(&root.fd).map(|()| limits));
        }
        if limits.boot != self.boot {
            limits = Limits { boot: self.boot.clone(), floor: limits.ceiling, ceiling: limits.ceiling };
        }
        limits.ceiling = number.max(limits.floor).saturating_add(AHEAD);
        Ok(replace_file(&root.fd, CEILING, limits.encode().as_bytes(), root.modes).map(|()| limits))
    }
}

/// Gives a short internal lock back. It cannot fail on an open descriptor; closing it would do the same.
pub(super) fn unlock(fd: &OwnedFd) {
    let _ = rustix::fs::flock(fd, FlockOperation::Unlock);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_clock_counts_128_to_the_millisecond() {
        assert_eq!(ticks(UNIX_EPOCH + Duration::from_millis(3)), 384);
        assert_eq!(ticks(UNIX_EPOCH + Duration::new(1, 999_999_999)), 255_999);
        assert_eq!(ticks(UNIX_EPOCH - Duration::from_secs(1)), 0);
    }

    #[test]
    fn limits_are_read_back_and_damage_is_noticed() {
        let limits = Limits { boot: "b-1".to_owned(), floor: 7, ceiling: 9 };
        let text = limits.encode();
        assert_eq!(Limits::decode(&text), Some(limits));
        assert_eq!(Limits::decode("fencelock ceiling 2\nboot b\nfloor 1\nceiling 2\n"), None);
        assert_eq!(Limits::decode("fencelock ceiling 1\nboot b\n"), None);
    }
}
