//! What every process of the drill writes down: one line per section, and how often it was woken.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

/// One section. Moments are nanoseconds of the machine's boot clock, the same for all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) worker: u32,
    /// When the lock was asked for.
    pub(super) asked: u64,
    /// When it was had.
    pub(super) granted: u64,
    /// Just before it was released.
    pub(super) releasing: u64,
    /// The fencing token; 0 where there is none.
    pub(super) token: i64,
}

/// The sections of one process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) woken: u64,
    pub(super) sections: Vec<Section>,
}

impl Log {
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = format!("{}\n", self.woken);
        for Section { worker, asked, granted, releasing, token } in &self.sections {
            let _ = writeln!(text, "{worker} {asked} {granted} {releasing} {token}");
        }
        fs::write(path, text)
    }

    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        Self::parse(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a log of workers is not whole"))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let woken = lines.next()?.parse().ok()?;
        let sections = lines.map(section).collect::<Option<_>>()?;
        Some(Self { woken, sections })
    }
}

fn section(line: &str) -> Option<Section> {
    let mut fields = line.split(' ');
    Some(Section {
        worker: fields.next()?.parse().ok()?,
        asked: fields.next()?.parse().ok()?,
        granted: fields.next()?.parse().ok()?,
        releasing: fields.next()?.parse().ok()?,
        token: fields.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back() {
        let section = Section { worker: 3, asked: 1, granted: 2, releasing: u64::MAX, token: -1 };
        let log = Log { woken: 7, sections: vec![section, section] };
        let file = tempfile::NamedTempFile::new().unwrap();
        log.write(file.path()).unwrap();
        assert_eq!(Log::read(file.path()).unwrap(), log);
        assert_eq!(Log::parse("1\n2 3"), None);
    }
}
