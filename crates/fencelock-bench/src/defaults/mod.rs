//! What users get: no option set, tokio's multi-thread runtime, no core kept to; beside the same with
//! [`Io::CurrentRuntime`](fencelock::Io::CurrentRuntime), the floor and Python's `filelock`. All stores in one run.

mod goals;
mod tables;

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::bench::{Bench, Store};
use crate::contestant::Contestant::{self, Current, Filelock, Floor, Own, RedisFloor};
use crate::crew::{Crew, Placement, Target, number};
use crate::network::server::Redis;
use crate::protocol::{Order, now};
use crate::rows::hand_over::drain;
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
    /// Rounds, in which everybody takes turns.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Works in this directory, to measure its file system.
    #[arg(long)]
    directory: Option<PathBuf>,
}

/// The stores, in the order of the tables.
const STORES: [Store; 3] = [Store::Memory, Store::File, Store::Redis];

/// Waiters of one process, in the rows about hand-over.
const WAITERS: [u64; 2] = [100, 1000];

/// Tasks, each on a name of its own, in the row about processor time.
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
    /// Processor time of the client per cycle, of [`TASKS`] tasks, in nanoseconds.
    Processor,
    /// Bytes of the client for each lock that is held.
    Held,
    /// Bytes of the client for each lock that is waited for, the caller's future aside.
    Waiting,
}

const WHATS: [What; 6] =
    [What::Cycle, What::HandOver(WAITERS[0]), What::HandOver(WAITERS[1]), What::Processor, What::Held, What::Waiting];

/// One row: of everybody the figure of each round.
struct Row {
    store: Store,
    what: What,
    figures: Vec<(Contestant, Vec<f64>)>,
}

/// Where a run measures, store by store.
struct Site {
    bench: Bench,
    redis: Option<Redis>,
}

impl Site {
    fn new(store: Store, options: &Options) -> Result<Self> {
        let mut bench = Bench::new(store, options.quick, !options.without_filelock, options.directory.as_deref())?;
        bench.effort.rounds = usize::from(options.rounds);
        let redis = (store == Store::Redis).then(|| Redis::anywhere(bench.cores)).transpose()?;
        Ok(Self { bench, redis })
    }

    fn target(&self) -> Result<Target> {
        self.redis.as_ref().map_or_else(|| self.bench.target(), |redis| Ok(redis.loopback()))
    }

    fn crew(&self, contestant: Contestant) -> Result<Crew> {
        Crew::on(&self.bench, contestant, 1, &self.target()?, Placement::AsUsed)
    }

    /// Who is measured: a floor does not wait, and of others nobody counts the memory.
    fn contestants(&self, what: What) -> Vec<Contestant> {
        let all: &[_] = match what {
            What::Cycle => &[Own, Current, Floor, RedisFloor, Filelock],
            What::HandOver(_) => &[Own, Current, RedisFloor, Filelock],
            What::Processor => &[Own, Current, RedisFloor],
            What::Held | What::Waiting => &[Own, Current],
        };
        self.bench.present(all)
    }

    /// One figure of one round, in a process of its own.
    fn figure(&self, contestant: Contestant, what: What) -> Result<f64> {
        let effort = self.bench.effort;
        let mut crew = self.crew(contestant)?;
        let worker = &mut crew.0[0];
        worker.ask(Order::Cycle { count: effort.cycles / 4 })?;
        match what {
            What::Cycle => {
                worker.ask(Order::Cycle { count: effort.cycles })?;
                Ok(Times::of(worker.log()?)?.p50)
            }
            What::HandOver(waiters) => hand_over(&mut crew, contestant, waiters.min(effort.waiters)),
            What::Processor => processor(&mut crew, effort.contend.as_nanos().try_into()?),
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

    fn row(&self, what: What) -> Result<Row> {
        eprintln!("measuring: {:?}, {what:?}", self.bench.store);
        let contestants = self.contestants(what);
        let mut figures: Vec<_> = contestants.into_iter().map(|contestant| (contestant, Vec::new())).collect();
        for _ in 0..self.bench.effort.rounds {
            for (contestant, figures) in &mut figures {
                figures.push(self.figure(*contestant, what)?);
            }
        }
        Ok(Row { store: self.bench.store, what, figures })
    }
}

/// The first time is not looked at.
fn hand_over(crew: &mut Crew, contestant: Contestant, waiters: u64) -> Result<f64> {
    drain(crew, contestant, waiters)?;
    let (_, mut sections) = drain(crew, contestant, waiters)?;
    Ok(Times::of(hand_overs(&mut sections)?)?.p50)
}

fn processor(crew: &mut Crew, contend: u64) -> Result<f64> {
    let start = now() + LEAD_NANOS;
    let before = crew.processor_time()?;
    crew.0[0].ask(Order::Spread { waiters: TASKS, first: 0, start, end: start + contend })?;
    let cycles = crew.0[0].sections()?.len() as u64 + TASKS;
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
    for store in STORES {
        let site = Site::new(store, options)?;
        for what in WHATS {
            rows.push(site.row(what)?);
        }
        if store == Store::File {
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
