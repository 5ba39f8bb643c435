//! The cycle while an open transaction elsewhere in the database keeps dead rows from being removed: after as many cycles as 200 a second
//! make in ten minutes, with some names held throughout; `--open-for` takes the time itself. A goal has the figure; there is no table. The
//! floor takes no part: with a bare insert and delete of one row 53,000 cycles in, a cycle takes 20 ms, and all of them would take hours.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::contestant::Contestant;
use crate::crew::Placement;
use crate::protocol::Order;
use crate::run::Run;
use crate::stats::Times;
use crate::what::{Network, What};

/// Cycles a second, where the time is taken.
const A_SECOND: u64 = 200;
/// The cycles of ten minutes.
const CYCLES: u64 = 120_000;
/// Cycles of one order; only the last ones are measured.
const BATCH: u64 = 4000;
/// Names held meanwhile.
const HELD: u64 = 50;

pub(super) fn measure(run: &Run) -> Result<()> {
    run.is_on(Network::Loopback)?;
    let batch = if run.bench.quick { BATCH / 20 } else { BATCH };
    let mut crew = run.crew(Contestant::Current, 1, Network::Loopback, Placement::Dealt)?;
    let worker = &mut crew.0[0];
    worker.ask(Order::Hold { count: HELD, tasks: 1 })?;
    let mut cycle = |count| {
        worker.ask(Order::Cycle { count })?;
        Times::of(worker.log()?)
    };
    cycle(batch)?;
    let fresh = cycle(batch)?.p50;
    let transaction = run.site.open_transaction()?;
    let (count, batches, pace) = match run.bench.open_for {
        Some(seconds) => (A_SECOND, seconds, Duration::from_secs(1)),
        None => (batch, if run.bench.quick { 3 } else { CYCLES / BATCH }, Duration::ZERO),
    };
    for _ in 0..batches {
        let start = Instant::now();
        cycle(count)?;
        std::thread::sleep(pace.saturating_sub(start.elapsed()));
    }
    let old = cycle(batch)?.p50;
    drop(transaction);
    run.found(Contestant::Current, Network::Loopback, vec![(What::Aged, old / fresh)]);
    Ok(())
}
