//! The stores that are servers, each on one of the run's own: bare loopback, and behind a delay. Scenes that every store has
//! are in `rows/`.

mod counts;
mod hand_over;
mod held;
mod here;
mod redis;
mod redis_goals;
mod renewal;
mod site;
mod throughput;
mod zookeeper;
mod zookeeper_goals;

/// The servers of a run, for rows of other families.
pub(crate) mod server {
    pub(crate) use super::site::{Kept, Network, Site};
    pub(crate) use super::start;
}

use std::collections::HashSet;

use anyhow::Result;

use crate::bench::{Bench, Store};
use crate::contestant::Contestant;
use crate::crew::{Crew, Placement};
use crate::goals::verdicts;
use crate::peers::Peers;
use crate::rows::shared::Shared;
use crate::rows::{Row, cycle, shared};
use crate::run::Run;
use crate::stats::Times;
use crate::{machine, report};
use site::{Network, Site};
use throughput::Way;

/// The versions of the crates, as the manifest has them.
const ZOOKEEPER_CLIENT: &str = "zookeeper-client 0.11.2";
const RSLOCK: &str = "rslock 0.10";

/// As few as one of which may fail.
const MASTERS: usize = 3;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only shows that it works: the figures say nothing.
    #[arg(long)]
    quick: bool,
    /// Replaces the section of docs/benchmarks.md, besides printing it.
    #[arg(long, conflicts_with = "quick")]
    write: bool,
    /// Lets clients of other languages take part, which needs what `cargo xtask interop` needs.
    #[arg(long)]
    peers: bool,
    /// Rounds of each table, whose median counts.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: Option<u8>,
    /// Only these families of rows, for work on one of them; goals without figures are "not measured".
    #[arg(long, value_enum, conflicts_with = "write")]
    only: Vec<Family>,
}

/// A family of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Family {
    Cycle,
    /// The cycle on three masters.
    Redlock,
    Apart,
    Together,
    Processes,
    HandOver,
    Shared,
    Counts,
    Held,
    Renewal,
}

#[derive(Debug)]
struct Measured {
    cycle: Vec<Row<Times>>,
    /// The same on three masters.
    redlock: Vec<Row<Times>>,
    apart: Vec<Row<throughput::Throughput>>,
    together: Vec<Row<throughput::Throughput>>,
    processes: Vec<Row<throughput::Throughput>>,
    hand_over: Vec<Row<hand_over::HandOver>>,
    shared: Vec<Row<Shared>>,
    counts: Vec<Row<counts::Counts>>,
    held: Vec<Row<held::Held>>,
    renewal: Vec<Row<renewal::Renewal>>,
}

/// Starts the store's server, which keeps to the second core; or says that the store is on this machine.
pub(crate) fn start(bench: &Bench) -> Result<Box<dyn Site>> {
    Ok(match bench.store {
        Store::Redis => Box::new(redis::Redis::start(bench.cores, 1)?),
        Store::Redlock => Box::new(redis::Redis::start(bench.cores, MASTERS)?),
        Store::ZooKeeper => Box::new(zookeeper::ZooKeeper::start(bench.cores)?),
        store @ (Store::Memory | Store::File) => Box::new(here::Here::new(store, bench.scratch.path())?),
    })
}

pub(crate) fn measure(store: Store, options: &Options) -> Result<()> {
    let mut bench = Bench::new(store, options.quick, false, None)?;
    bench.effort.rounds = options.rounds.map_or(bench.effort.rounds, usize::from);
    bench.peers = options.peers.then(|| Peers::build(store)).transpose()?;
    let busy = machine::is_busy();
    let mut run = Run::new(bench)?;
    eprintln!("warming up the server");
    throughput::warm(&run)?;
    let (mut measured, mut said) = (families(&run, options)?, description(&run)?);
    if store == Store::Redis {
        run.moves_to(Store::Redlock)?;
        measured.redlock = family(options, Family::Redlock, || cycle::measure(&run))?;
        said.extend(description(&run)?);
        run.moves_to(store)?;
    }
    let section = section(&run, busy, said, &measured, options.only.is_empty())?;
    print!("{section}");
    if options.write {
        report::write(if store == Store::Redis { "redis" } else { "zookeeper" }, &section)?;
    }
    Ok(())
}

fn families(run: &Run, options: &Options) -> Result<Measured> {
    Ok(Measured {
        cycle: family(options, Family::Cycle, || cycle::measure(run))?,
        redlock: Vec::new(),
        apart: family(options, Family::Apart, || throughput::measure(run, Way::Apart))?,
        together: family(options, Family::Together, || throughput::measure(run, Way::Together))?,
        processes: family(options, Family::Processes, || throughput::measure(run, Way::Processes))?,
        hand_over: family(options, Family::HandOver, || hand_over::measure(run))?,
        shared: family(options, Family::Shared, || shared::measure(run))?,
        counts: family(options, Family::Counts, || counts::measure(run))?,
        // The last, since they leave most behind.
        held: family(options, Family::Held, || held::measure(run))?,
        renewal: family(options, Family::Renewal, || renewal::measure(run))?,
    })
}

fn family<T>(options: &Options, family: Family, measure: impl FnOnce() -> Result<Vec<T>>) -> Result<Vec<T>> {
    if !options.only.is_empty() && !options.only.contains(&family) {
        return Ok(Vec::new());
    }
    let start = std::time::Instant::now();
    eprintln!("measuring: {family:?}");
    let rows = measure()?;
    eprintln!("measured: {family:?}, in {:.0} s", start.elapsed().as_secs_f64());
    Ok(rows)
}

/// What is measured there: the servers, and the versions of the clients.
fn description(run: &Run) -> Result<Vec<String>> {
    let mut said = vec![run.site.describe()?];
    for peer in run.bench.present(&Contestant::DRIVEN) {
        let target = run.site.target(Network::Loopback);
        let version = || Crew::on(&run.bench, peer, 1, &target, Placement::Free)?.0[0].version();
        said.push(run.round(peer, "its version", version)?.unwrap_or_else(|| peer.title().to_owned()));
    }
    Ok(said)
}

fn section(
    run: &Run,
    busy: Option<String>,
    mut said: Vec<String>,
    measured: &Measured,
    is_whole: bool,
) -> Result<String> {
    let redis = run.bench.store == Store::Redis;
    said.insert(0, machine::describe(Some(&std::env::temp_dir()))?);
    said.push(if redis { RSLOCK } else { ZOOKEEPER_CLIENT }.to_owned());
    said.push(format!("rounds: {}", run.bench.effort.rounds));
    let quick = run.bench.quick.then(|| "a quick run, whose figures say nothing".to_owned());
    said.extend([busy, quick].into_iter().flatten().map(|warning| format!("**{warning}**")));
    // One driver may have several locks.
    let mut seen = HashSet::new();
    said.retain(|what| seen.insert(what.clone()));
    let floor = run.bench.store.floor();
    let goals = if redis { redis_goals::all(measured) } else { zookeeper_goals::all(measured) };
    let goals = verdicts(goals.into_iter().filter(|goal| is_whole || goal.value.is_some()).collect());
    let tables = [
        (measured.cycle.is_empty(), cycle::table("cycle", &measured.cycle, run.bench.store)),
        (measured.redlock.is_empty(), cycle::table("cycle, three masters", &measured.redlock, Store::Redlock)),
        (measured.apart.is_empty(), throughput::table(&measured.apart, Way::Apart, floor)),
        (measured.together.is_empty(), throughput::table(&measured.together, Way::Together, floor)),
        (measured.processes.is_empty(), throughput::table(&measured.processes, Way::Processes, floor)),
        (measured.hand_over.is_empty(), hand_over::table(run, &measured.hand_over, Network::Loopback)),
        (measured.hand_over.is_empty(), hand_over::table(run, &measured.hand_over, Network::Delay)),
        (measured.shared.is_empty(), shared::table(&measured.shared, run.bench.store, Network::Loopback)),
        (measured.shared.is_empty(), shared::table(&measured.shared, run.bench.store, Network::Delay)),
        (measured.counts.is_empty(), counts::table(&measured.counts)),
        (measured.held.is_empty(), held::table(run, &measured.held)),
        (measured.renewal.is_empty(), renewal::table(run, &measured.renewal)),
        (false, goals),
    ];
    let tables = tables.iter().filter(|(is_empty, _)| !is_empty).map(|(_, table)| table.to_string());
    let begin = format!("Measured on {}.\n", said.join("; "));
    Ok([begin, faults(run)].into_iter().filter(|text| !text.is_empty()).chain(tables).collect::<Vec<_>>().join("\n"))
}

/// What has no figure, or one of fewer rounds, because another client failed.
fn faults(run: &Run) -> String {
    let faults = run.faults.borrow();
    if faults.is_empty() {
        return String::new();
    }
    let list: String = faults.iter().map(|fault| format!("- {fault}\n")).collect();
    format!("Other clients failed, and have no figure of these rounds:\n\n{list}")
}
