//! Work under a lock, again and again, so that two concurrent holders are found.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// Another client that believes to hold the lock gets its chance meanwhile.
const STAY: Duration = Duration::from_millis(1);

/// The work of a turn.
pub(crate) enum Work<'a> {
    /// Adds one to the number in a file; loses counts, and reports that, when two clients count at once.
    Count(&'a str),
    /// Reads the number, and reports when another client counts meanwhile.
    Look(&'a str),
    /// Takes a seat of this number, and leaves a byte in the file; reports a lack of seats.
    Sit(&'a str, u32),
}

impl<'a> Work<'a> {
    pub(crate) fn new(verb: &str, file: &'a str, rest: &[&str]) -> Result<Self> {
        match (verb, rest) {
            ("count", []) => Ok(Self::Count(file)),
            ("look", []) => Ok(Self::Look(file)),
            ("sit", [seats]) => Ok(Self::Sit(file, seats.parse()?)),
            _ => bail!("no such work: {verb} {rest:?}"),
        }
    }

    pub(crate) fn once(&self) -> Result<()> {
        match *self {
            Self::Count(file) => count(file),
            Self::Look(file) => look(file),
            Self::Sit(file, seats) => sit(file, seats),
        }
    }
}

fn count(file: &str) -> Result<()> {
    let occupied = occupied(file);
    if !made(&occupied)? {
        bail!("two holders at once");
    }
    let number = number(file)?;
    std::thread::sleep(STAY);
    fs::write(file, (number + 1).to_string())?;
    Ok(fs::remove_file(occupied)?)
}

fn look(file: &str) -> Result<()> {
    let occupied = occupied(file);
    let (was_occupied, before) = (Path::new(&occupied).exists(), number(file)?);
    std::thread::sleep(STAY);
    if was_occupied || Path::new(&occupied).exists() || number(file)? != before {
        bail!("a writer among readers");
    }
    Ok(())
}

fn sit(file: &str, seats: u32) -> Result<()> {
    for seat in 0..seats {
        let seat = format!("{file}.seat-{seat}");
        if made(&seat)? {
            OpenOptions::new().append(true).open(file).context(file.to_owned())?.write_all(b"x")?;
            std::thread::sleep(STAY);
            return Ok(fs::remove_file(seat)?);
        }
    }
    bail!("more than {seats} holders at once")
}

fn occupied(file: &str) -> String {
    format!("{file}.occupied")
}

/// Whether this process made the mark: no other client had made it.
fn made(mark: &str) -> Result<bool> {
    match OpenOptions::new().write(true).create_new(true).open(mark) {
        Ok(_) => Ok(true),
        Err(fault) if fault.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(fault) => Err(fault).context(mark.to_owned()),
    }
}

fn number(file: &str) -> Result<u64> {
    let text = fs::read_to_string(file).context(file.to_owned())?;
    text.trim().parse().with_context(|| format!("{file}: {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unexpected_contender_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file").to_str().unwrap().to_owned();
        fs::write(&file, "7").unwrap();
        Work::Count(&file).once().unwrap();
        Work::Look(&file).once().unwrap();
        assert_eq!(number(&file).unwrap(), 8);
        fs::write(occupied(&file), "").unwrap();
        for work in [Work::Count(&file), Work::Look(&file)] {
            assert!(work.once().is_err());
        }
        Work::Sit(&file, 2).once().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "8x");
        fs::write(format!("{file}.seat-0"), "").unwrap();
        fs::write(format!("{file}.seat-1"), "").unwrap();
        assert!(Work::Sit(&file, 2).once().is_err());
        Work::Sit(&file, 3).once().unwrap();
    }

    #[test]
    fn work_is_read_from_an_order() {
        assert!(matches!(Work::new("sit", "file", &["3"]), Ok(Work::Sit("file", 3))));
        assert!(Work::new("sit", "file", &[]).is_err() && Work::new("count", "file", &["3"]).is_err());
    }
}
