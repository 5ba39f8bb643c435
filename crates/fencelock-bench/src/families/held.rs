//! Many locks at once: how fast a server grants them on new names, and the memory of each in the client. Goals have the figures; there is
//! no table.

use anyhow::{Context as _, Result};

use crate::contestant::Contestant;
use crate::crew::{Crew, number};
use crate::measured::Figures;
use crate::protocol::Order;
use crate::run::Run;
use crate::what::{Network, What};

/// How many tasks acquire the locks on a server; without a server a single task does.
const TASKS: u64 = 64;

pub(super) fn measure(run: &Run) -> Result<()> {
    let mut contestants = run.bench.contestants(&[Contestant::OwnApart]);
    // Among the peers, only clients of a server keep data for each lock.
    let keeps =
        |contestant: &Contestant| contestant.is_peer() && contestant.waits() && *contestant != Contestant::Table;
    contestants.retain(|contestant| contestant.is_fencelock() || keeps(contestant));
    run.delays(false);
    run.turns(&contestants, Network::Loopback, "locks held", |contestant| round(run, contestant))
}

fn round(run: &Run, contestant: Contestant) -> Result<Figures> {
    let count = run.bench.effort.held;
    let mut crew = start(run, contestant)?;
    run.site.is_quiet()?;
    let tasks = if run.bench.store.has_server() { TASKS } else { 1 };
    let answer = crew.0[0].ask(Order::Hold { count, tasks })?;
    let seconds = number(&answer, "took").context("a worker did not say how long it took")? as f64 / 1e9;
    let mut figures = vec![(What::Seconds, seconds), (What::Held, growth(&answer)? / count as f64)];
    drop(crew);
    let waiters = run.bench.effort.waiters;
    let wait = || start(run, contestant)?.0[0].ask(Order::Wait { count: waiters });
    // A client that fails with that many waiters keeps its figures of held locks.
    if let Some(answer) = run.round(contestant, "locks waited for", wait)? {
        // The future is the memory of the task that waits, not of the client.
        let future = number(&answer, "future").unwrap_or(0) as f64;
        figures.push((What::Waiting, growth(&answer)? / waiters as f64 - future));
    }
    Ok(figures)
}

/// A process that has locked something before.
fn start(run: &Run, contestant: Contestant) -> Result<Crew> {
    let mut crew = run.crowd(contestant, 1, Network::Loopback)?;
    crew.0[0].ask(Order::Cycle { count: 100 })?;
    Ok(crew)
}

/// The growth of resident memory or, if the answer has it and it is larger, of the heap in use: a Java heap reserves spare
/// room.
fn growth(answer: &str) -> Result<f64> {
    let grown = |before, after| Some(number(answer, after)?.saturating_sub(number(answer, before)?));
    let resident = grown("before", "after").context("a worker did not say what it used before and after")?;
    Ok(grown("heap_before", "heap_after").map_or(resident, |heap| heap.max(resident)) as f64)
}
