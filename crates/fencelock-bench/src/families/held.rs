//! Many locks at once: how fast a server gives them on names that are new, and what each takes of the client's memory.

use anyhow::{Context as _, Result};

use super::Row;
use crate::contestant::Contestant;
use crate::crew::{Crew, number};
use crate::protocol::Order;
use crate::report::{Table, decimals};
use crate::run::Run;
use crate::site::Network;
use crate::stats::median;

/// How many take them on a server; where nobody has to be waited for, one does.
const TASKS: u64 = 64;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    /// Seconds to take all of them.
    pub(crate) seconds: f64,
    requests: f64,
    /// Bytes of the server's memory per held lock, where it says so.
    server: Option<f64>,
    /// Bytes per held lock.
    pub(crate) held: f64,
    /// Bytes per waiting lock.
    pub(crate) waiting: f64,
    /// What of that is the future of the task that waits, which is its owner's.
    pub(crate) future: f64,
}

pub(super) fn measure(run: &Run) -> Result<Vec<Row<Held>>> {
    let mut contestants = run.bench.present_but(&[Contestant::OwnApart]);
    // Of others only clients of a server keep something for each lock.
    let keeps = |contestant: &Contestant| contestant.is_peer() && contestant.waits() && !contestant.is_table();
    contestants.retain(|contestant| contestant.is_fencelock() || keeps(contestant));
    let round = |contestant| round(run, contestant);
    run.rows(&contestants, Network::Loopback, "locks held", round, |rounds| over(&rounds))
}

fn over(rounds: &[Held]) -> Held {
    let of = |figure: fn(&Held) -> f64| median(rounds.iter().map(figure));
    Held {
        seconds: of(|round| round.seconds),
        requests: of(|round| round.requests),
        server: rounds.iter().all(|round| round.server.is_some()).then(|| of(|round| round.server.unwrap_or(0.0))),
        held: of(|round| round.held),
        waiting: of(|round| round.waiting),
        future: of(|round| round.future),
    }
}

fn round(run: &Run, contestant: Contestant) -> Result<Held> {
    let count = run.bench.effort.held;
    let mut crew = start(run, contestant)?;
    run.site.is_quiet()?;
    let (before, memory) = (run.site.traffic()?, run.site.memory()?);
    let tasks = if run.bench.store.has_server() { TASKS } else { 1 };
    let answer = crew.0[0].ask(Order::Hold { count, tasks })?;
    run.site.is_quiet()?;
    let (requests, _) = run.site.traffic()?.since(before);
    let grown = |before: u64, after: u64| after.saturating_sub(before) as f64 / count as f64;
    let server = memory.zip(run.site.memory()?).map(|(before, after)| grown(before, after));
    let seconds = number(&answer, "took").context("a worker did not say how long it took")? as f64 / 1e9;
    let held = growth(&answer)? / count as f64;
    drop(crew);
    let waiters = run.bench.effort.waiters;
    let wait = || start(run, contestant)?.0[0].ask(Order::Wait { count: waiters });
    // Who cannot have so many may hold its locks all the same.
    let answer = run.round(contestant, "locks waited for", wait)?;
    let waiting = answer.as_deref().map_or(Ok(f64::NAN), growth)? / waiters as f64;
    let future = answer.and_then(|answer| number(&answer, "future")).unwrap_or(0) as f64;
    Ok(Held { seconds, requests: requests / count as f64, server, held, waiting, future })
}

/// A process that has locked something before.
fn start(run: &Run, contestant: Contestant) -> Result<Crew> {
    let mut crew = run.crowd(contestant, 1, Network::Loopback)?;
    crew.0[0].ask(Order::Cycle { count: 100 })?;
    Ok(crew)
}

/// Of resident memory or, where that is told and grew more, of the heap in use: a heap of Java's has room to spare.
pub(crate) fn growth(answer: &str) -> Result<f64> {
    let grown = |before, after| Some(number(answer, after)?.saturating_sub(number(answer, before)?));
    let resident = grown("before", "after").context("a worker did not say what it used before and after")?;
    Ok(grown("heap_before", "heap_after").map_or(resident, |heap| heap.max(resident)) as f64)
}

fn whole(bytes: f64) -> String {
    if bytes.is_finite() { format!("{bytes:.0}") } else { "–".to_owned() }
}

/// What it takes to get them, too, where that is a server's work.
pub(super) fn tables(run: &Run, rows: &[Row<Held>]) -> Vec<Table> {
    let (held, waiters) = (run.bench.effort.held, run.bench.effort.waiters);
    let has_server = run.bench.store.has_server();
    let (first, each) = match has_server {
        true => (format!("{held} locks held, on new names"), "bytes each".to_owned()),
        false => ("memory".to_owned(), format!("bytes per held lock ({held})")),
    };
    let waiting = format!("bytes per waiting lock ({waiters})");
    let taken: &[_] = &["s to take them", "requests each", "bytes of the server's memory each"];
    let taken = if has_server { taken } else { &[] };
    let mut table = Table::new(&[&[&*first], taken, &[&*each, &waiting, "of which the caller's future"]].concat());
    for Row { contestant, figure, .. } in rows {
        let bytes = [figure.held, figure.waiting, figure.future].map(whole);
        let server = figure.server.map_or_else(|| "–".to_owned(), whole);
        let taken = [decimals(figure.seconds), decimals(figure.requests), server].into_iter().filter(|_| has_server);
        table.row([contestant.title().to_owned()].into_iter().chain(taken).chain(bytes));
    }
    vec![table]
}
