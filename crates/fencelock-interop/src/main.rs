//! Plays fencelock against clients in other languages on the same locks: whether each client waits for the other, how soon the next
//! one has the lock, and the effect of a kill of either side. `interop/README.md` says how the clients are driven.

mod cells;
mod clients;
mod downgrade;
mod driver;
mod ours;
mod pair;
mod play;
mod pool;
mod redis;
mod report;
mod rslock;
mod run;
mod sql;
mod turns;
mod workloads;

use std::process::ExitCode;

use cells::{Among, On};
use clap::{Parser, Subcommand};

/// Plays fencelock against clients in other languages.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Only cells in whose line of the table this occurs.
    #[arg(long, default_value = "")]
    only: String,
    /// Which pairs of clients.
    #[arg(long, default_value = "all")]
    among: Among,
    /// On which servers.
    #[arg(long, default_value = "all")]
    on: On,
    /// How many cells are played at a time.
    #[arg(long, default_value_t = 8)]
    jobs: usize,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A process of a run, which only this program starts.
    #[command(hide = true)]
    Driver { servers: String, session_timeout_ms: u64, log: String },
    /// A process of a run with the crate `rslock`.
    #[command(hide = true)]
    Rslock { servers: String, ttl_ms: u64, log: String },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.command {
        Some(Command::Driver { servers, session_timeout_ms, .. }) => ours::serve(servers, *session_timeout_ms),
        Some(Command::Rslock { servers, ttl_ms, .. }) => rslock::serve(servers, *ttl_ms),
        None => run::all(&args.only, args.among, args.on, args.jobs),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("interop: {fault:#}");
            ExitCode::FAILURE
        }
    }
}
