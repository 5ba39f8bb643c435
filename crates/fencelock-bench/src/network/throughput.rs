//! Many tasks at once: each on a name of its own, and all on one. Nobody keeps to a core here, the server neither.

use anyhow::Result;

use super::site::{Kept, Network};
use crate::bench::Store;
use crate::contestant::Contestant;
use crate::crew::{Crew, Placement};
use crate::protocol::{Order, Section, now};
use crate::report::{Table, decimals, micros};
use crate::rows::Row;
use crate::rows::figure;
use crate::run::Run;
use crate::stats::{hand_overs, least_and_most, median};

/// Who wants what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// 64 tasks of one process, each on a name of its own.
    Apart,
    /// 32 tasks of one process, all on one name.
    Together,
    /// 8 tasks in each of 4 processes, all on one name.
    Processes,
}

impl Way {
    /// What a table begins with.
    const fn title(self) -> &'static str {
        match self {
            Self::Apart => "64 tasks on 64 names",
            Self::Together => "32 waiters on one name",
            Self::Processes => "4 processes × 8 waiters on one name",
        }
    }

    const fn processes(self) -> u64 {
        if matches!(self, Self::Processes) { 4 } else { 1 }
    }

    /// Tasks in each process.
    const fn each(self) -> u64 {
        match self {
            Self::Apart => 64,
            Self::Together => 32,
            Self::Processes => 8,
        }
    }

    fn order(self, process: u64, start: u64, end: u64) -> Order {
        let (waiters, first) = (self.each(), process * self.each());
        match self {
            Self::Apart => Order::Spread { waiters, first, start, end },
            Self::Together | Self::Processes => Order::Contend { waiters, first, start, end },
        }
    }

    /// Who takes no part: where nobody waits there is one way to hand over, and nobody keeps to a core here.
    fn absent(self) -> &'static [Contestant] {
        match self {
            Self::Apart => &[Contestant::OwnApart, Contestant::CurrentListed],
            Self::Together | Self::Processes => &[Contestant::OwnApart, Contestant::PlainFloor],
        }
    }
}

/// Time for every process to hear of the start.
const LEAD_NANOS: u64 = 100_000_000;
/// What is not looked at: until everybody is there.
const WARM_NANOS: u64 = 200_000_000;

#[derive(Debug, Clone, Copy)]
pub(super) struct Throughput {
    /// Sections per second.
    pub(super) rate: f64,
    /// The one served least over the one served most, in the worst round.
    pub(super) served: f64,
    /// Requests that the server received for each section, those that make the parents included.
    pub(super) requests: f64,
    /// Processor time that the client took for each section, in nanoseconds.
    processor: f64,
}

/// The server learns what to compile, and the disk what is coming.
pub(super) fn warm(run: &Run) -> Result<()> {
    let floor = run.bench.store.floor();
    round(run, floor, Network::Loopback, Way::Apart).map(drop)
}

pub(super) fn measure(run: &Run, way: Way) -> Result<Vec<Row<Throughput>>> {
    run.site.keep(Kept::Any)?;
    let mut rows = Vec::new();
    for network in Network::BOTH {
        run.site.delays(network == Network::Delay);
        let mut contestants = run.bench.present_but(way.absent());
        contestants.retain(|contestant| way == Way::Apart || contestant.waits());
        // Four Java machines on two cores would measure the machine; on Redis they are idle enough to be told from ours.
        let redis = run.bench.store == Store::Redis;
        contestants.retain(|contestant| redis || way.processes() == 1 || !contestant.is_driven());
        let what = format!("{}, {}", way.title(), network.title());
        let found = run.turns(&contestants, &what, |contestant| round(run, contestant, network, way))?;
        rows.extend(found.into_iter().map(|(contestant, rounds)| {
            let of = |figure: fn(&Throughput) -> f64| median(rounds.iter().map(figure));
            let (rate, requests) = (of(|round| round.rate), of(|round| round.requests));
            let (processor, served) = (of(|round| round.processor), rounds.iter().map(|round| round.served));
            let figure = Throughput { rate, requests, processor, served: served.fold(1.0, f64::min) };
            Row { contestant, network, figure }
        }));
    }
    run.site.delays(false);
    run.site.keep(Kept::Second)?;
    Ok(rows)
}

fn round(run: &Run, contestant: Contestant, network: Network, way: Way) -> Result<Throughput> {
    let target = run.site.target(network);
    let mut crew = Crew::on(&run.bench, contestant, way.processes(), &target, Placement::Free)?;
    for (process, worker) in (0..).zip(&mut crew.0) {
        worker.warm(|start, end| way.order(process, start, end))?;
    }
    let contend = run.bench.effort.contend;
    let start = now() + LEAD_NANOS;
    let end = start + WARM_NANOS + u64::try_from(contend.as_nanos())?;
    let (before, processor) = (run.site.traffic()?, crew.processor_time()?);
    for (process, worker) in (0..).zip(&mut crew.0) {
        worker.send(way.order(process, start, end))?;
    }
    let (_, mut sections) = crew.finish()?;
    // Everybody takes the lock once more than it says, after the end.
    let waiters = way.processes() * way.each();
    let all = sections.len() as f64 + waiters as f64;
    let processor = crew.processor_time()?.saturating_sub(processor).as_nanos() as f64 / all;
    let (requests, _) = run.site.traffic()?.since(before);
    if way != Way::Apart {
        // Fails when two had the lock at once.
        hand_overs(&mut sections)?;
    }
    sections.retain(|section: &Section| (start + WARM_NANOS..end).contains(&section.acquired));
    let (least, most) = least_and_most(&sections, waiters);
    let rate = sections.len() as f64 / contend.as_secs_f64();
    Ok(Throughput { rate, served: least as f64 / most.max(1) as f64, requests: requests / all, processor })
}

/// On names of their own with the column "× floor", on one name with how evenly they were served.
pub(super) fn table(rows: &[Row<Throughput>], way: Way, floor: Contestant) -> Table {
    let (each, second) = match way {
        Way::Apart => ("cycles/s", "× floor"),
        Way::Together | Way::Processes => ("sections/s", "least ÷ most served"),
    };
    let (near, far) = (format!("loopback {each}"), format!("2 ms each way {each}"));
    let rate = |network| figure(rows, floor, network).map_or(f64::NAN, |floor| floor.rate);
    let cost = ["requests each", "client's processor µs each"];
    let mut table = Table::new(&[way.title(), &near, second, cost[0], cost[1], &far, second]);
    for Row { contestant, figure: near, .. } in rows.iter().filter(|row| row.network == Network::Loopback) {
        let Some(far) = figure(rows, *contestant, Network::Delay) else { continue };
        let second = |network, throughput: &Throughput| match way {
            Way::Apart => decimals(throughput.rate / rate(network)),
            Way::Together | Way::Processes => decimals(throughput.served),
        };
        table.row([
            contestant.title().to_owned(),
            format!("{:.0}", near.rate),
            second(Network::Loopback, near),
            decimals(near.requests),
            micros(near.processor),
            format!("{:.0}", far.rate),
            second(Network::Delay, far),
        ]);
    }
    table
}
