//! How queues are shown: as tables for people, as JSON for programs.

use std::io::{self, Write as _};
use std::time::SystemTime;

use comfy_table::{ContentArrangement, Table};
use fencelock::{Break, Claim, Contender, Owner, Queue};
use serde::Serialize;

use crate::say::harmless;
use crate::settings::Chosen;

/// One contender.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    pub(crate) position: usize,
    state: &'static str,
    claim: String,
    kind: &'static str,
    permits: Option<u32>,
    capacity: Option<u32>,
    host: Option<String>,
    pid: Option<u32>,
    client: Option<String>,
    request: String,
    purpose: Option<String>,
    since: Option<String>,
    token: Option<String>,
    #[serde(skip)]
    age: Option<String>,
}

impl Shown {
    pub(crate) fn new(position: usize, contender: &Contender) -> Self {
        // An opaque owner has neither host nor pid.
        let named = contender.owner.as_ref().filter(|owner| !owner.host.is_empty());
        Self {
            position,
            state: if contender.grant.is_some() { "holder" } else { "waiter" },
            claim: contender.claim.to_string(),
            kind: kind(contender.claim),
            permits: is_permit(contender.claim).then(|| contender.claim.weight()),
            capacity: is_permit(contender.claim).then(|| contender.claim.capacity()),
            host: named.map(|owner| owner.host.clone()),
            // Other clients may tell their host and nothing else.
            pid: named.map(|owner| owner.pid).filter(|pid| *pid != 0),
            client: contender.owner.as_ref().map(|owner| owner.client).filter(|client| *client != 0).map(hex),
            request: contender.id.to_string(),
            purpose: contender.purpose.as_deref().map(str::to_owned),
            since: contender.since.map(|since| humantime::format_rfc3339_millis(since).to_string()),
            token: contender.grant.and_then(|grant| grant.token).map(|token| token.to_string()),
            age: contender.since.and_then(age),
        }
    }

    pub(crate) fn row(&self) -> Vec<String> {
        vec![
            self.position.to_string(),
            self.state.to_owned(),
            self.claim.clone(),
            told(self.host.as_ref()),
            told(self.pid.as_ref()),
            told(self.age.as_ref()),
            self.purpose.clone().unwrap_or_default(),
            self.token.clone().unwrap_or_default(),
        ]
    }

    /// Who it is, as what, since when, what for, with which token.
    pub(crate) fn sentence(&self) -> String {
        let mut sentence = format!("{} as {}", self.who(), self.claim);
        for (what, said) in [("since", &self.age), ("purpose", &self.purpose), ("token", &self.token)] {
            sentence.extend(said.iter().map(|said| format!(", {what} {said}")));
        }
        sentence
    }

    fn who(&self) -> String {
        match (&self.host, self.pid) {
            (Some(host), Some(pid)) => format!("pid {pid} on {host}"),
            (Some(host), None) => format!("somebody on {host}"),
            _ => format!("client {}", told(self.client.as_ref())),
        }
    }
}

/// What a contender is.
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

/// How long ago, as people say it. A clock that is behind the store's says nothing.
fn age(since: SystemTime) -> Option<String> {
    let age = SystemTime::now().duration_since(since).ok()?;
    Some(format!("{} ago", humantime::format_duration(std::time::Duration::from_secs(age.as_secs()))))
}

fn hex(client: u64) -> String {
    format!("{client:016x}")
}

fn told<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}

/// Everybody in one queue.
#[derive(Debug, Serialize)]
pub(crate) struct Everybody {
    name: String,
    pub(crate) contenders: Vec<Shown>,
    pub(crate) strangers: Vec<String>,
    pub(crate) breaks: Vec<Broken>,
}

/// A grant that was broken.
#[derive(Debug, Serialize)]
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
            at: humantime::format_rfc3339_millis(record.at).to_string(),
            token: record.token.map(|token| token.to_string()),
            claim: record.claim.to_string(),
            pid: owner.as_ref().map(|owner| owner.pid),
            host: owner.map(|owner| owner.host),
            by_pid: by.as_ref().map(|by| by.pid),
            by_host: by.map(|by| by.host),
            reason: record.reason.to_string(),
        }
    }

    pub(crate) fn sentence(&self) -> String {
        let who = |pid: Option<u32>, host: &Option<String>| match (pid, host) {
            (Some(pid), Some(host)) => format!("pid {pid} on {host}"),
            _ => "an unnamed client".to_owned(),
        };
        let (whose, by) = (who(self.pid, &self.host), who(self.by_pid, &self.by_host));
        let token = told(self.token.as_ref());
        format!("broken {}: {whose} as {}, token {token}, by {by}: {}", self.at, self.claim, self.reason)
    }
}

impl Everybody {
    pub(crate) fn new(queue: &Queue, breaks: &[Break]) -> Self {
        let contenders = queue.contenders.iter().enumerate().map(|(index, contender)| Shown::new(index + 1, contender));
        Self {
            name: queue.name.to_string(),
            contenders: contenders.collect(),
            strangers: queue.strangers.clone(),
            breaks: breaks.iter().map(Broken::new).collect(),
        }
    }
}

/// One lock in a list.
#[derive(Debug, Serialize)]
pub(crate) struct Lock {
    name: String,
    kind: &'static str,
    permits: Option<u32>,
    capacity: Option<u32>,
    holders: Vec<Shown>,
    waiting: usize,
}

impl Lock {
    pub(crate) fn new(queue: &Queue) -> Self {
        let Everybody { name, contenders, .. } = Everybody::new(queue, &[]);
        let kind = match contenders.first().map(|shown| shown.kind) {
            Some("reader" | "writer") => "read-write",
            Some("permits") => "semaphore",
            _ => "mutex",
        };
        let capacity = contenders.first().and_then(|shown| shown.capacity);
        let (holders, waiters): (Vec<_>, Vec<_>) = contenders.into_iter().partition(|shown| shown.state == "holder");
        let taken = holders.iter().filter_map(|holder| holder.permits).sum();
        Self { name, kind, permits: capacity.map(|_| taken), capacity, holders, waiting: waiters.len() }
    }

    /// What the holders hold together.
    fn held_as(&self) -> String {
        match (self.permits, self.capacity, self.holders.len(), self.holders.first()) {
            (Some(permits), Some(capacity), ..) => format!("{permits} of {capacity}"),
            (_, _, 0, _) => self.kind.to_owned(),
            (_, _, 1, Some(holder)) => holder.claim.clone(),
            (_, _, readers, _) => format!("{readers} readers"),
        }
    }

    pub(crate) fn row(&self) -> Vec<String> {
        let holder = self.holders.first();
        let more = self.holders.len().saturating_sub(1);
        let who = holder.map_or_else(|| "-".to_owned(), Shown::who);
        vec![
            self.name.clone(),
            self.held_as(),
            if more == 0 { who } else { format!("{who} and {more} more") },
            told(holder.and_then(|holder| holder.age.as_ref())),
            holder.and_then(|holder| holder.purpose.clone()).unwrap_or_default(),
            self.waiting.to_string(),
        ]
    }
}

/// Prints `value` as JSON, and a line break.
pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    print(&text)
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

/// Prints which store was looked at: an empty list of the wrong one looks like a free lock.
pub(crate) fn print_store(chosen: &Chosen) -> io::Result<()> {
    print(&format!("store: {}\n", harmless(&chosen.shown(), false)))
}

/// All at once, so that a reader that went away is noticed here.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
