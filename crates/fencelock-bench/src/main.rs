//! Measures fencelock against the bare system calls and against other locks, side by side in one run.
//!
//! `cargo xtask bench file` runs it in a release build. What is measured runs in processes of its own; they take turns,
//! so that a noisy moment meets everybody. The result is a section of `docs/benchmarks.md`.

mod bench;
mod contestant;
mod crew;
mod defaults;
mod goals;
mod machine;
mod network;
mod peers;
mod protocol;
mod python;
mod report;
mod rows;
mod run;
mod scratch;
mod stats;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use bench::{Bench, Store};
use goals::Measured;
use network::server::Network;
use rows::shared::Shared;
use rows::{Row, contended, cycle, hand_over, memory, shared};
use run::Run;

#[derive(Debug, Parser)]
#[command(name = "fencelock-bench", about = "Measures fencelock against the floor and against other locks")]
enum Command {
    /// The store `file:`, the bare system calls, flock, and Python's filelock.
    File(Options),
    /// The store `memory:`.
    Memory(Options),
    /// The store `zk:` on a server of its own, the bare requests, and other clients' locks.
    Zookeeper(network::Options),
    /// The store `redis:` on a server of its own, the bare scripts, and other clients' locks.
    Redis(network::Options),
    /// What users get: nothing set, tokio's multi-thread runtime, any core; on every store.
    Defaults(defaults::Options),
    #[command(hide = true)]
    Worker(worker::Args),
}

#[derive(Debug, clap::Args)]
struct Options {
    /// Only shows that it works: the figures say nothing.
    #[arg(long)]
    quick: bool,
    /// Replaces the section of docs/benchmarks.md, besides printing it.
    #[arg(long, conflicts_with_all = ["quick", "without_filelock"])]
    write: bool,
    /// Leaves Python's filelock out, which needs Python and a package index.
    #[arg(long)]
    without_filelock: bool,
    /// Rounds of each table, whose median counts; a full run makes 5.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: Option<u8>,
    /// Works in this directory, to measure its file system.
    #[arg(long)]
    directory: Option<PathBuf>,
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::File(options) => measure(Store::File, &options),
        Command::Memory(options) => measure(Store::Memory, &options),
        Command::Zookeeper(options) => network::measure(Store::ZooKeeper, &options),
        Command::Redis(options) => network::measure(Store::Redis, &options),
        Command::Defaults(options) => defaults::measure(&options),
        Command::Worker(args) => worker::run(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("fencelock-bench: {fault:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(store: Store, options: &Options) -> Result<()> {
    let mut bench = Bench::new(store, options.quick, !options.without_filelock, options.directory.as_deref())?;
    bench.effort.rounds = options.rounds.map_or(bench.effort.rounds, usize::from);
    let busy = machine::is_busy();
    let run = Run::new(bench)?;
    let step = |what: &str| eprintln!("measuring: {what}");
    step("the uncontended cycle");
    let cycle = cycle::measure(&run)?;
    step("contention");
    let contended = contended::measure(&run)?;
    step("hand-over");
    let hand_over = hand_over::measure(&run)?;
    step("readers, writers and permits");
    let shared = shared::measure(&run)?;
    step("memory");
    let memory = memory::measure(&run)?;
    let section = section(&run.bench, busy, &Measured { cycle, contended, hand_over, memory }, &shared)?;
    print!("{section}");
    if options.write {
        report::write(if store == Store::File { "file" } else { "memory" }, &section)?;
    }
    Ok(())
}

fn section(bench: &Bench, busy: Option<String>, measured: &Measured, shared: &[Row<Shared>]) -> Result<String> {
    let mut machine = machine::describe((bench.store == Store::File).then(|| bench.scratch.path()))?;
    if let Some(python) = &bench.python {
        machine.push_str(&format!("; {}", python::describe(python)?));
    }
    machine.push_str(&format!("; rounds: {}", bench.effort.rounds));
    let quick = bench.quick.then(|| "a quick run, whose figures say nothing".to_owned());
    for warning in [busy, quick].into_iter().flatten() {
        machine.push_str(&format!("; **{warning}**"));
    }
    Ok([
        format!("Measured on {machine}.\n"),
        cycle::table("cycle", &measured.cycle, bench.store).to_string(),
        contended::table(&measured.contended).to_string(),
        hand_over::table(&measured.hand_over).to_string(),
        shared::table(shared, bench.store, Network::Loopback).to_string(),
        memory::table(bench, &measured.memory).to_string(),
        goals::table(bench.store, measured).to_string(),
    ]
    .join("\n"))
}
