//! What a lock costs the client's process: anonymous resident memory, before and after.

use anyhow::{Context as _, Result};

use super::Row;
use crate::bench::Bench;
use crate::contestant::Contestant;
use crate::crew::number;
use crate::protocol::Order;
use crate::report::Table;
use crate::run::Run;
use crate::stats::median;

const CONTESTANTS: [Contestant; 2] = [Contestant::Current, Contestant::Own];

/// Bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) held: f64,
    pub(crate) waiting: f64,
    /// What of `waiting` is the future of the task that waits, which is its owner's.
    pub(crate) future: f64,
}

pub(crate) fn measure(run: &Run) -> Result<Vec<Row<Memory>>> {
    let bench = &run.bench;
    let measure = |contestant| {
        let (mut held, mut waiting, mut future) = (Vec::new(), Vec::new(), 0.0);
        for _ in 0..bench.effort.rounds.min(3) {
            held.push(each(run, contestant, Order::Hold { count: bench.effort.held, tasks: 1 }, bench.effort.held)?.0);
            let count = bench.effort.waiters;
            let (each, own) = each(run, contestant, Order::Wait { count }, count)?;
            waiting.push(each);
            future = own;
        }
        Ok(Row::here(contestant, Memory { held: median(held), waiting: median(waiting), future }))
    };
    CONTESTANTS.into_iter().map(measure).collect()
}

/// What each lock takes, and what of that is the caller's future: in a process of its own, after some cycles.
fn each(run: &Run, contestant: Contestant, order: Order, count: u64) -> Result<(f64, f64)> {
    let mut crew = run.crew(contestant, 1)?;
    crew.0[0].ask(Order::Cycle { count: 100 })?;
    let answer = crew.0[0].ask(order)?;
    let before = number(&answer, "before").context("a worker did not say what it used before")?;
    let after = number(&answer, "after").context("a worker did not say what it used after")?;
    let future = number(&answer, "future").unwrap_or(0);
    Ok((after.saturating_sub(before) as f64 / count as f64, future as f64))
}

pub(crate) fn table(bench: &Bench, rows: &[Row<Memory>]) -> Table {
    let held = format!("bytes per held lock ({})", bench.effort.held);
    let waiting = format!("bytes per waiting lock ({})", bench.effort.waiters);
    let mut table = Table::new(&["memory", &held, &waiting, "of which the caller's future"]);
    for Row { contestant, figure, .. } in rows {
        let cells = [figure.held, figure.waiting, figure.future].map(|bytes| format!("{bytes:.0}"));
        table.row([contestant.title().to_owned()].into_iter().chain(cells));
    }
    table
}
