//! The log of each process of the drill: its sections, and how often it was woken.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A section. Moments are nanoseconds of the machine's boot clock, the same for all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Section {
    pub(super) worker: u32,
    pub(super) asked: u64,
    pub(super) granted: u64,
    pub(super) releasing: u64,
    /// The fencing token; 0 where there is none.
    pub(super) token: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Log {
    pub(super) woken: u64,
    pub(super) sections: Vec<Section>,
}

impl Log {
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, serde_json::to_vec(self)?)
    }

    pub(super) fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(path)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_log_is_read_back() {
        let section = Section { worker: 3, asked: 1, granted: 2, releasing: u64::MAX, token: -1 };
        let log = Log { woken: 7, sections: vec![section, section] };
        let file = tempfile::NamedTempFile::new().unwrap();
        log.write(file.path()).unwrap();
        assert_eq!(Log::read(file.path()).unwrap(), log);
        fs::write(file.path(), "{").unwrap();
        assert!(Log::read(file.path()).is_err());
    }
}
