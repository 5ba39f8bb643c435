//! The section of one store in `docs/benchmarks.md`: what was measured on what, the tables of its families, its goals.

use std::collections::HashSet;

use anyhow::{Result, bail};

use crate::bench::{Bench, Store};
use crate::families::{Family, Measured, contended};
use crate::run::Run;
use crate::{goals, machine, python, report};

/// The versions of the crates, as the manifest has them.
const ZOOKEEPER_CLIENT: &str = "zookeeper-client 0.11.2";
const RSLOCK: &str = "rslock 0.10";

/// How a section is made.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Only shows that it works: the figures say nothing.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Replaces the section of docs/benchmarks.md, besides printing it.
    #[arg(long, conflicts_with = "quick")]
    pub(crate) write: bool,
    /// Rounds in which everybody takes turns.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) rounds: Option<u8>,
}

/// Measures the families of a store: all of them, or those of `only`.
pub(crate) fn measure(bench: Bench, options: &Options, only: &[Family]) -> Result<()> {
    let busy = machine::is_busy();
    let store = bench.store;
    if let Some(family) = only.iter().find(|family| !Family::on(store).any(|its| its == **family)) {
        bail!("{family:?} is not measured on {}; leave it out of --only", store.name());
    }
    let mut run = Run::new(bench)?;
    if store.has_server() {
        eprintln!("warming up the server");
        contended::warm(&run)?;
    }
    let mut measured = Measured { said: run.description()?, ..Measured::default() };
    for family in Family::on(store).filter(|family| only.is_empty() || only.contains(family)) {
        family.measure(&mut run, &mut measured)?;
    }
    let goals = goals::told(store, &measured, only.is_empty(), options.write);
    let tables = measured.tables(&run).into_iter().map(|table| table.to_string()).chain([goals]);
    measured.said.extend(foreign_crate(store).map(str::to_owned));
    let begin = begin(&run.bench, &measured.said, busy)?;
    let said = [begin, faults(&run)].into_iter().filter(|text| !text.is_empty());
    let section = said.chain(tables).collect::<Vec<_>>().join("\n");
    print!("{section}");
    if options.write {
        report::write(store.name(), &section)?;
    }
    Ok(())
}

/// What was measured on what, and whether that is worth anything.
pub(crate) fn begin(bench: &Bench, described: &[String], busy: Option<String>) -> Result<String> {
    let disk = match bench.store {
        Store::File => Some(bench.scratch.path().to_owned()),
        Store::Memory => None,
        Store::ZooKeeper | Store::Redis | Store::Postgres | Store::Mysql | Store::Redlock => Some(std::env::temp_dir()),
    };
    let mut said = vec![machine::describe(disk.as_deref())?];
    said.extend(bench.python.as_deref().map(python::describe).transpose()?);
    said.extend_from_slice(described);
    said.push(format!("rounds: {}", bench.effort.rounds));
    let quick = bench.quick.then(|| "a quick run, whose figures say nothing".to_owned());
    said.push(busy.map_or_else(|| "quiet".to_owned(), |busy| format!("**{busy}**")));
    said.extend(quick.map(|warning| format!("**{warning}**")));
    // One driver may have several locks.
    let mut seen = HashSet::new();
    said.retain(|what| seen.insert(what.clone()));
    Ok(format!("Measured on {}.\n", said.join("; ")))
}

/// The crate of somebody else that is measured on a store.
const fn foreign_crate(store: Store) -> Option<&'static str> {
    match store {
        Store::Redis => Some(RSLOCK),
        Store::ZooKeeper => Some(ZOOKEEPER_CLIENT),
        Store::File | Store::Memory | Store::Postgres | Store::Mysql | Store::Redlock => None,
    }
}

/// What has no figure, or one of fewer rounds, because another client failed.
fn faults(run: &Run) -> String {
    let faults = run.faults.borrow();
    if faults.is_empty() {
        return String::new();
    }
    // The whole of it was printed as it came.
    let short = |fault: &String| format!("- {}\n", fault.split(": ").next().unwrap_or(fault));
    let list: String = faults.iter().map(short).collect();
    format!("Other clients failed, and have no figure of these rounds:\n\n{list}")
}
