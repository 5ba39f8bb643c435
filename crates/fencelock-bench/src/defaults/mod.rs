//! What users get: no option set, tokio's multi-thread runtime, no core kept to; beside the same with
//! [`Io::CurrentRuntime`](fencelock::Io::CurrentRuntime), the floor and Python's `filelock`. All stores in one run.

mod goals;
pub(crate) mod stores;
mod tables;

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::bench::{Bench, Store};
use crate::contestant::Contestant::{self, Current, Filelock, Floor, Own, PgFloor, RedisFloor, ZkFloor, ZkFloorListed};
use crate::crew::{Crew, Placement, number};
use crate::families::Row;
use crate::families::hand_over::{Shape, queues};
use crate::families::held::growth;
use crate::protocol::{Order, Section, now};
use crate::run::Run;
use crate::site::{Kept, Network};
use crate::stats::Times;
use crate::{Files, machine, report, section};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    section: section::Options,
    #[command(flatten)]
    files: Files,
    /// Only these stores; goals of others are "not measured".
    #[arg(long, value_enum, conflicts_with = "write")]
    only: Vec<Store>,
}

/// The stores, in the order of the tables.
const STORES: [Store; 5] = [Store::Memory, Store::File, Store::Redis, Store::ZooKeeper, Store::Postgres];

/// Waiters of one process, in the rows about hand-over.
const WAITERS: [u64; 3] = [2, 100, 1000];

/// Rounds of a full run.
const ROUNDS: usize = 3;

/// Waiters of two processes, dealt out in turns, so that every hand-over is from one process to the other.
const BETWEEN: u64 = 100;

/// Tasks, each on a name of its own.
const TASKS: u64 = 64;

/// Time for a process to hear of the start.
const LEAD_NANOS: u64 = 50_000_000;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// p50 of the uncontended cycle, in nanoseconds.
    Cycle,
    /// p50 of the hand-over with so many waiters in one process, in nanoseconds.
    HandOver(u64),
    /// p50 of the hand-over where holder and next are two clients in two processes, with [`BETWEEN`] waiters, in nanoseconds.
    Between,
    /// Time per cycle of [`TASKS`] tasks together, each on a name of its own, in nanoseconds.
    Names,
    /// Processor time of the client per cycle, of [`TASKS`] tasks, in nanoseconds.
    Processor,
    /// Bytes of the client for each lock that is held.
    Held,
    /// Bytes of the client for each lock that is waited for, the caller's future aside.
    Waiting,
}

const WHATS: [What; 9] = [
    What::Cycle,
    What::HandOver(WAITERS[0]),
    What::HandOver(WAITERS[1]),
    What::HandOver(WAITERS[2]),
    What::Between,
    What::Names,
    What::Processor,
    What::Held,
    What::Waiting,
];

impl What {
    /// Whether it is measured behind the delay, too: a delay changes neither what the client computes nor what it keeps, and
    /// a thousand waiters take a minute to queue there.
    const fn is_far(self) -> bool {
        matches!(self, Self::Cycle | Self::HandOver(2 | 100) | Self::Between | Self::Names)
    }
}

/// What was measured of one contestant on one store.
struct Figure {
    store: Store,
    what: What,
    /// In the order of the rounds.
    rounds: Vec<f64>,
}

impl What {
    /// Where it is measured. A quick run fills no queue behind the delay, which would take most of its time.
    fn networks(self, run: &Run) -> &'static [Network] {
        let is_affordable = !run.bench.quick || matches!(self, Self::Cycle | Self::Names);
        if self.is_far() && is_affordable { run.site.networks() } else { &[Network::Loopback] }
    }

    /// Who is measured: a floor on files does not wait, nobody counts the memory of others, and what one process has in its
    /// memory is not for two.
    fn contestants(self, bench: &Bench) -> Vec<Contestant> {
        let all: &[_] = match self {
            Self::Cycle => &[Own, Current, Floor, RedisFloor, ZkFloor, ZkFloorListed, PgFloor, Filelock],
            Self::Between if bench.store == Store::Memory => &[],
            Self::HandOver(waiters) if waiters > bench.effort.waiters => &[],
            Self::HandOver(_) | Self::Between => &[Own, Current, RedisFloor, ZkFloor, PgFloor, Filelock],
            Self::Names | Self::Processor => &[Own, Current, RedisFloor, ZkFloor, PgFloor],
            Self::Held | Self::Waiting => &[Own, Current],
        };
        bench.present(all)
    }

    /// Nothing where it is nobody's.
    fn measure(self, run: &Run, network: Network) -> Result<Vec<Row<Figure>>> {
        let contestants = self.contestants(&run.bench);
        if contestants.is_empty() {
            return Ok(Vec::new());
        }
        let store = run.bench.store;
        let what = format!("{}, {self:?}", tables::place(store, network));
        eprintln!("measuring: {what}");
        let round = |contestant| {
            run.site.delays(network == Network::Delay);
            self.round(run, contestant, network)
        };
        run.rows(&contestants, network, &what, round, |rounds| Figure { store, what: self, rounds })
    }

    /// One figure of one round, in a process of its own.
    fn round(self, run: &Run, contestant: Contestant, network: Network) -> Result<f64> {
        let effort = run.bench.effort;
        let sessions = if self == Self::Between { 2 } else { 1 };
        let mut crew = run.crew(contestant, sessions, network, Placement::AsUsed)?;
        let cycles = if network == Network::Delay { effort.cycles.div_ceil(8) } else { effort.cycles };
        let worker = &mut crew.0[0];
        worker.ask(Order::Cycle { count: cycles.div_ceil(4) })?;
        match self {
            Self::Cycle => {
                worker.ask(Order::Cycle { count: cycles })?;
                Ok(Times::of(worker.log()?)?.p50)
            }
            Self::HandOver(waiters) => hand_over(run, &mut crew, contestant, network, Shape { waiters, sessions }),
            Self::Between => hand_over(run, &mut crew, contestant, network, Shape { waiters: BETWEEN, sessions }),
            Self::Names => names(&spread(&mut crew, effort.contend)?),
            Self::Processor => processor(&mut crew, effort.contend),
            Self::Held => {
                let order = Order::Hold { count: effort.held, tasks: TASKS };
                Ok(growth(&worker.ask(order)?)? / effort.held as f64)
            }
            Self::Waiting => {
                let answer = worker.ask(Order::Wait { count: effort.waiters })?;
                Ok(growth(&answer)? / effort.waiters as f64 - number(&answer, "future").unwrap_or(0) as f64)
            }
        }
    }
}

fn hand_over(run: &Run, crew: &mut Crew, contestant: Contestant, network: Network, shape: Shape) -> Result<f64> {
    Ok(queues(run, crew, contestant, network, shape, shape.waiters)?.times.p50)
}

/// What [`TASKS`] tasks do in that time, each on a name of its own.
fn spread(crew: &mut Crew, contend: Duration) -> Result<Vec<Section>> {
    let start = now() + LEAD_NANOS;
    crew.0[0].ask(Order::Spread {
        waiters: TASKS,
        first: 0,
        start,
        end: start + u64::try_from(contend.as_nanos())?,
    })?;
    crew.0[0].sections()
}

/// From the first lock to the last: the names may have been made ready only after the start.
fn names(sections: &[Section]) -> Result<f64> {
    let first = sections.iter().map(|section| section.acquired).min().context("no task had its lock")?;
    let last = sections.iter().map(|section| section.releasing).max().context("no task had its lock")?;
    Ok((last - first) as f64 / sections.len() as f64)
}

fn processor(crew: &mut Crew, contend: Duration) -> Result<f64> {
    let before = crew.processor_time()?;
    let cycles = spread(crew, contend)?.len() as u64 + TASKS;
    Ok(crew.processor_time()?.saturating_sub(before).as_nanos() as f64 / cycles as f64)
}

pub(crate) fn measure(options: &Options) -> Result<()> {
    let busy = machine::is_busy();
    let mut rows = Vec::new();
    let mut begin = None;
    for store in STORES.into_iter().filter(|store| options.only.is_empty() || options.only.contains(store)) {
        let mut bench = Bench::new(store, &options.section, &options.files)?;
        if !bench.quick && options.section.rounds.is_none() {
            bench.effort.rounds = ROUNDS;
        }
        let run = Run::new(bench)?;
        run.site.keep(Kept::Any)?;
        for what in WHATS {
            for network in what.networks(&run) {
                rows.extend(what.measure(&run, *network)?);
            }
        }
        if store == Store::File || begin.is_none() {
            begin = Some(section::begin(&run.bench, &[], busy.clone())?);
        }
    }
    let goals = goals::told(&rows, options.section.write);
    let section = format!("{}\n{}\n{goals}", begin.unwrap_or_default(), tables::figures(&rows));
    print!("{section}");
    if options.section.write {
        report::write("defaults", &section)?;
    }
    Ok(())
}
