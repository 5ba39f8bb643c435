//! `fencelock doctor`: can this deployment hold a safe lock?
//!
//! Each store is a file with questions, which the library asks its servers, and a table of checks over the answers.

mod checks;
mod etcd;
mod file;
mod mysql;
mod postgres;
mod redis;
mod zookeeper;

use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use fencelock::Client;
use fencelock::capability::{Order, StoreUrl, Tokens, ask_servers};
use fencelock::inspect::Page;
use serde::Serialize;
use tracing::subscriber::{NoSubscriber, with_default};

use self::checks::{Facts, Finding, Room, Severity};
use super::{Failures, StoreArguments, connect, farewell};
use crate::arguments;
use crate::output::{Failure, Outcome, code, harmless};
use crate::settings::Chosen;
use crate::show::{ShownForeignLock, print, print_json, print_store};

const LOCK: &str = "fencelock-doctor";

const ROUND_TRIPS: usize = 10;

/// How many names are looked at for locks of other clients.
const NAMES: usize = 100;

/// How long one server may take to answer all questions.
const PATIENCE: Duration = Duration::from_secs(10);

/// Check whether this deployment can hold a safe lock.
///
/// Takes the lock `fencelock-doctor` and gives it back, times requests against the ttl, and asks the servers how they are set up.
/// Each finding says what, why it matters for a lock, and what to set.
///
/// Exits with 0 when nothing is worse than a note, 1 when there is a warning, 2 when there is a problem: something that can cost a
/// lock, or that keeps locks from being taken. A store that cannot be reached ends it with 69.
///
/// With routes in the configuration, all its stores in turn.
///
/// With --json: an object, or of several stores an array of objects, with `store`, `ttl_ms`, `round_trip_ms` (`median` and `worst`; null when no lock could be taken) and `findings`, an
/// array of objects with `severity` ("problem", "warning" or "note"), `server` (null for the store as a whole), `what`, `why` and
/// `set`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The store, in the place of --store.
    #[arg(value_name = "URL", value_parser = arguments::store, conflicts_with = "store")]
    url: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    store: String,
    ttl_ms: Option<u128>,
    round_trip_ms: Option<RoundTrip>,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct RoundTrip {
    median: f64,
    worst: f64,
}

impl Doctor {
    pub(super) async fn run(&self, store: &StoreArguments) -> Outcome<u8> {
        let stores = store.or_named(self.url.as_ref()).choose_every()?;
        let (mut reports, mut failures) = (Vec::new(), Failures::default());
        for chosen in &stores {
            if let Some(report) = failures.note(Report::of(chosen).await) {
                if !self.json {
                    report.print(chosen)?;
                }
                reports.push(report);
            }
        }
        match &reports[..] {
            [report] if self.json && stores.len() == 1 => print_json(report)?,
            [_, ..] if self.json => print_json(&reports)?,
            _ => {}
        }
        let worst = reports.iter().filter_map(|report| Some(report.findings.first()?.severity)).min();
        let code = match worst {
            Some(Severity::Problem) => 2,
            Some(Severity::Warning) => 1,
            Some(Severity::Note) | None => 0,
        };
        failures.0.map_or(Ok(code), Err)
    }
}

impl Report {
    async fn of(chosen: &Chosen) -> Outcome<Self> {
        let url = StoreUrl::parse(&chosen.url)?;
        let mut report = Report { store: chosen.name(), ttl_ms: None, round_trip_ms: None, findings: Vec::new() };
        let refused_by = match connect(Client::builder(), chosen, false).await {
            Ok(client) => {
                let tried = report.try_a_lock(&client).await;
                farewell(&client, tried.is_err()).await;
                tried?;
                None
            }
            // Wrong usage is no finding.
            Err(failure) if failure.code == code::CONFIG => return Err(failure),
            Err(failure) => Some(failure),
        };
        let asked = asked(&url).await;
        let is_away = asked.iter().all(|(_, facts)| facts.is_err());
        match refused_by {
            // A store that is away answers nothing. A replica answers and takes no locks.
            Some(failure) if failure.code == code::UNAVAILABLE && is_away => return Err(failure),
            refused_by => report.findings.extend(refused_by.as_ref().map(refused)),
        }
        for (server, facts) in asked {
            match facts {
                Ok(facts) if url.scheme() == "file" => {
                    report.findings.extend(checks::judge(&server, &facts, file::CHECKS))
                }
                Ok(facts) => report.findings.extend(checks::judge(&server, &facts, room(url.scheme()).checks)),
                Err(why) => report.findings.push(Finding {
                    severity: Severity::Warning,
                    server: Some(server),
                    what: format!("the server was not asked how it is set up: {why}"),
                    why: "nothing is known of what it does when it is restarted, full, or left alone",
                    set: "ask it where it can be reached, or read its configuration by hand",
                }),
            }
        }
        report.findings.sort_by_key(|finding| finding.severity);
        Ok(report)
    }
}

async fn asked(url: &StoreUrl) -> Vec<(String, Result<Facts, String>)> {
    if url.scheme() == "file" {
        return vec![(url.path().to_owned(), file::facts(url.path()))];
    }
    let room = room(url.scheme());
    // Connecting has warned of this URL.
    let servers = match with_default(NoSubscriber::default(), || ask_servers(url.clone(), room.questions)) {
        Ok(servers) => servers,
        Err(error) => return vec![(url.authority().to_owned(), Err(error.to_string()))],
    };
    let mut about =
        vec![("servers".to_owned(), servers.len().to_string()), ("scheme".to_owned(), url.scheme().to_owned())];
    for option in ["ttl_ms", "tick_ms"] {
        about.extend(url.clone().take(option).map(|value| (format!("url_{option}"), value)));
    }
    let facts = servers.into_iter().map(async |(server, answers)| {
        let asked = SystemTime::now();
        let facts = match tokio::time::timeout(PATIENCE, answers).await {
            Ok(Ok(answers)) => Facts::of(&about, room, &server, &answers, asked),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it does not answer".to_owned()),
        };
        (server, facts)
    });
    futures_util::future::join_all(facts).await
}

fn room(scheme: &str) -> Room {
    match scheme {
        "etcd" | "etcds" => etcd::ROOM,
        "zk" | "zks" => zookeeper::ROOM,
        "mysql" | "mariadb" => mysql::ROOM,
        "postgres" | "postgresql" => postgres::ROOM,
        _ => redis::ROOM,
    }
}

fn refused(failure: &Failure) -> Finding {
    Finding {
        severity: Severity::Problem,
        server: None,
        what: format!("no lock can be taken: {}", failure.message.as_deref().unwrap_or("the store refuses")),
        why: "every client that needs the lock fails in the same way",
        set: "what the message says",
    }
}

impl Report {
    /// Acquires and releases a lock, times requests, and checks the store's capability.
    async fn try_a_lock(&mut self, client: &Client) -> Outcome<()> {
        let taken = async { client.mutex(LOCK)?.try_acquire().await?.release().await };
        match taken.await {
            Ok(()) => {}
            Err(error) if error.is_outage() => return Err(error.into()),
            // Another doctor has it.
            Err(error) if error.is_contention() => {}
            Err(error) => self.findings.push(refused(&error.into())),
        }
        let ttl = client.timing().ttl;
        self.ttl_ms = Some(ttl.as_millis());
        let (mut took, mut closed) = (Vec::new(), None);
        for _ in 0..ROUND_TRIPS {
            let started = Instant::now();
            closed = client.contention(LOCK).await?.closed;
            took.push(started.elapsed());
        }
        took.sort();
        let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
        let milliseconds = |time: Duration| (time.as_secs_f64() * 1e5).round() / 1e2;
        self.round_trip_ms = Some(RoundTrip { median: milliseconds(median), worst: milliseconds(worst) });
        self.findings.extend(checks::slow(worst, ttl));
        self.look_for_foreign_locks(client).await?;
        let (capability, mut facts) = (client.capability(), Facts::default());
        facts.set("layout", capability.layout);
        facts.set("tokens", capability.tokens != Tokens::None);
        facts.set("order", capability.order != Order::None);
        closed.iter().for_each(|closed| facts.set("closed", closed));
        let found = checks::judge("", &facts, checks::CHECKS);
        self.findings.extend(found.into_iter().map(|finding| Finding { server: None, ..finding }));
        Ok(())
    }

    /// Looks for locks of other clients that can be held concurrently with ours.
    async fn look_for_foreign_locks(&mut self, client: &Client) -> Outcome<()> {
        if client.capability().same_as.is_empty() {
            return Ok(());
        }
        for name in client.names("", None, NAMES).await? {
            // `ls` reports a queue that cannot be read.
            let Ok(queue) = client.queue_page(&name, Page { skip: 0, limit: 1 }).await else { continue };
            self.findings.extend(ShownForeignLock::all(&queue).iter().map(|lock| Finding {
                severity: Severity::Problem,
                server: None,
                what: lock.warning(name.as_str()),
                why: "two clients hold one lock, and neither is notified",
                set: "a single client for all, or names of their own for each (`fencelock ls` lists them)",
            }));
        }
        Ok(())
    }

    fn print(&self, chosen: &Chosen) -> Outcome<()> {
        for finding in &self.findings {
            print(&finding.paragraph())?;
        }
        if let (Some(times), Some(ttl)) = (&self.round_trip_ms, self.ttl_ms) {
            let RoundTrip { median, worst } = times;
            print(&format!("round trip: {median} ms, at worst {worst} ms of {ROUND_TRIPS}; ttl {ttl} ms\n"))?;
        }
        if self.findings.is_empty() {
            print("nothing found that could cost a lock\n")?;
        }
        print_store(chosen)?;
        Ok(())
    }
}

impl Finding {
    fn paragraph(&self) -> String {
        let Self { severity, server, what, why, set } = self;
        let server = server.as_ref().map_or_else(String::new, |server| format!("{}: ", harmless(server, false)));
        let head = format!("{:<8} {server}{}\n", severity.name(), harmless(what, false));
        format!("{head}         why: {why}\n         set: {set}\n")
    }
}
