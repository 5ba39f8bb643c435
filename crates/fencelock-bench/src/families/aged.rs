//! The cycle while an open transaction elsewhere in the database keeps everything that is dead from being removed: after as many cycles as
//! 200 a second make in ten minutes, with some names held throughout.

use anyhow::{Context as _, Result};

use super::Row;
use crate::contestant::Contestant;
use crate::crew::Placement;
use crate::protocol::Order;
use crate::report::{Table, decimals, micros};
use crate::run::Run;
use crate::site::Network;
use crate::stats::Times;

/// Ten minutes of 200 a second.
const CYCLES: u64 = 120_000;
/// Of which so many at once, the last of which are looked at.
const BATCH: u64 = 4000;
/// Names held meanwhile.
const HELD: u64 = 50;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Aged {
    fresh: f64,
    old: f64,
}

impl Aged {
    pub(crate) fn ratio(&self) -> f64 {
        self.old / self.fresh
    }
}

pub(super) fn measure(run: &Run) -> Result<Vec<Row<Aged>>> {
    let network = Network::Loopback;
    run.site.is_on(network)?;
    let batch = if run.bench.quick { BATCH / 20 } else { BATCH };
    let contestants = [run.bench.store.floor(), Contestant::Current];
    let rows = contestants.into_iter().map(|contestant| {
        let mut crew = run.crew(contestant, 1, network, Placement::Dealt)?;
        let worker = &mut crew.0[0];
        worker.ask(Order::Hold { count: HELD, tasks: 1 })?;
        let mut cycle = || {
            worker.ask(Order::Cycle { count: batch })?;
            Times::of(worker.log()?)
        };
        cycle()?;
        let fresh = cycle()?.p50;
        let transaction = run.site.open_transaction()?;
        let batches = if run.bench.quick { 3 } else { CYCLES / BATCH };
        let times = (0..batches).map(|_| cycle()).collect::<Result<Vec<_>>>()?;
        drop(transaction);
        let old = times.last().context("no cycles")?.p50;
        Ok(Row { contestant, network, figure: Aged { fresh, old } })
    });
    rows.collect()
}

pub(super) fn tables(rows: &[Row<Aged>]) -> Vec<Table> {
    let mut table =
        Table::new(&["cycle beside an open transaction", "fresh, p50 µs", "after 120,000 cycles, p50 µs", "× fresh"]);
    for Row { contestant, figure, .. } in rows {
        table.row([contestant.title().to_owned(), micros(figure.fresh), micros(figure.old), decimals(figure.ratio())]);
    }
    vec![table]
}
