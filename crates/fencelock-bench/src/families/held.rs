//! Many locks at once: how fast a server gives them on names that are new, and what each takes of the client's memory. The
//! goals say it; there is no table.

use anyhow::{Context as _, Result};

use super::Row;
use crate::contestant::Contestant;
use crate::crew::{Crew, number};
use crate::protocol::Order;
use crate::run::Run;
use crate::site::Network;
use crate::stats::median;

/// How many take them on a server; where nobody has to be waited for, one does.
const TASKS: u64 = 64;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    /// Seconds to take all of them.
    pub(crate) seconds: f64,
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
        held: of(|round| round.held),
        waiting: of(|round| round.waiting),
        future: of(|round| round.future),
    }
}

fn round(run: &Run, contestant: Contestant) -> Result<Held> {
    let count = run.bench.effort.held;
    let mut crew = start(run, contestant)?;
    run.site.is_quiet()?;
    let tasks = if run.bench.store.has_server() { TASKS } else { 1 };
    let answer = crew.0[0].ask(Order::Hold { count, tasks })?;
    let seconds = number(&answer, "took").context("a worker did not say how long it took")? as f64 / 1e9;
    let held = growth(&answer)? / count as f64;
    drop(crew);
    let waiters = run.bench.effort.waiters;
    let wait = || start(run, contestant)?.0[0].ask(Order::Wait { count: waiters });
    // Who cannot have so many may hold its locks all the same.
    let answer = run.round(contestant, "locks waited for", wait)?;
    let waiting = answer.as_deref().map_or(Ok(f64::NAN), growth)? / waiters as f64;
    let future = answer.and_then(|answer| number(&answer, "future")).unwrap_or(0) as f64;
    Ok(Held { seconds, held, waiting, future })
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
