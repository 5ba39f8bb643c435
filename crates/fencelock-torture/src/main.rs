//! `fencelock-torture redis --experiment WHAT`, and `fencelock-torture postgres --writers hold`: experiments, and the counts of what came
//! of them. The drills are the drills of `fencelock-ledger`.

use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use fencelock_torture::redis::experiment::{Experiment, Findings, HEAD, Lock};
use fencelock_torture::redis::failovers::Replicated;
use fencelock_torture::writers::{self, Check, Database};

/// Counts broken promises of locks, and late writes that a resource with a token check refuses.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask torture")]
struct Args {
    /// The store.
    #[arg(value_enum)]
    store: Store,
    /// Decides the schedule; a new one every time by default.
    #[arg(long)]
    seed: Option<u64>,
    /// An event while a Redis lock is held, and its outcome: `docs/redis-what-it-cannot-promise.md`.
    #[arg(long, value_enum, num_args = 1.., value_name = "WHAT")]
    experiment: Vec<Experiment>,
    /// Several servers that replace their primary by themselves, with fencelock's lock alone.
    #[arg(long, value_enum)]
    topology: Option<Replicated>,
    /// There, how many replicas acknowledge a grant.
    #[arg(long, num_args = 1.., default_values_t = [0, 1])]
    min_replicas: Vec<u32>,
    /// The clients whose locks are tried; by default all that are possible.
    #[arg(long, value_enum, num_args = 1.., value_name = "LOCK", default_values_t = Lock::value_variants().to_vec())]
    lock: Vec<Lock>,
    /// In PostgreSQL or MariaDB: whether writers make their grant part of their transaction, or only look at it.
    #[arg(long, value_enum, value_name = "CHECK", default_value = "hold")]
    writers: Check,
    /// How often these writers are hurt, at each isolation level.
    #[arg(long, default_value_t = 100)]
    faults: usize,
    /// How often each experiment happens.
    #[arg(long, default_value = "20")]
    times: NonZeroUsize,
    /// How many rounds of them run at once.
    #[arg(long, default_value = "4")]
    at_once: NonZeroUsize,
    /// Adds up the rounds in these files, which have the output of earlier runs.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    sum: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Store {
    Mysql,
    Postgres,
    Redis,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let tortured = match args.store {
        Store::Redis => experiments(&args),
        Store::Postgres => write(Database::Postgres, &args),
        Store::Mysql => write(Database::Mysql, &args),
    };
    match tortured {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("torture: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Says whether no write was late, lost or concurrent with another; of writers that only look, nothing is expected.
fn write(database: Database, args: &Args) -> io::Result<bool> {
    let check = args.writers;
    let (seed, program) = (args.seed.unwrap_or_else(fencelock_conformance::seed), sibling("fencelock-torture-writer")?);
    let mut is_clean = true;
    for level in database.levels() {
        let drill = writers::Drill { program: &program, database, check, level, writers: 6, faults: args.faults, seed };
        let outcome = drill.run()?;
        println!("{check:?}, {level}: {outcome}");
        is_clean &= check == Check::Look || outcome.is_clean();
    }
    Ok(is_clean)
}

/// Says whether fencing held: any other failure is the subject.
fn experiments(args: &Args) -> io::Result<bool> {
    println!("{HEAD}");
    let (mut holds, times, at_once) = (true, args.times.get(), args.at_once.get());
    let mut show = |findings: Findings, is_fenced: bool| {
        println!("{findings}");
        holds &= !is_fenced || findings.late_writes() == 0;
    };
    let earlier = args.sum.iter().map(fs::read_to_string).collect::<io::Result<String>>()?;
    Findings::sum(&earlier).iter().for_each(|sum| println!("{sum}"));
    for experiment in &args.experiment {
        for (topology, replicas) in
            args.topology.iter().flat_map(|topology| args.min_replicas.iter().map(move |of| (topology, of)))
        {
            show(topology.run(*experiment, *replicas, times, at_once)?, true);
        }
        for lock in args.lock.iter().filter(|lock| args.topology.is_none() && experiment.is_of(**lock)) {
            show(experiment.run(*lock, times, at_once)?, lock.is_fenced());
        }
    }
    Ok(holds)
}

/// The binary next to this one.
fn sibling(name: &str) -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(name))
}
