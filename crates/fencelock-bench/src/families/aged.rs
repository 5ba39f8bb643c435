//! The cycle while an open transaction elsewhere in the database keeps everything that is dead from being removed: after as many cycles as
//! 200 a second make in ten minutes, with some names held throughout; where it is asked for, for as long as they take. The goal
//! says it; there is no table. The floor takes no part: with a bare insert and delete of one row 53,000 cycles in, a cycle takes 20 ms, and all
//! of them would take hours.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::Row;
use crate::contestant::Contestant;
use crate::crew::Placement;
use crate::protocol::Order;
use crate::run::Run;
use crate::site::Network;
use crate::stats::Times;

/// So many a second, where the time is taken.
const A_SECOND: u64 = 200;
/// Ten minutes of them.
const CYCLES: u64 = 120_000;
/// So many at once, and so many are looked at.
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
    let contestant = Contestant::Current;
    let mut crew = run.crew(contestant, 1, network, Placement::Dealt)?;
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
    Ok(vec![Row { contestant, network, figure: Aged { fresh, old } }])
}
