//! The sections of `docs/benchmarks.md`: of one store, and of all stores with nothing set; and the table by which textbooks choose a store.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::bench::{Bench, Files, Options};
use crate::contestant::Contestant::{
    self, Current, Filelock, Floor, Own, PlainFloor, RedisFloor, SqlFloor, Table as Tutorial, ZkFloor, ZkFloorListed,
};
use crate::families::{Family, contended};
use crate::measured::Measured;
use crate::report::{self, Table, millis};
use crate::run::Run;
use crate::what::{Network, Store, Way, What};
use crate::{goals, machine, python, tables};

/// The versions of the crates in the manifest.
const ZOOKEEPER_CLIENT: &str = "zookeeper-client 0.11.2";
const RSLOCK: &str = "rslock 0.10";

/// Rounds of a full run of the defaults.
const ROUNDS: usize = 3;

/// Measures the families of a store: all of them, or the ones in `only`.
pub(crate) fn measure(bench: Bench, options: &Options, only: &[Family]) -> Result<()> {
    let busy = machine::is_busy();
    let store = bench.store;
    if let Some(family) = only.iter().find(|family| !Family::on(store, false).any(|its| its == **family)) {
        bail!("{family:?} is not measured on {}; leave it out of --only", store.name());
    }
    let is_whole = only.is_empty() && bench.with.is_empty() && bench.on.is_empty();
    let mut run = Run::new(bench)?;
    if store.has_server() {
        eprintln!("warming up the server");
        contended::warm(&run)?;
    }
    let mut said = run.description()?;
    for family in Family::on(store, false).filter(|family| only.is_empty() || only.contains(family)) {
        if family == Family::Redlock {
            said.extend(run.on(Store::Redlock, Run::description)?);
        }
        family.measure(&mut run)?;
    }
    let measured = run.measured.take();
    let goals = goals::verdicts(Some(store), &measured, is_whole, options.write);
    let tables = tables::of(store, &run.networks(), &measured);
    said.extend(foreign_crate(store).map(str::to_owned));
    let begin = begin(&run.bench, &said, busy)?;
    let parts = [begin, faults(&run)].into_iter().filter(|text| !text.is_empty());
    let parts = parts.chain(tables.iter().map(Table::to_string)).chain([goals]);
    let section = parts.collect::<Vec<_>>().join("\n");
    print!("{section}");
    if options.write { report::write(store.name(), &section) } else { Ok(()) }
}

/// The first lines of a section: the run, its machine and its servers, and a warning of a busy machine.
fn begin(bench: &Bench, described: &[String], busy: Option<String>) -> Result<String> {
    let disk = match bench.store {
        Store::File => Some(bench.scratch.path().to_owned()),
        Store::Memory => None,
        _ => Some(std::env::temp_dir()),
    };
    let mut said = vec![machine::describe(disk.as_deref())?];
    said.extend(bench.python.as_deref().map(python::describe).transpose()?);
    said.extend_from_slice(described);
    said.push(format!("rounds: {}", bench.effort.rounds));
    let quick = bench.quick.then(|| "a quick run, whose figures say nothing".to_owned());
    said.push(busy.map_or_else(|| "quiet".to_owned(), |busy| format!("**{busy}**")));
    said.extend(quick.map(|warning| format!("**{warning}**")));
    // A driver may have several locks.
    let mut seen = HashSet::new();
    said.retain(|what| seen.insert(what.clone()));
    Ok(format!("Measured on {}.\n", said.join("; ")))
}

/// Another project's crate that is measured on a store.
const fn foreign_crate(store: Store) -> Option<&'static str> {
    match store {
        Store::Redis => Some(RSLOCK),
        Store::ZooKeeper => Some(ZOOKEEPER_CLIENT),
        _ => None,
    }
}

/// The rounds without a figure, because another client failed.
fn faults(run: &Run) -> String {
    let faults = run.faults.borrow();
    if faults.is_empty() {
        return String::new();
    }
    // The full fault was printed when it occurred.
    let short = |fault: &String| format!("- {}\n", fault.split(": ").next().unwrap_or(fault));
    let list: String = faults.iter().map(short).collect();
    format!("Other clients failed, and have no figure of these rounds:\n\n{list}")
}

/// A run with a user's defaults: no option set, tokio's multi-thread runtime, not bound to a core.
fn as_used(store: Store, options: &Options, files: &Files, with: &[Contestant]) -> Result<Run> {
    let mut bench = Bench::new(store, options, files)?;
    if !bench.quick && options.rounds.is_none() {
        bench.effort.rounds = ROUNDS;
    }
    (bench.as_used, bench.with) = (true, with.to_vec());
    Run::new(bench)
}

/// All stores (or the ones in `only`) with default options, near [`Io::CurrentRuntime`](fencelock::Io::CurrentRuntime), the floor
/// and Python's `filelock`.
pub(crate) fn defaults(options: &Options, files: &Files, only: &[Store]) -> Result<()> {
    let busy = machine::is_busy();
    let (mut measured, mut begins) = (Measured::default(), None);
    for store in [Store::Memory, Store::File, Store::Redis, Store::ZooKeeper, Store::Postgres] {
        if !only.is_empty() && !only.contains(&store) {
            continue;
        }
        let with = [Own, Current, Floor, RedisFloor, ZkFloor, ZkFloorListed, SqlFloor, Filelock];
        let mut run = as_used(store, options, files, &with)?;
        for family in Family::on(store, true) {
            family.measure(&mut run)?;
        }
        measured.0.extend(run.measured.take().0);
        if store == Store::File || begins.is_none() {
            begins = Some(begin(&run.bench, &[], busy.clone())?);
        }
    }
    let goals = goals::verdicts(None, &measured, true, options.write);
    let section = format!("{}\n{}\n{goals}", begins.unwrap_or_default(), tables::defaults(&measured));
    print!("{section}");
    if options.write { report::write("defaults", &section) } else { Ok(()) }
}

/// Textbooks: of a store its title, their claim, and the contestant with their code.
const TEXTBOOKS: [(Store, &str, &str, Option<Contestant>); 5] = [
    (Store::ZooKeeper, "ZooKeeper", "1,000/s, 10 ms", Some(ZkFloorListed)),
    (Store::Redis, "Redis", "10,000/s, 1 ms", Some(PlainFloor)),
    (Store::Postgres, "PostgreSQL", "a database: 100/s, 50 ms", Some(Tutorial)),
    (Store::Mysql, "MariaDB", "a database: 100/s, 50 ms", Some(Tutorial)),
    (Store::File, "a directory", "nothing", None),
];

const HEAD: [&str; 4] = ["", "tutorials say", "the tutorial's code, here", "fencelock, here"];

/// The texts of the command, and the document that has the same.
const TEXTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fencelock-cli/src/commands/stores");
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stores.md");

/// The table by which textbooks choose a store, measured: their claims, their code on this machine, and fencelock with nothing set.
pub(crate) fn textbooks(options: &Options) -> Result<()> {
    let busy = machine::is_busy();
    let files = Files { without_filelock: true, ..Files::default() };
    let mut table = Table::new(&HEAD);
    for (store, title, claim, code) in TEXTBOOKS {
        let with: Vec<_> = code.into_iter().chain([Own]).collect();
        let mut run = as_used(store, options, &files, &with)?;
        run.bench.on = vec![Network::Loopback];
        for family in [Family::Cycle, Family::Apart] {
            family.measure(&mut run)?;
        }
        let cell = |who| {
            let value = |what| run.measured.borrow().value(store, Network::Loopback, who, what);
            let both = value(What::Rate(Way::Apart)).zip(value(What::Cycle));
            both.map_or_else(|| "–".to_owned(), |(rate, cycle)| format!("{}/s, {} ms", thousands(rate), millis(cycle)))
        };
        table.row([title.to_owned(), claim.to_owned(), code.map_or_else(|| "–".to_owned(), cell), cell(Own)]);
    }
    let quick = options.quick.then(|| "; **a quick run, whose figures say nothing**".to_owned());
    let warnings: String = busy.map(|busy| format!("; **{busy}**")).into_iter().chain(quick).collect();
    let text = format!(
        "{table}\nCycles per second of 64 tasks on 64 names, of one process, and the median of one acquire and release without contention. Each store is one server on this machine, and what a database or ZooKeeper says is on its disk. The tutorial's code is ephemeral sequential nodes with a list, `SET NX PX` with a script that deletes, and the table `distributed_lock` by a pool of 64 connections. Measured on {}{warnings}.\n",
        machine::describe(Some(&std::env::temp_dir()))?
    );
    print!("{text}");
    if !options.write {
        return Ok(());
    }
    anyhow::ensure!(warnings.is_empty(), "figures of a busy machine or a quick run are not written");
    let texts = Path::new(TEXTS);
    std::fs::write(texts.join("measured.md"), &text).context("measured.md")?;
    let choice = std::fs::read_to_string(texts.join("choice.md")).context("choice.md")?;
    report::write_to(Path::new(DOCUMENT), "stores", &format!("{text}\n{choice}"))
}

/// A rate to two digits, as in textbooks.
fn thousands(rate: f64) -> String {
    let unit = 10_f64.powf((rate.log10().floor() - 1.0).max(0.0));
    let rounded = format!("{:.0}", (rate / unit).round() * unit);
    match rounded.len() {
        length @ 4.. => format!("{},{}", &rounded[..length - 3], &rounded[length - 3..]),
        _ => rounded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_two_digits() {
        for (rate, text) in [(1234.0, "1,200"), (987.0, "990"), (45_678.0, "46,000"), (99_900.0, "100,000"), (7.2, "7")]
        {
            assert_eq!(thousands(rate), text);
        }
    }
}
