//! `fencelock-torture <store> --seconds N --seed S`: storms over real servers, and the counts of what came of them.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use fencelock_conformance::harness::Site;
use fencelock_torture::zookeeper::ZooKeeper;
use fencelock_torture::{Bed, Rounds, Tally, redis};

/// Hurts real servers, the network before them and the processes that use them, in random order, and checks what the locks
/// made of it.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask torture")]
struct Args {
    /// The store.
    #[arg(value_enum)]
    store: Kind,
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
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Redis,
    Zookeeper,
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
    match run(&args) {
        Ok(tally) => {
            println!("{tally}");
            if tally.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("torture: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> io::Result<Tally> {
    match args.store {
        Kind::Redis => torture(&redis::Servers::start()?, args),
        Kind::Zookeeper => torture(&ZooKeeper::start(args.servers)?, args),
    }
}

fn torture(bed: &impl Bed, args: &Args) -> io::Result<Tally> {
    let seed = args.seed.unwrap_or_else(fencelock_conformance::seed);
    println!("seed {seed}");
    let mut rounds = Rounds::new(sibling("fencelock-torture-worker")?, Duration::from_secs(args.seconds), seed);
    rounds.tasks = args.workers.div_ceil(rounds.processes).max(1);
    let clients = rounds.processes + 1;
    let site =
        |round: u64| -> io::Result<Arc<dyn Site>> { Ok(Arc::new(bed.site(&format!("torture-{round}"), clients)?)) };
    rounds.run(site, |verdict| println!("{verdict}"))
}

/// The binary beside this one.
fn sibling(name: &str) -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(name))
}
