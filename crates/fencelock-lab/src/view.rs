//! The harness's view of a running worker: the written part of its log.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use super::worker::FAILED;
use crate::history::{Line, LogEvent};

/// Follows the log of one worker.
#[derive(Debug)]
pub(super) struct View {
    path: PathBuf,
    /// The log; `None` as long as the worker has not started it.
    log: Option<File>,
    /// The beginning of a line whose end is not written yet.
    unread: String,
    /// The locks of sections without an answer, or not left yet.
    waiting: HashMap<u64, String>,
    held: HashMap<u64, String>,
    grants: HashMap<String, u64>,
    /// The worker's own reason for its end.
    failure: Option<String>,
}

impl View {
    /// A view of the log at `path`, which need not be there yet.
    pub(super) fn new(path: PathBuf) -> Self {
        let (waiting, held, grants) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { path, log: None, unread: String::new(), waiting, held, grants, failure: None }
    }

    /// Reads the next lines.
    pub(super) fn look(&mut self) -> io::Result<()> {
        if self.log.is_none() {
            self.log = match File::open(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                opened => Some(opened?),
            };
        }
        if let Some(log) = &mut self.log {
            log.read_to_string(&mut self.unread)?;
        }
        let whole = self.unread.rfind('\n').map_or(0, |end| end + 1);
        let rest = self.unread.split_off(whole);
        let lines = std::mem::replace(&mut self.unread, rest);
        for line in lines.lines() {
            self.line(line);
        }
        Ok(())
    }

    /// The first line has no section, and is skipped.
    fn line(&mut self, line: &str) {
        let Ok(Line::<String> { section, event, .. }) = serde_json::from_str(line) else { return };
        match event {
            LogEvent::Acquire { lock, .. } => drop(self.waiting.insert(section, lock)),
            LogEvent::Granted { .. } => {
                let Some(lock) = self.waiting.remove(&section) else { return };
                *self.grants.entry(lock.clone()).or_default() += 1;
                self.held.insert(section, lock);
            }
            LogEvent::Note { text } => self.failure = text.strip_prefix(FAILED).map(str::to_owned),
            LogEvent::Busy | LogEvent::GaveUp => drop(self.waiting.remove(&section)),
            LogEvent::Release | LogEvent::BeliefEnds => drop(self.held.remove(&section)),
            _ => {}
        }
    }

    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The worker's own reason for its end.
    pub(super) fn failure(&self) -> &str {
        self.failure.as_deref().unwrap_or("it does not say why")
    }

    /// How often the worker was granted `lock`.
    pub(super) fn grants_of(&self, lock: &str) -> u64 {
        self.grants.get(lock).copied().unwrap_or(0)
    }
}
