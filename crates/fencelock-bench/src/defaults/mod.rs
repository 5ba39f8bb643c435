//! What users get: no option set, tokio's multi-thread runtime, no core kept to; beside the same with
//! [`Io::CurrentRuntime`](fencelock::Io::CurrentRuntime), the floor and Python's `filelock`. All stores in one run.

mod goals;
mod tables;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::bench::{Bench, Store};
use crate::contestant::Contestant::{self, Current, Filelock, Floor, Own, RedisFloor, ZkFloor, ZkFloorListed};
use crate::crew::{Crew, Placement, number};
use crate::network::server::{self, Kept, Network};
use crate::protocol::{Order, Section, now};
use crate::rows::hand_over::drain;
use crate::rows::take_turns;
use crate::stats::{Times, hand_overs};
use crate::{machine, report};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only shows that it works: the figures say nothing.
    #[arg(long)]
    quick: bool,
    /// Replaces the section of docs/benchmarks.md, besides printing it.
    #[arg(long, conflicts_with = "quick")]
    write: bool,
    /// Leaves Python's filelock out, which needs Python and a package index.
    #[arg(long)]
    without_filelock: bool,
    /// Rounds, in which everybody takes turns; a full run makes 3.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: Option<u8>,
    /// Works in this directory, to measure its file system.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Only these stores; goals of others are "not measured".
    #[arg(long, value_enum, conflicts_with = "write")]
    only: Vec<Store>,
}

/// The stores, in the order of the tables.
const STORES: [Store; 4] = [Store::Memory, Store::File, Store::Redis, Store::ZooKeeper];

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

/// One row: of everybody the figure of each round.
struct Row {
    store: Store,
    /// Loopback, where there is no server, too.
    network: Network,
    what: What,
    figures: Vec<(Contestant, Vec<f64>)>,
}

/// Where a run measures, store by store.
struct Site {
    bench: Bench,
    /// Its server is on any core.
    store: Box<dyn server::Site>,
}

impl Site {
    fn new(store: Store, options: &Options) -> Result<Self> {
        let mut bench = Bench::new(store, options.quick, !options.without_filelock, options.directory.as_deref())?;
        let rounds = if options.quick { bench.effort.rounds } else { ROUNDS };
        bench.effort.rounds = options.rounds.map_or(rounds, usize::from);
        let store = server::start(&bench)?;
        store.keep(Kept::Any)?;
        Ok(Self { bench, store })
    }

    /// Where it is measured. A quick run fills no queue behind the delay, which would take most of its time.
    fn networks(&self, what: What) -> &'static [Network] {
        let is_affordable = !self.bench.quick || matches!(what, What::Cycle | What::Names);
        if what.is_far() && is_affordable { self.store.networks() } else { &[Network::Loopback] }
    }

    /// Who is measured: a floor on files does not wait, nobody counts the memory of others, and what one process has in its
    /// memory is not for two.
    fn contestants(&self, what: What) -> Vec<Contestant> {
        let all: &[_] = match what {
            What::Cycle => &[Own, Current, Floor, RedisFloor, ZkFloor, ZkFloorListed, Filelock],
            What::Between if self.bench.store == Store::Memory => &[],
            What::HandOver(waiters) if waiters > self.bench.effort.waiters => &[],
            What::HandOver(_) | What::Between => &[Own, Current, RedisFloor, ZkFloor, Filelock],
            What::Names | What::Processor => &[Own, Current, RedisFloor, ZkFloor],
            What::Held | What::Waiting => &[Own, Current],
        };
        self.bench.present(all)
    }

    /// One figure of one round, in a process of its own.
    fn figure(&self, contestant: Contestant, network: Network, what: What) -> Result<f64> {
        let effort = self.bench.effort;
        let processes = if what == What::Between { 2 } else { 1 };
        let mut crew = Crew::on(&self.bench, contestant, processes, &self.store.target(network), Placement::AsUsed)?;
        let cycles = if network == Network::Delay { effort.cycles.div_ceil(8) } else { effort.cycles };
        let worker = &mut crew.0[0];
        worker.ask(Order::Cycle { count: cycles.div_ceil(4) })?;
        match what {
            What::Cycle => {
                worker.ask(Order::Cycle { count: cycles })?;
                Ok(Times::of(worker.log()?)?.p50)
            }
            What::HandOver(waiters) => self.hand_over(&mut crew, contestant, waiters),
            What::Between => self.hand_over(&mut crew, contestant, BETWEEN),
            What::Names => names(&spread(&mut crew, effort.contend)?),
            What::Processor => processor(&mut crew, effort.contend),
            What::Held => {
                let order = Order::Hold { count: effort.held, tasks: TASKS };
                Ok(growth(&worker.ask(order)?)? / effort.held as f64)
            }
            What::Waiting => {
                let answer = worker.ask(Order::Wait { count: effort.waiters })?;
                Ok(growth(&answer)? / effort.waiters as f64 - number(&answer, "future").unwrap_or(0) as f64)
            }
        }
    }

    /// The first time is not looked at; then as often as it takes to see enough.
    fn hand_over(&self, crew: &mut Crew, contestant: Contestant, waiters: u64) -> Result<f64> {
        drain(crew, contestant, waiters, &*self.store)?;
        let mut times = Vec::new();
        for _ in 0..self.bench.effort.hand_overs.div_ceil(waiters) {
            let (_, mut sections) = drain(crew, contestant, waiters, &*self.store)?;
            times.extend(hand_overs(&mut sections)?);
        }
        Ok(Times::of(times)?.p50)
    }

    /// Nothing where it is nobody's.
    fn row(&self, what: What, network: Network) -> Result<Option<Row>> {
        let contestants = self.contestants(what);
        if contestants.is_empty() {
            return Ok(None);
        }
        eprintln!("measuring: {}, {what:?}", tables::place(self.bench.store, network));
        self.store.delays(network == Network::Delay);
        let turn = |contestant| self.figure(contestant, network, what).map(Some);
        let figures = take_turns(&contestants, self.bench.effort.rounds, turn)?;
        Ok(Some(Row { store: self.bench.store, network, what, figures }))
    }
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

fn growth(answer: &str) -> Result<f64> {
    let said = |key| number(answer, key).with_context(|| format!("a worker did not say what it used {key}"));
    Ok(said("after")?.saturating_sub(said("before")?) as f64)
}

pub(crate) fn measure(options: &Options) -> Result<()> {
    let busy = machine::is_busy();
    let mut rows = Vec::new();
    let mut machine = String::new();
    for store in STORES.into_iter().filter(|store| options.only.is_empty() || options.only.contains(store)) {
        let site = Site::new(store, options)?;
        for what in WHATS {
            for network in site.networks(what) {
                rows.extend(site.row(what, *network)?);
            }
        }
        if store == Store::File || machine.is_empty() {
            machine = tables::machine(&site.bench)?;
        }
    }
    let quick = options.quick.then(|| "a quick run, whose figures say nothing".to_owned());
    for warning in [busy, quick].into_iter().flatten() {
        machine.push_str(&format!("; **{warning}**"));
    }
    let section = format!("Measured on {machine}.\n\n{}\n{}", tables::figures(&rows), goals::table(&rows));
    print!("{section}");
    if options.write {
        report::write("defaults", &section)?;
    }
    Ok(())
}
