//! Measures fencelock against the bare system calls and against other locks, side by side in one run.
//!
//! `cargo xtask bench file` runs it in a release build. The contestants run in processes of their own, which take
//! turns, so that a noisy moment affects all of them. The result is a section of `docs/benchmarks.md`.

mod bench;
mod contestant;
mod crew;
mod families;
mod goals;
mod machine;
mod measured;
mod peers;
mod protocol;
mod python;
mod report;
mod run;
mod scratch;
mod section;
mod site;
mod stats;
mod tables;
mod what;
mod worker;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use bench::{Bench, Files, Options};
use contestant::Contestant;
use families::Family;
use peers::Peers;
use what::{Network, Store};

#[derive(Debug, Parser)]
#[command(name = "fencelock-bench", about = "Measures fencelock against the floor and against other locks")]
enum Command {
    /// The store `file:`, the bare system calls, flock, and Python's filelock.
    File(Here),
    /// The store `memory:`.
    Memory(Here),
    /// The store `zk:` on a server of its own, the bare requests, and other clients' locks.
    Zookeeper(OnServer),
    /// The store `redis:` on a server of its own, the bare scripts, and other clients' locks.
    Redis(OnServer),
    /// The store `postgres:` on a server of its own, the bare statements, a table and advisory locks by hand.
    Postgres(OnServer),
    /// The store `mysql:` on a server of its own, the bare statements, tables and named locks by hand.
    Mysql(OnServer),
    /// The store `etcd:` on a server of its own, and with `--peers` clientv3's `Mutex` and its bare requests.
    Etcd(OnServer),
    /// The figures that users get: nothing set, tokio's multi-thread runtime, any core; on every store.
    Defaults(Defaults),
    /// The table by which textbooks choose a store, on every store with nothing set, and the code of tutorials.
    Stores(Options),
    #[command(hide = true)]
    Worker(worker::Args),
}

/// A store without a server.
#[derive(Debug, clap::Args)]
struct Here {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    only: Only,
    #[command(flatten)]
    files: Files,
}

/// A store with a server.
#[derive(Debug, clap::Args)]
struct OnServer {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    only: Only,
    /// Lets clients of other languages take part, which needs what `cargo xtask interop` needs.
    #[arg(long)]
    peers: bool,
    /// On PostgreSQL and MariaDB, keeps the open transaction of its row open for this many seconds, with 200 cycles in each: 600 are the
    /// promised ten minutes. Without the option the same number of cycles run as fast as they can.
    #[arg(long, value_name = "SECONDS")]
    open_for: Option<u64>,
}

#[derive(Debug, clap::Args)]
struct Only {
    /// Only these families of rows, for work on one of them; goals without figures are left out.
    #[arg(long, value_enum, conflicts_with = "write")]
    only: Vec<Family>,
    /// Only these contestants.
    #[arg(long, value_enum, conflicts_with = "write")]
    with: Vec<Contestant>,
    /// Only on these networks.
    #[arg(long, value_enum, conflicts_with = "write")]
    on: Vec<Network>,
}

#[derive(Debug, clap::Args)]
struct Defaults {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    files: Files,
    /// Only these stores; goals of other contestants are "not measured".
    #[arg(long, value_enum, conflicts_with = "write")]
    only: Vec<Store>,
}

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::File(here) => here.measure(Store::File),
        Command::Memory(here) => here.measure(Store::Memory),
        Command::Zookeeper(server) => server.measure(Store::ZooKeeper),
        Command::Redis(server) => server.measure(Store::Redis),
        Command::Postgres(server) => server.measure(Store::Postgres),
        Command::Mysql(server) => server.measure(Store::Mysql),
        Command::Etcd(server) => server.measure(Store::Etcd),
        Command::Defaults(Defaults { options, files, only }) => section::defaults(&options, &files, &only),
        Command::Stores(options) => section::textbooks(&options),
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

impl Here {
    fn measure(self, store: Store) -> Result<()> {
        self.only.measure(Bench::new(store, &self.options, &self.files)?, &self.options)
    }
}

impl OnServer {
    fn measure(self, store: Store) -> Result<()> {
        let mut bench = Bench::new(store, &self.options, &Files::default())?;
        bench.open_for = self.open_for;
        bench.peers = self.peers.then(|| Peers::build(store)).transpose()?;
        self.only.measure(bench, &self.options)
    }
}

impl Only {
    fn measure(self, mut bench: Bench, options: &Options) -> Result<()> {
        (bench.with, bench.on) = (self.with, self.on);
        section::measure(bench, options, &self.only)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_a_document_is_not_written_from_a_part() {
        Command::command().debug_assert();
        let is_taken = |words: &str| Command::try_parse_from(["bench"].into_iter().chain(words.split(' '))).is_ok();
        assert!(is_taken("file --only cycle --quick") && is_taken("redis --write --peers --rounds 1"));
        for part in ["file --write --quick", "file --write --without-filelock", "zookeeper --write --only held"] {
            assert!(!is_taken(part), "{part}");
        }
    }
}
