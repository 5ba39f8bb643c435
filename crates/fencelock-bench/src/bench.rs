//! The parameters of a run: amounts, places and contestants.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::contestant::Contestant;
use crate::machine::Cores;
use crate::peers::Peers;
use crate::python;
use crate::scratch::Scratch;
use crate::what::{Network, Store};

/// How a section is made.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Only proves that the benchmark works: the figures mean nothing.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Replaces the section of docs/benchmarks.md, besides printing it.
    #[arg(long, conflicts_with = "quick")]
    pub(crate) write: bool,
    /// Rounds in which contestants take turns.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) rounds: Option<u8>,
}

/// Where files are locked, and with which peers.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Files {
    /// Leaves Python's filelock out, which needs Python and a package index.
    #[arg(long, conflicts_with = "write")]
    pub(crate) without_filelock: bool,
    /// Works in this directory, to measure its file system.
    #[arg(long)]
    pub(crate) directory: Option<PathBuf>,
}

/// How much is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Rounds in which contestants take turns.
    pub(crate) rounds: usize,
    /// Cycles per round.
    pub(crate) cycles: u64,
    /// How long contenders take locks in each round.
    pub(crate) contend: Duration,
    /// Hand-overs per round, about.
    pub(crate) hand_overs: u64,
    /// The most waiters in a row about hand-over.
    pub(crate) waiters: u64,
    /// Locks held to measure their memory.
    pub(crate) held: u64,
    /// The run ends with an error after this time, some three times what an idle machine needs.
    pub(crate) limit: Duration,
}

impl Effort {
    const FULL: Self = Self {
        rounds: 5,
        cycles: 5000,
        contend: Duration::from_secs(2),
        hand_overs: 100,
        waiters: 1000,
        held: 10_000,
        limit: Duration::from_secs(15 * 60),
    };
    const ZOOKEEPER: Self = Self {
        rounds: 3,
        cycles: 400,
        contend: Duration::from_secs(1),
        hand_overs: 50,
        waiters: 1000,
        held: 10_000,
        limit: Duration::from_secs(25 * 60),
    };
    const REDIS: Self = Self { cycles: 2000, hand_overs: 100, limit: Duration::from_secs(60 * 60), ..Self::ZOOKEEPER };
    /// In five seconds each of 32 contenders has some fifty sections on loopback; in one second twelve, so one more is 0.08 of a share.
    const SQL: Self = Self { contend: Duration::from_secs(5), limit: Duration::from_secs(60 * 60), ..Self::ZOOKEEPER };
    const QUICK: Self = Self {
        rounds: 1,
        cycles: 200,
        contend: Duration::from_millis(300),
        hand_overs: 20,
        waiters: 100,
        held: 500,
        limit: Duration::from_secs(10 * 60),
    };
    /// Each step syncs a disk or waits in a proxy.
    const QUICK_ZOOKEEPER: Self =
        Self { cycles: 40, contend: Duration::from_millis(200), hand_overs: 10, ..Self::QUICK };
}

/// The parameters and the tools of a run.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) store: Store,
    pub(crate) effort: Effort,
    pub(crate) quick: bool,
    pub(crate) cores: Cores,
    pub(crate) scratch: Scratch,
    /// The interpreter with `filelock`; `None` when it takes no part.
    pub(crate) python: Option<PathBuf>,
    /// Clients of other languages; `None` when they take no part.
    pub(crate) peers: Option<Peers>,
    /// The seconds for which a transaction stays open in the row `Aged`. `None`: for the cycles of ten minutes, without pauses.
    pub(crate) open_for: Option<u64>,
    /// Only these contestants and networks; an empty list means all.
    pub(crate) with: Vec<Contestant>,
    pub(crate) on: Vec<Network>,
    /// tokio's multi-thread runtime, and no process keeps to a core.
    pub(crate) as_used: bool,
}

impl Bench {
    /// Prepares a run; its files are in the directory of `files`, or else near this program.
    pub(crate) fn new(store: Store, options: &Options, files: &Files) -> Result<Self> {
        let mut effort = match (options.quick, store) {
            (true, store) if store.syncs() => Effort::QUICK_ZOOKEEPER,
            (true, _) => Effort::QUICK,
            (false, Store::Redis | Store::Redlock) => Effort::REDIS,
            (false, Store::ZooKeeper | Store::Etcd) => Effort::ZOOKEEPER,
            (false, Store::Postgres | Store::Mysql) => Effort::SQL,
            (false, Store::File | Store::Memory) => Effort::FULL,
        };
        effort.rounds = options.rounds.map_or(effort.rounds, usize::from);
        let program = std::env::current_exe().context("where is this program?")?;
        let built = program.ancestors().nth(2).context("this program is in no directory")?.join("fencelock-bench");
        let scratch = Scratch::new(files.directory.as_deref().unwrap_or(&built), effort.limit)?;
        let filelock = store == Store::File && !files.without_filelock;
        let python = filelock.then(|| python::interpreter(&built)).transpose()?;
        let (quick, cores) = (options.quick, Cores::available()?);
        let (peers, open_for, with, on, as_used) = (None, None, Vec::new(), Vec::new(), false);
        Ok(Self { store, effort, quick, cores, scratch, python, peers, open_for, with, on, as_used })
    }

    /// The contestants on the measured store whose installations are there. Contestants of `not` take part only where the run names its
    /// contestants.
    pub(crate) fn contestants(&self, not: &[Contestant]) -> Vec<Contestant> {
        use clap::ValueEnum as _;
        let is_chosen = |who| {
            if self.with.is_empty() {
                !not.contains(who) && *who != Contestant::Elsewhere
            } else {
                self.with.contains(who)
            }
        };
        let is_present = |who: &Contestant| match who {
            Contestant::Filelock => self.python.is_some(),
            who => !who.is_driven() || self.peers.is_some(),
        };
        let all = Contestant::value_variants().iter().filter(|who| who.is_on(self.store));
        all.filter(|who| is_chosen(who) && is_present(who)).copied().collect()
    }

    /// The contestants that can wait for a lock.
    pub(crate) fn waiting(&self, not: &[Contestant]) -> Vec<Contestant> {
        let mut present = self.contestants(not);
        present.retain(|contestant| contestant.waits());
        present
    }
}
