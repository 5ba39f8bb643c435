//! The messages of the command on stderr, and its exit: a line per message, no secrets, no control characters.

use std::error::Error as StdError;
use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use fencelock::{Error, ErrorKind};

use crate::terminal::undisturbed;

/// The most lines that wait while stderr accepts none; further lines are dropped.
const UNWRITTEN: usize = 64;

/// How long the command waits at its end for a stderr that accepts no lines.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The queue of the thread that writes lines; in use once no caller may wait for stderr.
static WRITER: OnceLock<SyncSender<Written>> = OnceLock::new();

enum Written {
    Line(String),
    /// Answered once every earlier line is written.
    Done(SyncSender<()>),
}

/// Exit codes besides the child's own. Numbers from `sysexits.h` where it has one; 126 and 127 as shells use them.
pub(crate) mod code {
    /// Wrong usage: arguments, names, durations, store URLs.
    pub(crate) const USAGE: u8 = 64;
    /// The store holds something that this release does not understand, or another kind of lock has the name.
    pub(crate) const DATA: u8 = 65;
    /// The store cannot be reached.
    pub(crate) const UNAVAILABLE: u8 = 69;
    /// A bug of fencelock or of the store.
    pub(crate) const SOFTWARE: u8 = 70;
    /// The store or the machine has no room: disk, memory, descriptors, processes.
    pub(crate) const OS: u8 = 71;
    /// Another client of this host waits for the job already.
    pub(crate) const WAITS: u8 = 72;
    /// A command around this one holds the lock, and waits for this one.
    pub(crate) const NESTED: u8 = 73;
    /// Output could not be written.
    pub(crate) const IO: u8 = 74;
    /// The lock was busy, or the wait limit passed.
    pub(crate) const BUSY: u8 = 75;
    /// The lock was lost, or held for `--max-hold`, and the command was stopped.
    pub(crate) const LOST: u8 = 76;
    /// The store refused: permissions, credentials.
    pub(crate) const DENIED: u8 = 77;
    /// A configuration file, or its replacement in the environment, is wrong or missing.
    pub(crate) const CONFIG: u8 = 78;
    /// The command exists and cannot be executed.
    pub(crate) const NOT_EXECUTABLE: u8 = 126;
    pub(crate) const NOT_FOUND: u8 = 127;
}

/// The failure that ends the command: its message, if any, and its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: Option<String>,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: Some(message.into()) }
    }

    /// Ends with `code` and says nothing more.
    pub(crate) fn silent(code: u8) -> Self {
        Self { code, message: None }
    }

    /// An operating system's error while doing `what`.
    pub(crate) fn os(what: impl fmt::Display, error: &io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => code::DENIED,
            _ => code::OS,
        };
        Self::new(code, format!("{what}: {error}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(code_of(&error), chain(&error))
    }
}

/// The failure of output that could not be written. A reader that went away is no failure.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::silent(0),
            _ => Self::new(code::IO, format!("cannot write: {error}")),
        }
    }
}

pub(crate) fn code_of(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::Config | ErrorKind::InvalidName | ErrorKind::Unsupported => code::USAGE,
        ErrorKind::Conflict | ErrorKind::Layout => code::DATA,
        ErrorKind::Unreachable => code::UNAVAILABLE,
        // The store did not say that another client has the lock: the wait was too short, or a transaction kept its rows.
        _ if error.is_contention() && error.contention().is_none() => code::UNAVAILABLE,
        ErrorKind::Exhausted => code::OS,
        ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::QueueFull => code::BUSY,
        ErrorKind::Lost => code::LOST,
        ErrorKind::Denied => code::DENIED,
        _ => code::SOFTWARE,
    }
}

/// `error` and its sources, without repetition, in one line.
pub(crate) fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            let _ = write!(text, ": {cause}");
        }
        source = error.source();
    }
    text
}

/// `duration` to the millisecond: the rest is a timer's inexactness.
pub(crate) fn rounded(duration: Duration) -> Duration {
    let duration = duration.saturating_add(Duration::from_micros(500));
    duration - Duration::from_nanos((duration.subsec_nanos() % 1_000_000).into())
}

/// Prints `message` on stderr. A stderr that cannot be written to is no failure.
pub(crate) fn say(message: impl fmt::Display) {
    write(&harmless(&redacted(&message.to_string()), false));
}

/// As [`say`], and keeps line breaks: for texts of our own that have several lines.
pub(crate) fn say_lines(message: &str) {
    write(&harmless(&redacted(message), true));
}

fn write(text: &str) {
    let line = format!("fencelock: {text}\n");
    match WRITER.get() {
        // A further line is left out.
        Some(writer) => drop(writer.try_send(Written::Line(line))),
        None => put(&line),
    }
}

fn put(line: &str) {
    let _ = undisturbed(|| io::stderr().lock().write_all(line.as_bytes()));
}

/// From now on a thread writes the messages: no holder of a lock, and no process that ends one, may wait for a reader of stderr.
/// Where no thread can be started, messages are written at once as before.
pub(crate) fn never_wait() {
    let (writer, unwritten) = mpsc::sync_channel(UNWRITTEN);
    let write = move || {
        for written in unwritten {
            match written {
                Written::Line(line) => put(&line),
                Written::Done(done) => drop(done.try_send(())),
            }
        }
    };
    if thread::Builder::new().name("fencelock-say".to_owned()).spawn(write).is_ok() {
        let _ = WRITER.set(writer);
    }
}

/// Waits until all messages are written, for [`LAST_WORDS`] at most.
pub(crate) fn finish() {
    let Some(writer) = WRITER.get() else { return };
    let (done, is_done) = mpsc::sync_channel(1);
    if writer.try_send(Written::Done(done)).is_ok() {
        let _: Result<(), RecvTimeoutError> = is_done.recv_timeout(LAST_WORDS);
    }
}

/// Spells out control characters, so that names and purposes of strangers cannot control a terminal.
///
/// With `lines`, line breaks stay (usage messages have several lines).
pub(crate) fn harmless(text: &str, lines: bool) -> String {
    let obeyed = |c: char| (c.is_control() || is_reordering(c)) && !(lines && c == '\n');
    if !text.contains(obeyed) {
        return text.to_owned();
    }
    text.chars().fold(String::with_capacity(text.len() + 8), |mut escaped, c| {
        if obeyed(c) {
            escaped.extend(c.escape_default())
        } else {
            escaped.push(c)
        }
        escaped
    })
}

/// Characters that change the order in which the rest of the line is shown, or begin another line.
fn is_reordering(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` with the user and password of every URL in it replaced, and the values of options that may be secret.
pub(crate) fn redacted(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("://") {
        let (before, after) = rest.split_at(start + 3);
        shown.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || matches!(c, '/' | '\'' | '"' | '`')).unwrap_or(after.len());
        match after[..end].rfind('@') {
            Some(at) => {
                shown.push_str("***");
                rest = &after[at..];
            }
            None => rest = after,
        }
    }
    shown.push_str(rest);
    shown
}

/// The failure of a `program` that cannot be executed, with the exit codes of shells.
pub(crate) fn not_started(program: &OsString, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => code::NOT_FOUND,
        _ => code::NOT_EXECUTABLE,
    };
    // A whole line in one pair of quotes is a file's name to the kernel.
    let is_line =
        program.to_str().is_some_and(|line| line.contains(|c: char| c.is_whitespace() || "|&;<>$".contains(c)));
    let hint = if is_line { "; for a line of the shell write: -- sh -c 'LINE'" } else { "" };
    Failure::new(code, format!("cannot execute {program:?}: {error}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_said_to_the_millisecond() {
        for (nanos, millis) in [(2_999_999_999, 3000), (1_333_333_333, 1333), (30_000_000_000, 30_000), (0, 0)] {
            assert_eq!(rounded(Duration::from_nanos(nanos)), Duration::from_millis(millis));
        }
    }

    #[test]
    fn credentials_are_replaced_wherever_a_url_stands() {
        assert_eq!(redacted("no URL at all"), "no URL at all");
        assert_eq!(redacted("'redis://me:s@cret@h:1/0' and zk://h"), "'redis://***@h:1/0' and zk://h");
        assert_eq!(redacted("a://b@c d://e@f"), "a://***@c d://***@f");
    }

    #[test]
    fn control_characters_of_a_terminal_are_escaped() {
        assert_eq!(harmless("plain é", false), "plain é");
        assert_eq!(harmless("a\u{1b}[2Jb\nc", false), "a\\u{1b}[2Jb\\nc");
        assert_eq!(harmless("a\nb", true), "a\nb");
        assert_eq!(harmless("abc\u{202e}txt", false), "abc\\u{202e}txt");
    }

    #[test]
    fn an_error_is_shown_with_everything_underneath() {
        let error = Error::new(ErrorKind::Denied, "open", "refused").caused_by(io::Error::other("the cause"));
        let failure = Failure::from(error);
        assert_eq!(failure.code, code::DENIED);
        assert_eq!(failure.message.as_deref(), Some("open: refused: the cause"));
        let error = Error::new(ErrorKind::Denied, "open", "refused").with("cause", "the cause");
        let failure = Failure::from(error.caused_by(io::Error::other("the cause")));
        assert_eq!(failure.message.as_deref(), Some("open: refused (cause the cause)"), "said once");
    }

    #[test]
    fn a_wait_that_the_store_did_not_answer_is_not_called_a_busy_lock() {
        let unanswered = Error::new(ErrorKind::TimedOut, "acquire", "not answered yet");
        assert_eq!(code_of(&unanswered), code::UNAVAILABLE);
    }
}
