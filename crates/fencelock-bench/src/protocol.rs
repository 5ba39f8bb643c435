//! The protocol of the parent and a worker: orders on the worker's stdin, answers on its stdout, a line each.
//!
//! A worker says `ready` once, then answers every order with `in` (to `enter`), `done` and what it counted, or
//! `failed` and why. Numbers go to the worker's log, as 64-bit little-endian integers, before it says `done`:
//! nanoseconds per cycle, or three per [`Section`].

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};

/// An order to a worker. Moments are [`now`]'s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Acquire and release `count` times without contention.
    Cycle { count: u64 },
    /// Let one more waiter, number `index`, queue for the lock, and take it once. With `hold` the lock is free, and the waiter keeps it
    /// until `Go`.
    Enter { index: u64, hold: bool },
    /// Let `count` more waiters queue, numbered from `first`, without waiting for one before the next comes.
    Fill { first: u64, count: u64 },
    /// Release the lock, and answer when every waiter has had it.
    Go,
    /// From `start` to `end`, let `waiters` (numbered from `first`) take and release the lock as often as they can.
    Contend { waiters: u64, first: u64, start: u64, end: u64 },
    /// As `Contend`, each waiter with a name of its own.
    Spread { waiters: u64, first: u64, start: u64, end: u64 },
    /// Hold `count` locks of different names, which `tasks` tasks take.
    Hold { count: u64, tasks: u64 },
    /// Let `count` wait for one lock that is held.
    Wait { count: u64 },
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycle { count } => write!(f, "cycle {count}"),
            Self::Enter { index, hold } => write!(f, "enter {index} {}", u8::from(*hold)),
            Self::Fill { first, count } => write!(f, "fill {first} {count}"),
            Self::Go => write!(f, "go"),
            Self::Contend { waiters, first, start, end } => write!(f, "contend {waiters} {first} {start} {end}"),
            Self::Spread { waiters, first, start, end } => write!(f, "spread {waiters} {first} {start} {end}"),
            Self::Hold { count, tasks } => write!(f, "hold {count} {tasks}"),
            Self::Wait { count } => write!(f, "wait {count}"),
        }
    }
}

impl FromStr for Order {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let mut words = line.split(' ');
        let verb = words.next().unwrap_or_default();
        let numbers: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>().with_context(|| line.to_owned())?;
        Ok(match (verb, numbers.as_slice()) {
            ("cycle", &[count]) => Self::Cycle { count },
            ("enter", &[index, hold]) => Self::Enter { index, hold: hold != 0 },
            ("fill", &[first, count]) => Self::Fill { first, count },
            ("go", []) => Self::Go,
            ("contend", &[waiters, first, start, end]) => Self::Contend { waiters, first, start, end },
            ("spread", &[waiters, first, start, end]) => Self::Spread { waiters, first, start, end },
            ("hold", &[count, tasks]) => Self::Hold { count, tasks },
            ("wait", &[count]) => Self::Wait { count },
            _ => bail!("not an order: {line:?}"),
        })
    }
}

/// A grant of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Section {
    /// The waiter's number.
    pub(crate) who: u64,
    /// The first moment at which the waiter has the lock.
    pub(crate) acquired: u64,
    /// The moment just before the waiter's release.
    pub(crate) releasing: u64,
}

/// Nanoseconds on `CLOCK_MONOTONIC`, which all processes of a machine share.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Writes a log of numbers.
pub(crate) fn write_log(path: &Path, numbers: &[u64]) -> Result<()> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    std::fs::write(path, bytes).with_context(|| path.display().to_string())
}

/// Writes a log of sections.
pub(crate) fn write_sections(path: &Path, sections: &[Section]) -> Result<()> {
    let numbers: Vec<u64> =
        sections.iter().flat_map(|section| [section.who, section.acquired, section.releasing]).collect();
    write_log(path, &numbers)
}

/// Reads a log of numbers.
pub(crate) fn read_log(path: &Path) -> Result<Vec<u64>> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    let (numbers, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        bail!("{} ends in the middle of a number", path.display());
    }
    Ok(numbers.iter().map(|number| u64::from_le_bytes(*number)).collect())
}

/// Reads a log of sections.
pub(crate) fn read_sections(path: &Path) -> Result<Vec<Section>> {
    let numbers = read_log(path)?;
    let (sections, rest) = numbers.as_chunks::<3>();
    if !rest.is_empty() {
        bail!("{} ends in the middle of a section", path.display());
    }
    Ok(sections.iter().map(|&[who, acquired, releasing]| Section { who, acquired, releasing }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        for order in [
            Order::Cycle { count: 3 },
            Order::Enter { index: 7, hold: true },
            Order::Fill { first: 1, count: 1000 },
            Order::Go,
            Order::Contend { waiters: 8, first: 16, start: 1, end: 2 },
            Order::Spread { waiters: 64, first: 0, start: 1, end: 2 },
            Order::Hold { count: 10_000, tasks: 64 },
            Order::Wait { count: 1000 },
        ] {
            assert_eq!(order.to_string().parse::<Order>().unwrap(), order);
        }
        assert!("cycle".parse::<Order>().is_err() && "cycle x".parse::<Order>().is_err());
    }
}
