//! What several may have at once: one writer among many readers, and a semaphore with fewer permits than contenders.

use anyhow::Result;

use super::Row;
use crate::bench::Bench;
use crate::contestant::Contestant;
use crate::crew::{Crew, Worker};
use crate::protocol::{Order, Section, now};
use crate::report::{Table, decimals};
use crate::stats::{Times, fit, hand_overs, least_and_most, median};

const CONTESTANTS: [Contestant; 3] = [Contestant::Current, Contestant::Own, Contestant::OwnApart];

const READERS: u64 = 100;
const CONTENDERS: u64 = 100;
const PERMITS: u64 = 10;

/// Time for every process to hear of the start.
const LEAD_NANOS: u64 = 100_000_000;
/// What is not looked at: until everybody is there.
const WARM_NANOS: u64 = 200_000_000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared {
    /// Sections of readers per second.
    reads: f64,
    writes: f64,
    /// From a release of the writer, who comes again at once, to its next section.
    writer: Times,
    /// Sections of the semaphore per second.
    permits: f64,
    /// The one served least over the one served most, of those who want a permit.
    served: f64,
}

pub(crate) fn measure(bench: &Bench) -> Result<Vec<Row<Shared>>> {
    let contestants = bench.present(&CONTESTANTS);
    let mut rounds = vec![Vec::new(); contestants.len()];
    for _ in 0..bench.effort.rounds {
        for (contestant, rounds) in contestants.iter().zip(&mut rounds) {
            let start = || Crew::start(bench, *contestant, 1);
            rounds.push(round(bench, start)?);
        }
    }
    let row = |(contestant, rounds): (_, Vec<Shared>)| Row { contestant, figure: over(&rounds) };
    Ok(contestants.into_iter().zip(rounds).map(row).collect())
}

/// One process for each kind of lock.
pub(crate) fn round(bench: &Bench, start: impl Fn() -> Result<Crew>) -> Result<Shared> {
    let seconds = bench.effort.contend.as_secs_f64();
    let share = |start, end| Order::Share { readers: READERS, start, end };
    let shared = contend(bench, &mut start()?.0[0], share)?;
    fit(&shared, READERS, |section| if section.who == 0 { READERS } else { 1 })?;
    let (mut writes, reads): (Vec<_>, Vec<_>) = shared.into_iter().partition(|section| section.who == 0);
    let permits = |start, end| Order::Permits { capacity: PERMITS, waiters: CONTENDERS, start, end };
    let permits = contend(bench, &mut start()?.0[0], permits)?;
    fit(&permits, PERMITS, |_| 1)?;
    let (least, most) = least_and_most(&permits, CONTENDERS);
    Ok(Shared {
        reads: reads.len() as f64 / seconds,
        writes: writes.len() as f64 / seconds,
        writer: Times::of(hand_overs(&mut writes)?).unwrap_or(Times { p50: f64::NAN, p99: f64::NAN }),
        permits: permits.len() as f64 / seconds,
        served: least as f64 / most.max(1) as f64,
    })
}

/// Everything but the beginning, until everybody is there.
fn contend(bench: &Bench, worker: &mut Worker, order: impl Fn(u64, u64) -> Order) -> Result<Vec<Section>> {
    worker.warm(&order)?;
    let start = now() + LEAD_NANOS;
    let end = start + WARM_NANOS + u64::try_from(bench.effort.contend.as_nanos())?;
    worker.ask(order(start, end))?;
    let mut sections = worker.sections()?;
    sections.retain(|section| section.acquired >= start + WARM_NANOS);
    Ok(sections)
}

/// Of each figure its median; the worst of how evenly they were served.
pub(crate) fn over(rounds: &[Shared]) -> Shared {
    let of = |figure: fn(&Shared) -> f64| median(rounds.iter().map(figure));
    Shared {
        reads: of(|round| round.reads),
        writes: of(|round| round.writes),
        writer: Times { p50: of(|round| round.writer.p50), p99: of(|round| round.writer.p99) },
        permits: of(|round| round.permits),
        served: rounds.iter().map(|round| round.served).fold(1.0, f64::min),
    }
}

pub(crate) fn table<'r>(
    first: &str,
    unit: &str,
    write: fn(f64) -> String,
    rows: impl IntoIterator<Item = (Contestant, &'r Shared)>,
) -> Table {
    let waits = format!("the writer waits, p50 (p99) {unit}");
    let permits = format!("{CONTENDERS} contenders for {PERMITS} permits, sections/s");
    let mut table = Table::new(&[first, "reads/s", "writes/s", &waits, &permits, "least ÷ most served"]);
    for (contestant, figure) in rows {
        let waits = match figure.writer.p50.is_nan() {
            // It had the lock once, or never.
            true => "–".to_owned(),
            false => format!("{} ({})", write(figure.writer.p50), write(figure.writer.p99)),
        };
        table.row([
            contestant.title().to_owned(),
            decimals(figure.reads),
            decimals(figure.writes),
            waits,
            decimals(figure.permits),
            decimals(figure.served),
        ]);
    }
    table
}

/// What the tables begin with.
pub(crate) const TITLE: &str = "1 writer and 100 readers";
