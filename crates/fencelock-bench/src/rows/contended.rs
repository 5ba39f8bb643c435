//! Many want the lock all the time: in one process, and across processes.

use anyhow::Result;

use super::{Row, take_turns};
use crate::bench::Store;
use crate::contestant::Contestant;
use crate::protocol::{Order, now};
use crate::report::{Table, decimals, micros};
use crate::run::Run;
use crate::stats::{Times, hand_overs, least_and_most, median};

const CONTESTANTS: [Contestant; 5] =
    [Contestant::Current, Contestant::Own, Contestant::OwnApart, Contestant::Flock, Contestant::Filelock];

/// Time for every process to hear of the start.
const LEAD_NANOS: u64 = 100_000_000;

/// What is not looked at: until everybody queues, those who came first have the lock more often.
const WARM_NANOS: u64 = 200_000_000;

/// So many processes with so many waiters each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) processes: u64,
    pub(crate) each: u64,
}

const SHAPES: [Shape; 2] = [Shape { processes: 1, each: 32 }, Shape { processes: 4, each: 8 }];

#[derive(Debug, Clone)]
pub(crate) struct Contended {
    pub(crate) shape: Shape,
    /// Sections per second.
    pub(crate) rate: f64,
    /// Of the round with the worst ratio.
    pub(crate) least: u64,
    pub(crate) most: u64,
    pub(crate) hand_over: Times,
    /// Of waiters, per section; only ours can tell.
    pub(crate) woken: f64,
}

pub(crate) fn measure(run: &Run) -> Result<Vec<Row<Contended>>> {
    let mut rows = Vec::new();
    let bench = &run.bench;
    for shape in SHAPES.into_iter().filter(|shape| bench.store == Store::File || shape.processes == 1) {
        let turn = |contestant| round(run, contestant, shape).map(Some);
        let found = take_turns(&bench.present(&CONTESTANTS), bench.effort.rounds, turn)?;
        rows.extend(found.into_iter().map(|(contestant, rounds)| Row::here(contestant, over(shape, &rounds))));
    }
    Ok(rows)
}

fn round(run: &Run, contestant: Contestant, shape: Shape) -> Result<Contended> {
    let mut crew = run.crew(contestant, shape.processes)?;
    let start = now() + LEAD_NANOS;
    let end = start + WARM_NANOS + u64::try_from(run.bench.effort.contend.as_nanos())?;
    for (worker, number) in crew.0.iter_mut().zip(0..) {
        worker.send(Order::Contend { waiters: shape.each, first: number * shape.each, start, end })?;
    }
    let (woken, mut sections) = crew.finish()?;
    let woken = woken as f64 / sections.len() as f64;
    sections.retain(|section| section.acquired >= start + WARM_NANOS);
    let hand_over = Times::of(hand_overs(&mut sections)?)?;
    let (least, most) = least_and_most(&sections, shape.processes * shape.each);
    let rate = sections.len() as f64 / run.bench.effort.contend.as_secs_f64();
    Ok(Contended { shape, rate, least, most, hand_over, woken })
}

fn over(shape: Shape, rounds: &[Contended]) -> Contended {
    let of = |figure: fn(&Contended) -> f64| median(rounds.iter().map(figure));
    let worst = rounds.iter().min_by(|a, b| a.served().total_cmp(&b.served()));
    Contended {
        shape,
        rate: of(|round| round.rate),
        least: worst.map_or(0, |round| round.least),
        most: worst.map_or(0, |round| round.most),
        hand_over: Times { p50: of(|round| round.hand_over.p50), p99: of(|round| round.hand_over.p99) },
        woken: of(|round| round.woken),
    }
}

impl Contended {
    /// Least over most served.
    pub(crate) fn served(&self) -> f64 {
        self.least as f64 / self.most.max(1) as f64
    }
}

pub(crate) fn table(rows: &[Row<Contended>]) -> Table {
    let head =
        ["processes × waiters", "sections/s", "least / most served", "hand-over p50 µs", "p99 µs", "woken per section"];
    let mut table = Table::new(&[&["contended"], &head[..]].concat());
    for Row { contestant, figure, .. } in rows {
        table.row([
            contestant.title().to_owned(),
            format!("{} × {}", figure.shape.processes, figure.shape.each),
            format!("{:.0}", figure.rate),
            format!("{} / {}", figure.least, figure.most),
            micros(figure.hand_over.p50),
            micros(figure.hand_over.p99),
            if contestant.is_fencelock() { decimals(figure.woken) } else { "–".to_owned() },
        ]);
    }
    table
}
