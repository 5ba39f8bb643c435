//! What several may have at once: one writer among many readers, and a semaphore with fewer permits than contenders.

use anyhow::Result;

use super::{Row, Window};
use crate::contestant::Contestant;
use crate::crew::Worker;
use crate::protocol::{Order, Section};
use crate::report::{Table, decimals};
use crate::run::Run;
use crate::site::Network;
use crate::stats::{Times, fit, hand_overs, least_and_most, median};

/// Those who have both. Go's client has neither.
const CONTESTANTS: [Contestant; 5] =
    [Contestant::Current, Contestant::Own, Contestant::OwnApart, Contestant::Curator, Contestant::Kazoo];

const READERS: u64 = 100;
const CONTENDERS: u64 = 100;
const PERMITS: u64 = 10;

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

pub(super) fn measure(run: &Run) -> Result<Vec<Row<Shared>>> {
    let mut contestants = run.bench.present(&CONTESTANTS);
    // Nobody keeps to a core beside a server.
    contestants.retain(|contestant| !run.bench.store.has_server() || *contestant != Contestant::OwnApart);
    run.everywhere(|network| {
        let what = format!("shared, {}", network.title());
        run.rows(&contestants, network, &what, |contestant| round(run, contestant, network), |rounds| over(&rounds))
    })
}

/// One process for each kind of lock.
fn round(run: &Run, contestant: Contestant, network: Network) -> Result<Shared> {
    let seconds = run.bench.effort.contend.as_secs_f64();
    let start = || run.crowd(contestant, 1, network);
    let share = |start, end| Order::Share { readers: READERS, start, end };
    let shared = contend(run, &mut start()?.0[0], share)?;
    fit(&shared, READERS, |section| if section.who == 0 { READERS } else { 1 })?;
    let (mut writes, reads): (Vec<_>, Vec<_>) = shared.into_iter().partition(|section| section.who == 0);
    let permits = |start, end| Order::Permits { capacity: PERMITS, waiters: CONTENDERS, start, end };
    let permits = contend(run, &mut start()?.0[0], permits)?;
    fit(&permits, PERMITS, |_| 1)?;
    let (least, most) = least_and_most(&permits, CONTENDERS);
    Ok(Shared {
        reads: reads.len() as f64 / seconds,
        writes: writes.len() as f64 / seconds,
        writer: Times::of(hand_overs(&mut writes)?).unwrap_or(Times::NONE),
        permits: permits.len() as f64 / seconds,
        served: least as f64 / most.max(1) as f64,
    })
}

/// Everything but the beginning, until everybody is there.
fn contend(run: &Run, worker: &mut Worker, order: impl Fn(u64, u64) -> Order) -> Result<Vec<Section>> {
    worker.warm(&order)?;
    let window = Window::of(run.bench.effort.contend)?;
    worker.ask(order(window.start, window.end))?;
    let mut sections = worker.sections()?;
    sections.retain(|section| section.acquired >= window.from);
    Ok(sections)
}

/// Of each figure its median; the worst of how evenly they were served.
fn over(rounds: &[Shared]) -> Shared {
    let of = |figure: fn(&Shared) -> f64| median(rounds.iter().map(figure));
    Shared {
        reads: of(|round| round.reads),
        writes: of(|round| round.writes),
        writer: Times::median(rounds.iter().map(|round| round.writer)),
        permits: of(|round| round.permits),
        served: rounds.iter().map(|round| round.served).fold(1.0, f64::min),
    }
}

/// One for each way to the store; what the way is stands in the head where there is more than one.
pub(super) fn tables(run: &Run, rows: &[Row<Shared>]) -> Vec<Table> {
    run.site.networks().iter().map(|network| table(run, rows, *network)).collect()
}

fn table(run: &Run, rows: &[Row<Shared>], network: Network) -> Table {
    let (unit, write) = network.unit();
    let title = "1 writer and 100 readers";
    let has_server = run.bench.store.has_server();
    let first = if has_server { format!("{title}, {}", network.title()) } else { title.to_owned() };
    let waits = format!("the writer waits, p50 (p99) {unit}");
    let permits = format!("{CONTENDERS} contenders for {PERMITS} permits, sections/s");
    let mut table = Table::new(&[&first, "reads/s", "writes/s", &waits, &permits, "least ÷ most served"]);
    for Row { contestant, figure, .. } in rows.iter().filter(|row| row.network == network) {
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
