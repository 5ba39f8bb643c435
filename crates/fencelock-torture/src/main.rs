//! `fencelock-torture <store> --seconds N --seed S`: storms over real servers, and the counts of what came of them.

use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use fencelock_conformance::scenes::Stage;
use fencelock_lab::{Site, Uses};
use fencelock_torture::redis::experiment::{Experiment, HEAD, Lock};
use fencelock_torture::writers::{self, Check, Database};
use fencelock_torture::zookeeper::ZooKeeper;
use fencelock_torture::{Bed, Rounds, Takeovers, Tally, postgres, redis};

/// Hurts real servers, the network before them and the processes that use them, in random order, and checks what the locks
/// made of it.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask torture")]
struct Args {
    /// The store.
    #[arg(value_enum)]
    store: Store,
    /// No new round starts after so many seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Decides the schedule; a new one every time by default. The n-th round of seed s is the first of seed s + n.
    #[arg(long)]
    seed: Option<u64>,
    /// How many servers there are, of ZooKeeper.
    #[arg(long, default_value_t = 3, value_parser = one_or_three)]
    servers: usize,
    /// How many tasks take locks, in four processes.
    #[arg(long, default_value_t = 100)]
    workers: usize,
    /// What the locks are.
    #[arg(long, value_enum, default_value_t = Kind::Mutex)]
    kind: Kind,
    /// How many holders are killed first, to measure when the next one is granted.
    #[arg(long, default_value_t = 5)]
    kills: usize,
    /// Instead of all that, shows what a Redis lock cannot promise: what happens while it is held.
    #[arg(long, value_enum, num_args = 1.., value_name = "WHAT")]
    experiment: Vec<Experiment>,
    /// Whose locks these happen to; by default all that are possible.
    #[arg(long, value_enum, num_args = 1.., value_name = "LOCK")]
    lock: Vec<Lock>,
    /// Instead of all that, in PostgreSQL or MariaDB, of which there is nothing else: writers whose grant is part of their transaction, or who only look at it, hurt so often.
    #[arg(long, value_enum, value_name = "CHECK")]
    writers: Option<Check>,
    /// How often these writers are hurt, at each isolation level.
    #[arg(long, default_value_t = 100)]
    faults: usize,
    /// How often each of these happens.
    #[arg(long, default_value = "20")]
    times: NonZeroUsize,
    /// How many rounds of them run at once.
    #[arg(long, default_value = "4")]
    at_once: NonZeroUsize,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Store {
    Mysql,
    Postgres,
    Redis,
    Zookeeper,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Mutex,
    Rwlock,
    Semaphore,
    /// One of each.
    Mixed,
}

fn one_or_three(text: &str) -> Result<usize, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        _ => Err("1 or 3 servers".to_owned()),
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let tortured = match args.store {
        Store::Redis if !args.experiment.is_empty() => experiments(&args),
        Store::Redis => redis::Servers::both().and_then(|bed| torture(&bed, &args)),
        Store::Postgres if !args.experiment.is_empty() => {
            Err(io::Error::other("--experiment is there for redis alone"))
        }
        Store::Postgres if args.writers.is_some() => write(Database::Postgres, &args),
        Store::Postgres => postgres::Servers::start().and_then(|bed| torture(&bed, &args)),
        Store::Mysql => write(Database::Mysql, &args),
        Store::Zookeeper if !args.experiment.is_empty() => {
            Err(io::Error::other("--experiment is there for redis alone"))
        }
        Store::Zookeeper => ZooKeeper::start(args.servers).and_then(|bed| torture(&bed, &args)),
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
    let check = args.writers.ok_or_else(|| io::Error::other("there is --writers alone"))?;
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
    let mut holds = true;
    for experiment in &args.experiment {
        for lock in experiment.locks().iter().filter(|lock| args.lock.is_empty() || args.lock.contains(lock)) {
            let findings = experiment.run(*lock, args.times.get(), args.at_once.get())?;
            println!("{findings}");
            holds &= !lock.is_fenced() || findings.late_writes() == 0 && findings.tokens_rise();
        }
    }
    Ok(holds)
}

/// Says whether nothing was wrong.
fn torture(bed: &impl Bed, args: &Args) -> io::Result<bool> {
    let seed = args.seed.unwrap_or_else(fencelock_conformance::seed);
    println!("seed {seed}");
    let takeovers = takeovers(bed, seed, args.kills)?;
    println!("{takeovers}");
    let tally = storms(bed, seed, args)?;
    println!("{tally}\n{takeovers}");
    Ok(tally.is_clean() && takeovers.are_in_time())
}

fn takeovers(bed: &impl Bed, seed: u64, kills: usize) -> io::Result<Takeovers> {
    let directory = tempfile::tempdir()?;
    let holder = sibling("fencelock-torture-holder")?;
    let site = Arc::new(bed.site("takeovers", 2)?);
    let stage = Stage { site, holder, directory: directory.path().to_owned(), seed };
    Ok(Takeovers::measure(&stage, kills))
}

fn storms(bed: &impl Bed, seed: u64, args: &Args) -> io::Result<Tally> {
    let mut rounds = Rounds::new(sibling("fencelock-torture-worker")?, Duration::from_secs(args.seconds), seed);
    rounds.tasks = args.workers.div_ceil(rounds.processes).max(1);
    rounds.uses = match args.kind {
        Kind::Mutex => Uses::Mutexes,
        Kind::Rwlock => Uses::ReadWriteLocks,
        Kind::Semaphore => Uses::Semaphores,
        Kind::Mixed => Uses::Mixed,
    };
    let clients = rounds.processes + 1;
    let site =
        |round: u64| -> io::Result<Arc<dyn Site>> { Ok(Arc::new(bed.site(&format!("torture-{round}"), clients)?)) };
    rounds.run(site, |verdict| println!("{verdict}"))
}

/// The binary next to this one.
fn sibling(name: &str) -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(name))
}
