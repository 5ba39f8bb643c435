//! Reading logs back into a history.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use fencelock::inspect::Claim;

use super::log::{HISTORY, REGISTER};
use super::section::{Answer, Enqueue, History, Section, Write};

/// Reads every `*.log` of `directory`. A process of which another log says that it is dead is certainly gone from the
/// store `linger` nanoseconds after that.
///
/// # Errors
/// Whatever the file system says; [`io::ErrorKind::InvalidData`] with file and line for one that is not understood. A
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
    for path in &paths {
        reader.file(path)?;
    }
    Ok(reader.finish(linger))
}

/// Reads one log; see [`read_directory`].
///
/// # Errors
/// As [`read_directory`].
pub fn read_log(path: &Path, linger: u64) -> io::Result<History> {
    let mut reader = Reader::default();
    reader.file(path)?;
    Ok(reader.finish(linger))
}

#[derive(Default)]
struct Reader {
    history: History,
    /// Who is dead, and by when.
    dead: HashMap<String, u64>,
}

/// What a line may lack.
type Understood = Option<()>;

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
                Some(Log::Register) => self.register_line(line),
                Some(Log::History { client, sections }) => self.history_line(*client, sections, line),
            };
            understood.ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{}:{number}: not understood: {line}", path.display()),
                )
            })?;
        }
        Ok(())
    }

    fn first_line(&mut self, line: &str) -> Option<Log> {
        if line == REGISTER {
            return Some(Log::Register);
        }
        let client = line.strip_prefix(HISTORY)?.strip_prefix(' ')?;
        Some(Log::History { client: self.history.client(client), sections: HashMap::new() })
    }

    fn register_line(&mut self, line: &str) -> Understood {
        let mut words = line.splitn(3, ' ');
        let token = words.next()?.parse().ok()?;
        let accepted = match words.next()? {
            "a" => true,
            "r" => false,
            _ => return None,
        };
        let lock = self.history.lock(words.next()?);
        self.history.writes.push(Write { lock, token, accepted });
        Some(())
    }

    fn history_line(&mut self, client: u32, sections: &mut HashMap<u64, usize>, line: &str) -> Understood {
        let mut words = line.splitn(4, ' ');
        let letter = words.next()?;
        let number: u64 = words.next()?.parse().ok()?;
        let at: u64 = words.next()?.parse().ok()?;
        let rest = words.next();
        match letter {
            "a" => {
                sections.insert(number, self.history.sections.len());
                let section = self.called(client, at, rest?)?;
                self.history.sections.push(section);
            }
            "k" => {
                self.dead.insert(rest?.to_owned(), at);
            }
            "n" => {}
            _ => event(&mut self.history.sections[*sections.get(&number)?], letter, at, rest)?,
        }
        Some(())
    }

    fn called(&mut self, client: u32, at: u64, rest: &str) -> Option<Section> {
        let mut words = rest.splitn(3, ' ');
        let weight = words.next()?.parse().ok()?;
        let claim = Claim::new(weight, words.next()?.parse().ok()?).ok()?;
        Some(Section::called(self.history.lock(words.next()?), client, claim, at))
    }

    fn finish(mut self, linger: u64) -> History {
        for section in &mut self.history.sections {
            let died = self.dead.get(&self.history.clients[section.client as usize]);
            let gone = died.map(|died| died.saturating_add(linger));
            section.gone = section.gone.or(gone);
        }
        self.history
    }
}

enum Log {
    Register,
    History { client: u32, sections: HashMap<u64, usize> },
}

fn event(section: &mut Section, letter: &str, at: u64, rest: Option<&str>) -> Understood {
    match letter {
        "q" => section.enqueue = Some(Enqueue { called: rest?.parse().ok()?, returned: at }),
        "g" => {
            let token = match rest? {
                "-" => None,
                token => Some(token.parse().ok()?),
            };
            section.answer = Answer::Granted { at, token };
        }
        "b" => section.answer = Answer::Busy { at },
        "x" => section.answer = Answer::GaveUp { at },
        "i" => section.seen_inside = section.seen_inside.max(at),
        "l" => section.belief_end = Some(section.belief_end.map_or(at, |earlier| earlier.min(at))),
        // A release that failed is called again; the first call ends the core.
        "r" => section.released = section.released.or(Some(at)),
        "d" => section.gone = Some(at),
        _ => return None,
    }
    Some(())
}
