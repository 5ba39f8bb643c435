//! What every family of rows needs to know: how much to do, where, with whom.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use crate::Files;
use crate::contestant::Contestant;
use crate::machine::Cores;
use crate::peers::Peers;
use crate::python;
use crate::scratch::Scratch;
use crate::section::Options;

/// The store that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    File,
    Memory,
    #[value(name = "zookeeper")]
    ZooKeeper,
    Redis,
    Postgres,
    Mysql,
    /// Three masters of Redis.
    #[value(skip)]
    Redlock,
}

impl Store {
    /// As the command line and the document name it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Memory => "memory",
            Self::ZooKeeper => "zookeeper",
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Redlock => "redlock",
        }
    }

    /// Whom contestants are compared with; on `memory:` there is none.
    pub(crate) const fn floor(self) -> Contestant {
        match self {
            Self::File | Self::Memory => Contestant::Floor,
            Self::ZooKeeper => Contestant::ZkFloorListed,
            Self::Redis | Self::Redlock => Contestant::RedisFloor,
            Self::Postgres => Contestant::PgFloor,
            Self::Mysql => Contestant::MyFloor,
        }
    }

    /// Whether clients reach it by way of a server.
    pub(crate) const fn has_server(self) -> bool {
        matches!(self, Self::ZooKeeper | Self::Redis | Self::Postgres | Self::Mysql | Self::Redlock)
    }
}

/// How much is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Rounds in which the contestants of a table take turns.
    pub(crate) rounds: usize,
    /// Cycles per round.
    pub(crate) cycles: u64,
    /// How long they contend in each round.
    pub(crate) contend: Duration,
    /// Hand-overs per round, about.
    pub(crate) hand_overs: u64,
    /// The most waiters in a row about hand-over.
    pub(crate) waiters: u64,
    /// Locks that are held to see what memory they take.
    pub(crate) held: u64,
    /// The whole run is given up after this time, some three times what an idle machine needs.
    pub(crate) limit: Duration,
}

impl Effort {
    pub(crate) const FULL: Self = Self {
        rounds: 5,
        cycles: 5000,
        contend: Duration::from_secs(2),
        hand_overs: 100,
        waiters: 1000,
        held: 10_000,
        limit: Duration::from_secs(15 * 60),
    };
    pub(crate) const ZOOKEEPER: Self = Self {
        rounds: 3,
        cycles: 400,
        contend: Duration::from_secs(1),
        hand_overs: 50,
        waiters: 1000,
        held: 10_000,
        limit: Duration::from_secs(25 * 60),
    };
    pub(crate) const REDIS: Self =
        Self { cycles: 2000, hand_overs: 100, limit: Duration::from_secs(60 * 60), ..Self::ZOOKEEPER };
    /// It takes half of that on a quiet machine: a thousand who ask again and again are served slowly. In five seconds each
    /// of 32 contenders has some fifty sections on loopback: in one second it has twelve, and one more or less is 0.08.
    pub(crate) const SQL: Self =
        Self { contend: Duration::from_secs(5), limit: Duration::from_secs(60 * 60), ..Self::ZOOKEEPER };
    pub(crate) const QUICK: Self = Self {
        rounds: 1,
        cycles: 200,
        contend: Duration::from_millis(300),
        hand_overs: 20,
        waiters: 100,
        held: 500,
        limit: Duration::from_secs(10 * 60),
    };
    /// Clients of other languages may take part, and take long to start.
    pub(crate) const QUICK_REDIS: Self = Self { limit: Duration::from_secs(10 * 60), ..Self::QUICK };
    /// Every step is synced to a disk, or sleeps in a proxy.
    pub(crate) const QUICK_ZOOKEEPER: Self = Self {
        cycles: 40,
        contend: Duration::from_millis(200),
        hand_overs: 10,
        limit: Duration::from_secs(10 * 60),
        ..Self::QUICK
    };
}

/// One run.
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
    /// For how many seconds a transaction is open beside the cycle; `None` for as long as the cycles of ten minutes take.
    pub(crate) open_for: Option<u64>,
}

impl Bench {
    /// Prepares a run; its files are in the directory that was asked for, or else beside this program.
    pub(crate) fn new(store: Store, options: &Options, files: &Files) -> Result<Self> {
        let mut effort = match (options.quick, store) {
            (true, Store::ZooKeeper | Store::Postgres | Store::Mysql) => Effort::QUICK_ZOOKEEPER,
            (true, Store::Redis | Store::Redlock) => Effort::QUICK_REDIS,
            (true, _) => Effort::QUICK,
            (false, Store::Redis | Store::Redlock) => Effort::REDIS,
            (false, Store::ZooKeeper) => Effort::ZOOKEEPER,
            (false, Store::Postgres | Store::Mysql) => Effort::SQL,
            (false, _) => Effort::FULL,
        };
        effort.rounds = options.rounds.map_or(effort.rounds, usize::from);
        let program = std::env::current_exe().context("where is this program?")?;
        let built = program.ancestors().nth(2).context("this program is in no directory")?.join("fencelock-bench");
        let scratch = Scratch::new(files.directory.as_deref().unwrap_or(&built), effort.limit)?;
        let filelock = store == Store::File && !files.without_filelock;
        let python = filelock.then(|| python::interpreter(&built)).transpose()?;
        let (quick, cores) = (options.quick, Cores::available()?);
        Ok(Self { store, effort, quick, cores, scratch, python, peers: None, open_for: None })
    }

    /// Those of `contestants` who take part: not who has to be installed and is not.
    pub(crate) fn present(&self, contestants: &[Contestant]) -> Vec<Contestant> {
        let present = |contestant: &Contestant| match contestant {
            contestant if !contestant.is_on(self.store) => false,
            Contestant::Filelock => self.python.is_some(),
            contestant => !contestant.is_driven() || self.peers.is_some(),
        };
        contestants.iter().copied().filter(present).collect()
    }

    /// Those who can lock on the store that is measured, and wait for a lock.
    pub(crate) fn waiting(&self) -> Vec<Contestant> {
        let mut present = self.present(&Contestant::ALL);
        present.retain(|contestant| contestant.waits());
        present
    }

    /// Those who can lock on the store that is measured, but for some.
    pub(crate) fn present_but(&self, not: &[Contestant]) -> Vec<Contestant> {
        let mut present = self.present(&Contestant::ALL);
        present.retain(|contestant| !not.contains(contestant));
        present
    }
}
