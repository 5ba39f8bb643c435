//! How queues are shown: as tables for people, as JSON for programs.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::time::{Duration, SystemTime};

use comfy_table::{ContentArrangement, Table};
use fencelock::Name;
use fencelock::inspect::{Break, Claim, Contender, Expiry, ForeignLock, Note, Owner, ProcessState, Queue, Waits};
use serde::Serialize;

use crate::output::{Outcome, harmless, say};
use crate::settings::Chosen;
use crate::times;

#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    pub(crate) position: usize,
    pub(crate) state: &'static str,
    pub(crate) claim: String,
    pub(crate) kind: &'static str,
    pub(crate) permits: Option<u32>,
    pub(crate) capacity: Option<u32>,
    host: Option<String>,
    pid: Option<u32>,
    client: Option<String>,
    pub(crate) request: String,
    pub(crate) purpose: Option<String>,
    pub(crate) since: Option<String>,
    pub(crate) token: Option<String>,
    /// The kind of another client's contender.
    foreign: Option<&'static str>,
    /// The end of the place without a renewal, where the store shows it: `in 3s`, or `never`.
    expires: Option<String>,
    /// The fault of the contender's process: `stopped`, or `gone` if another process keeps its session open.
    process: Option<&'static str>,
    kept_by: Vec<u32>,
    #[serde(skip)]
    pub(crate) who: String,
    #[serde(skip)]
    pub(crate) age: Option<Duration>,
    #[serde(skip)]
    trouble: Option<String>,
}

impl Shown {
    /// `now` is the time by the store's clock.
    pub(crate) fn new(name: &Name, position: usize, contender: &Contender, now: SystemTime) -> Self {
        // An opaque owner has neither host nor pid.
        let owner = contender.owner.as_ref().filter(|owner| !owner.host.is_empty() || owner.client != 0);
        let named = owner.filter(|owner| !owner.host.is_empty());
        let (process, kept_by) = match contender.process.clone() {
            Some(ProcessState::Stopped) => (Some("stopped"), Vec::new()),
            Some(ProcessState::Gone { kept_by }) => (Some("gone"), kept_by),
            _ => (None, Vec::new()),
        };
        Self {
            position,
            state: state(contender),
            claim: contender.claim.to_string(),
            kind: kind(contender.claim),
            permits: is_permit(contender.claim).then(|| contender.claim.weight()),
            capacity: is_permit(contender.claim).then(|| contender.claim.capacity()),
            host: named.map(|owner| owner.host.clone()),
            // Other clients may show only their host.
            pid: named.map(|owner| owner.pid).filter(|pid| *pid != 0),
            client: owner.map(|owner| owner.client).filter(|client| *client != 0).map(hex),
            request: contender.id.to_string(),
            purpose: contender.purpose.as_deref().map(str::to_owned),
            since: contender.since.map(times::to_millisecond),
            token: contender.grant.and_then(|grant| grant.token).map(|token| token.to_string()),
            foreign: contender.foreign.map(|foreign| foreign.what),
            expires: expires(contender.expiry),
            process,
            kept_by,
            who: owner.map_or_else(|| UNKNOWN.to_owned(), Owner::to_string),
            // By a clock behind the store's, the age is unknown.
            age: contender.since.and_then(|since| now.duration_since(since).ok()),
            trouble: contender.trouble(name),
        }
    }

    pub(crate) fn holds(&self) -> bool {
        self.state == "holder"
    }

    /// Prints the trouble of the contender's process, with the `name` of the queue.
    pub(crate) fn print_trouble(&self, name: &str) -> io::Result<()> {
        match &self.trouble {
            Some(trouble) => print(&format!("{}: {}\n", harmless(name, false), harmless(trouble, false))),
            None => Ok(()),
        }
    }

    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            self.position.to_string(),
            self.state.to_owned(),
            self.foreign.map_or_else(|| self.claim.clone(), |what| format!("{} ({what}{})", self.claim, self.ending())),
            shown_or_dash(self.host.as_ref()),
            shown_or_dash(self.pid.as_ref()),
            shown_or_dash(self.age.map(ago).as_ref()),
            self.purpose.clone().unwrap_or_default(),
            self.token.clone().unwrap_or_default(),
        ]
    }

    /// Owner, claim, age, purpose, token.
    pub(crate) fn sentence(&self) -> String {
        let what = self.foreign.map_or_else(String::new, |what| format!(" ({what})"));
        let mut sentence = format!("{}{what} as {}", self.who, self.claim);
        for (what, said) in [
            ("since", &self.age.map(ago)),
            ("purpose", &self.purpose),
            ("token", &self.token),
            ("expires", &self.expires),
        ] {
            sentence.extend(said.iter().map(|said| format!(", {what} {said}")));
        }
        sentence
    }

    /// The end of another client's leftovers, whose age is unknown.
    fn ending(&self) -> String {
        self.expires.as_ref().map_or_else(String::new, |expires| format!("; expires {expires}"))
    }
}

/// The headings of [`Shown::row`].
pub(crate) const QUEUE_HEADS: [&str; 8] = ["POSITION", "STATE", "CLAIM", "HOST", "PID", "SINCE", "PURPOSE", "TOKEN"];

/// An owner that the store does not name.
const UNKNOWN: &str = "an unknown owner";

/// Whether a contender holds the lock, by the rule or against it.
fn state(contender: &Contender) -> &'static str {
    match (contender.grant, contender.foreign.map(|foreign| foreign.waits)) {
        (Some(_), _) => "holder",
        (None, Some(Waits::No)) => "holds too",
        (None, Some(Waits::Perhaps)) => "waits or holds too",
        (None, Some(Waits::Yes) | None) => "waiter",
    }
}

fn kind(claim: Claim) -> &'static str {
    match claim {
        Claim::MUTEX => "mutex",
        Claim::READER => "reader",
        Claim::WRITER => "writer",
        _ => "permits",
    }
}

fn is_permit(claim: Claim) -> bool {
    kind(claim) == "permits"
}

/// An age, for people.
pub(crate) fn ago(age: Duration) -> String {
    format!("{} ago", times::shown(Duration::from_secs(age.as_secs())))
}

fn expires(expiry: Expiry) -> Option<String> {
    match expiry {
        Expiry::Never => Some("never".to_owned()),
        Expiry::In(left) => {
            // Rounded up: less than a second left is not zero.
            let seconds = left.as_millis().div_ceil(1000);
            Some(format!("in {}", times::shown(Duration::from_secs(seconds.try_into().ok()?))))
        }
        _ => None,
    }
}

pub(crate) fn hex(client: u64) -> String {
    format!("{client:016x}")
}

pub(crate) fn shown_or_dash<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}

/// All contenders of a queue, or of one page of it.
#[derive(Debug, Serialize)]
pub(crate) struct WholeQueue {
    pub(crate) name: String,
    pub(crate) store: String,
    /// How many are in the queue, on any page.
    pub(crate) queued: usize,
    pub(crate) contenders: Vec<Shown>,
    pub(crate) beside: Vec<ShownForeignLock>,
    pub(crate) strangers: Vec<String>,
    pub(crate) closed: Option<String>,
    pub(crate) breaks: Vec<Broken>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<Noted>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Noted {
    /// The note as text; `None` if it is not UTF-8.
    value: Option<String>,
    token: Option<String>,
    /// Whether a shown contender wrote the note, and holds the lock by the same grant.
    #[serde(skip)]
    is_holders: bool,
    #[serde(skip)]
    bytes: usize,
}

impl Noted {
    /// The most characters of a note that are shown to people.
    const SHOWN: usize = 200;

    pub(crate) fn new(note: &Note, queue: &Queue) -> Self {
        let mut grants = queue.contenders.iter().filter_map(|contender| contender.grant?.token);
        Self {
            value: note.text().map(str::to_owned),
            token: note.token.map(|token| token.to_string()),
            is_holders: grants.any(|token| note.token == Some(token)),
            bytes: note.value.len(),
        }
    }

    /// The text of the note, and its owner.
    pub(crate) fn sentence(&self) -> String {
        let whose = match self.is_holders {
            true => "the holder's".to_owned(),
            false => format!("of token {}", shown_or_dash(self.token.as_ref())),
        };
        match &self.value {
            Some(text) if text.chars().count() <= Self::SHOWN => format!("note, {whose}: {text}"),
            _ => format!("note, {whose}, of {} bytes: `fencelock note` prints it", self.bytes),
        }
    }
}

/// Locks of another client that may be held concurrently with the queue's.
#[derive(Debug, Serialize)]
pub(crate) struct ShownForeignLock {
    what: &'static str,
    contenders: usize,
    waits: &'static str,
}

impl ShownForeignLock {
    pub(crate) fn all(queue: &Queue) -> Vec<Self> {
        queue.foreign_locks.iter().map(Self::new).collect()
    }

    fn new(lock: &ForeignLock) -> Self {
        Self {
            what: lock.what,
            contenders: lock.contenders,
            waits: if lock.waits == Waits::No { "no" } else { "perhaps" },
        }
    }

    /// The fault of `name`.
    pub(crate) fn warning(&self, name: &str) -> String {
        let Self { what, contenders, waits } = self;
        let wrong = match *waits {
            "no" => "does not wait for those ahead: the lock can be held by several at once",
            _ => "may not wait for those ahead, which the store does not tell: the lock may be held by several at once",
        };
        format!("{name}: {what} ({contenders} of them) {wrong}")
    }
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Broken {
    at: String,
    token: Option<String>,
    claim: String,
    host: Option<String>,
    pid: Option<u32>,
    by_host: Option<String>,
    by_pid: Option<u32>,
    reason: String,
}

impl Broken {
    pub(crate) fn new(record: &Break) -> Self {
        let named = |owner: Option<&Owner>| owner.filter(|owner| !owner.host.is_empty()).cloned();
        let (owner, by) = (named(record.owner.as_ref()), named(Some(&record.by)));
        Self {
            at: times::to_millisecond(record.at),
            token: record.token.map(|token| token.to_string()),
            claim: record.claim.to_string(),
            pid: owner.as_ref().map(|owner| owner.pid).filter(|pid| *pid != 0),
            host: owner.map(|owner| owner.host),
            by_pid: by.as_ref().map(|by| by.pid),
            by_host: by.map(|by| by.host),
            reason: record.reason.to_string(),
        }
    }

    pub(crate) fn sentence(&self) -> String {
        let who = |pid: Option<u32>, host: &Option<String>| match (pid, host) {
            (Some(pid), Some(host)) => format!("pid {pid} on {host}"),
            (None, Some(host)) => host.clone(),
            _ => UNKNOWN.to_owned(),
        };
        let (whose, by) = (who(self.pid, &self.host), who(self.by_pid, &self.by_host));
        let token = shown_or_dash(self.token.as_ref());
        format!("broken {}: {whose} as {}, token {token}, by {by}: {}", self.at, self.claim, self.reason)
    }
}

impl WholeQueue {
    /// A page of `queue` that leaves out `skip` contenders.
    pub(crate) fn new(queue: &Queue, skip: usize, chosen: &Chosen, now: SystemTime) -> Self {
        let shown = |(contender, position)| Shown::new(&queue.name, position, contender, now);
        Self {
            name: queue.name.to_string(),
            store: chosen.name(),
            queued: queue.queued,
            contenders: queue.contenders.iter().zip(skip + 1..).map(shown).collect(),
            beside: ShownForeignLock::all(queue),
            strangers: queue.strangers.clone(),
            closed: queue.closed.clone(),
            breaks: Vec::new(),
            note: None,
        }
    }
}

pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)
}

/// Prints the result of a drill, as JSON or for people, and its `fault`; returns the exit code.
pub(crate) fn print_judged(result: &(impl Serialize + Display), as_json: bool, fault: Option<String>) -> Outcome<u8> {
    if as_json { print_json(result) } else { print(&result.to_string()) }?;
    fault.iter().for_each(say);
    Ok(u8::from(fault.is_some()))
}

/// Prints a table; a cell holds nothing that a terminal would obey.
pub(crate) fn print_table(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(heads);
    for row in rows {
        table.add_row(row.iter().map(|cell| harmless(cell, false)));
    }
    // Cells are padded on both sides.
    let flush = |line: String| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned() + "\n";
    print(&table.lines().map(flush).collect::<String>())
}

/// Prints the name of the store: an empty list of the wrong store looks like a free lock.
pub(crate) fn print_store(chosen: &Chosen) -> io::Result<()> {
    print(&format!("store: {}\n", harmless(&chosen.shown(), false)))
}

/// Writes all at once, so that a reader that went away is noticed here.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
