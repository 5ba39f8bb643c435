//! Reading logs back into a history.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use serde::de::DeserializeOwned;

use super::log::{Header, Line, LogEvent, SECTIONS, WRITES, Written};
use super::section::{Answer, Enqueue, History, Section, Write};

/// Reads every `*.log` of `directory`. The store may keep the places of a process for `linger` nanoseconds after another
/// log said that the process is dead.
///
/// # Errors
/// Errors of the file system; [`io::ErrorKind::InvalidData`] with file and line for a line that is not understood. A
/// last line that was cut short is not an error.
pub fn read_directory(directory: &Path, linger: u64) -> io::Result<History> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut reader = Reader::default();
    for path in paths {
        reader.file(&path)?;
    }
    let Reader { mut history, dead } = reader;
    for section in &mut history.sections {
        let Some(died) = dead.get(&history.clients[section.client as usize]) else { continue };
        history.deaths.insert(section.client, *died);
        section.gone = section.gone.or(Some(died.saturating_add(linger)));
    }
    Ok(history)
}

#[derive(Default)]
struct Reader {
    history: History,
    /// The dead clients, and the time at which each was certainly dead.
    dead: HashMap<String, u64>,
}

enum Log {
    Writes,
    Sections { client: u32, sections: HashMap<u64, usize> },
}

fn parse<T: DeserializeOwned>(line: &str) -> Option<T> {
    serde_json::from_str(line).ok()
}

impl Reader {
    fn file(&mut self, path: &Path) -> io::Result<()> {
        let mut file = BufReader::new(std::fs::File::open(path)?);
        let mut line = String::new();
        let mut log: Option<Log> = None;
        for number in 1.. {
            line.clear();
            file.read_line(&mut line)?;
            let Some(line) = line.strip_suffix('\n') else { break };
            let understood = match &mut log {
                None => self.first_line(line).map(|kind| log = Some(kind)),
                Some(Log::Writes) => parse(line).map(|written: Written<String>| {
                    let Written { lock, token, accepted } = written;
                    let lock = self.history.lock(&lock);
                    self.history.writes.push(Write { lock, token, accepted });
                }),
                Some(Log::Sections { client, sections }) => {
                    parse(line).and_then(|line| self.event(*client, sections, line))
                }
            };
            understood.ok_or_else(|| {
                let fault = format!("{}:{number}: not understood: {line}", path.display());
                io::Error::new(io::ErrorKind::InvalidData, fault)
            })?;
        }
        Ok(())
    }

    fn first_line(&mut self, line: &str) -> Option<Log> {
        let Header::<String> { format, client } = parse(line)?;
        match (format.as_str(), client) {
            (WRITES, None) => Some(Log::Writes),
            (SECTIONS, Some(client)) => {
                Some(Log::Sections { client: self.history.client(&client), sections: HashMap::new() })
            }
            _ => None,
        }
    }

    /// Returns `None` where the section of the event was never called.
    fn event(&mut self, client: u32, sections: &mut HashMap<u64, usize>, line: Line<String>) -> Option<()> {
        let Line { section: number, at, event } = line;
        match event {
            LogEvent::Acquire { lock, claim } => {
                sections.insert(number, self.history.sections.len());
                let section = Section::called(self.history.lock(&lock), client, claim, at);
                self.history.sections.push(section);
            }
            LogEvent::Dead { client } => drop(self.dead.insert(client, at)),
            LogEvent::Note { .. } => {}
            event => self.history.sections[*sections.get(&number)?].happened(at, &event),
        }
        Some(())
    }
}

impl Section {
    fn happened<T>(&mut self, at: u64, event: &LogEvent<T>) {
        match *event {
            LogEvent::Enqueued { called } => self.enqueue = Some(Enqueue { called, returned: at }),
            LogEvent::Granted { token } => self.answer = Answer::Granted { at, token },
            LogEvent::Busy => self.answer = Answer::Busy { at },
            LogEvent::GaveUp => self.answer = Answer::GaveUp { at },
            LogEvent::Inside => self.seen_inside = self.seen_inside.max(at),
            LogEvent::BeliefEnds => self.belief_end = Some(self.belief_end.map_or(at, |earlier| earlier.min(at))),
            // A release that failed is called again; the first call ends the core.
            LogEvent::Release => self.released = self.released.or(Some(at)),
            LogEvent::Gone => self.gone = Some(at),
            LogEvent::Acquire { .. } | LogEvent::Dead { .. } | LogEvent::Note { .. } => {}
        }
    }
}
