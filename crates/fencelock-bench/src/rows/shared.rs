//! What several may have at once: one writer among many readers, and a semaphore with fewer permits than contenders.

use anyhow::Result;

use super::Row;
use crate::bench::{Bench, Store};
use crate::contestant::Contestant;
use crate::crew::{Crew, Placement, Worker};
use crate::network::server::{Kept, Network};
use crate::protocol::{Order, Section, now};
use crate::report::{Table, decimals};
use crate::run::Run;
use crate::stats::{Times, fit, hand_overs, least_and_most, median};

/// Those who have both. Go's client has neither.
const CONTESTANTS: [Contestant; 5] =
    [Contestant::Current, Contestant::Own, Contestant::OwnApart, Contestant::Curator, Contestant::Kazoo];

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

pub(crate) fn measure(run: &Run) -> Result<Vec<Row<Shared>>> {
    let has_server = run.bench.store.has_server();
    let mut contestants = run.bench.present(&CONTESTANTS);
    // Nobody keeps to a core beside a server.
    contestants.retain(|contestant| !has_server || *contestant != Contestant::OwnApart);
    let placement = if has_server { Placement::Free } else { Placement::Dealt };
    run.site.keep(Kept::Any)?;
    let mut rows = Vec::new();
    for &network in run.site.networks() {
        run.site.delays(network == Network::Delay);
        let what = format!("shared, {}", network.title());
        let found = run.turns(&contestants, &what, |contestant| {
            round(&run.bench, || Crew::on(&run.bench, contestant, 1, &run.site.target(network), placement))
        })?;
        let row = |(contestant, rounds): (_, Vec<_>)| Row { contestant, network, figure: over(&rounds) };
        rows.extend(found.into_iter().map(row));
    }
    run.site.delays(false);
    run.site.keep(Kept::Second)?;
    Ok(rows)
}

/// One process for each kind of lock.
fn round(bench: &Bench, start: impl Fn() -> Result<Crew>) -> Result<Shared> {
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
fn over(rounds: &[Shared]) -> Shared {
    let of = |figure: fn(&Shared) -> f64| median(rounds.iter().map(figure));
    Shared {
        reads: of(|round| round.reads),
        writes: of(|round| round.writes),
        writer: Times { p50: of(|round| round.writer.p50), p99: of(|round| round.writer.p99) },
        permits: of(|round| round.permits),
        served: rounds.iter().map(|round| round.served).fold(1.0, f64::min),
    }
}

/// Of one way to the store; what the way is stands in the head where there is more than one.
pub(crate) fn table(rows: &[Row<Shared>], store: Store, network: Network) -> Table {
    let (unit, write) = network.unit();
    let title = "1 writer and 100 readers";
    let first = if store.has_server() { format!("{title}, {}", network.title()) } else { title.to_owned() };
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
