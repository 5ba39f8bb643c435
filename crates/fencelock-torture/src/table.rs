//! Every drill, as one table: topologies, and the faults of each topology that can have them.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fencelock_lab::Strategy::{self, Brief, Long};
use fencelock_lab::{Drill, Outage, Site, Uses, Verdict};
use fencelock_testbed::{CLOCK_SHIM, ETCD, MARIADB, Network, POSTGRESQL, Package, REDIS, ZOOKEEPER};

use crate::bed::{Bed, Breakable};
use crate::others::{Directory, Etcd, Mysql};
use crate::postgres::Postgres;
use crate::redis::{One, Several};
use crate::zookeeper::ZooKeeper;

/// Servers of one store: a row for each way in which they can be set up.
#[derive(Debug)]
pub struct Topology {
    /// The store and its topology.
    pub name: &'static str,
    /// Starts the servers.
    pub start: fn() -> io::Result<Arc<dyn Bed>>,
    /// The packages of the servers.
    pub needs: &'static [Package],
    /// The scenes that cannot be played there, although the servers can have the outages; `None` if no scene is played.
    pub unplayed: Option<&'static [&'static str]>,
}

/// A restart of Redis ends every session: the disk may have older data than the server's last answers.
const OF_ONE_REDIS: &[&str] = &["a_held_lock_outlives_its_leader", "a_held_lock_outlives_a_restart_of_every_server"];

/// There is no second server to follow the leader.
const OF_ONE_SERVER: &[&str] = &["a_held_lock_outlives_its_leader"];

const fn row(
    name: &'static str,
    start: fn() -> io::Result<Arc<dyn Bed>>,
    needs: &'static [Package],
    unplayed: Option<&'static [&'static str]>,
) -> Topology {
    Topology { name, start, needs, unplayed }
}

/// Every topology. The store `memory:` ends with its process, so its workers can have no fault.
pub const TOPOLOGIES: &[Topology] = &[
    row("file", Directory::start, &[], None),
    row("redis", || One::start(true), &[REDIS, CLOCK_SHIM], Some(OF_ONE_REDIS)),
    row("redis-forgetful", || One::start(false), &[REDIS], None),
    row("redis-sentinel", Several::watched, &[REDIS], None),
    row("redis-cluster", Several::cluster, &[REDIS], None),
    row("redlock", Several::masters, &[REDIS], None),
    row("postgres", Postgres::start, &[POSTGRESQL, CLOCK_SHIM], Some(OF_ONE_SERVER)),
    row("mysql", Mysql::start, &[MARIADB], None),
    row("etcd", || Etcd::start(1), &[ETCD], None),
    row("etcd-three", || Etcd::start(3), &[ETCD], None),
    row("zookeeper", || ZooKeeper::start(1), &[ZOOKEEPER], None),
    row("zookeeper-three", || ZooKeeper::start(3), &[ZOOKEEPER], Some(&[])),
    row("zookeeper-hosts", ZooKeeper::on_hosts, &[ZOOKEEPER, Network::PACKAGE], None),
];

impl Topology {
    /// The reason why this machine cannot start the row's servers.
    #[must_use]
    pub fn obstacle(&self) -> Option<String> {
        let missing: Vec<_> = self.needs.iter().flat_map(Package::missing).collect();
        let is_root = || std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        let needs_network = self.needs.iter().any(|package| package.server == Network::PACKAGE.server);
        match missing.as_slice() {
            [] if needs_network && !is_root() => Some("a network needs root".to_owned()),
            [] => None,
            missing => Some(format!("{} is not installed", missing.join(", "))),
        }
    }
}

/// A fault of the table, and how often it strikes in one drill.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// Hurts the workers or their servers.
    pub strategy: Strategy,
    /// How often the drill strikes.
    pub strikes: usize,
    /// The kind of the locks.
    pub uses: Uses,
}

const fn fault(strategy: Strategy, strikes: usize) -> Fault {
    Fault { strategy, strikes, uses: Uses::Mutexes }
}

const fn storm(uses: Uses) -> Fault {
    Fault { strategy: Strategy::Storm, strikes: 6, uses }
}

/// Every fault. Shorter outages strike more often.
pub const FAULTS: &[Fault] = &[
    fault(Strategy::Calm, 5),
    fault(Strategy::KillHolders, 3),
    fault(Strategy::StopHoldersPastTheirSession, 2),
    fault(Strategy::Everything, 10),
    fault(Brief(Outage::LeaderKilled), 3),
    fault(Long(Outage::LeaderPaused), 2),
    fault(Long(Outage::LeaderCutOff), 2),
    fault(Long(Outage::FollowerCut), 2),
    fault(Brief(Outage::WorkerCut), 3),
    fault(Long(Outage::WorkerCut), 2),
    fault(Long(Outage::WorkerHeldBack), 2),
    fault(Long(Outage::WorkerHoled), 2),
    fault(Long(Outage::ServerHoled), 2),
    fault(Brief(Outage::ServerRestarted), 3),
    fault(Brief(Outage::ConnectionsReset), 4),
    fault(Brief(Outage::AnswerCut), 8),
    fault(Brief(Outage::MemoryLost), 4),
    fault(Brief(Outage::ClockAhead), 2),
    fault(Brief(Outage::ClockBehind), 2),
    fault(Long(Outage::ServerBusy), 1),
    fault(Brief(Outage::ServerWaits), 2),
    fault(Long(Outage::ServerWaits), 1),
    fault(Brief(Outage::ScriptsForgotten), 4),
    fault(Long(Outage::NumbersEnd), 2),
    fault(Long(Outage::QueuesOverflow), 2),
    fault(Strategy::Storm, 4),
    storm(Uses::ReadWriteLocks),
    storm(Uses::Semaphores),
    storm(Uses::Mixed),
];

/// The outcome of a cell of the table.
#[derive(Debug)]
pub struct Played {
    /// The verdict of the judge.
    pub verdict: Verdict,
    /// How many faults took effect.
    pub faults: u64,
}

impl Fault {
    /// The name in the ledger.
    #[must_use]
    pub fn name(&self) -> String {
        match self.uses {
            Uses::Mutexes => format!("{:?}", self.strategy),
            uses => format!("{:?} of {uses:?}", self.strategy),
        }
    }

    /// Lets a hundred workers in four processes contend for six locks while `bed` has this outage; `None` where it cannot.
    pub fn play(&self, bed: &Arc<dyn Bed>, worker: &Path, logs: &Path, seed: u64) -> io::Result<Option<Played>> {
        let mut played = Ok(None);
        bed.inside(&mut || played = self.play_inside(bed, worker, logs, seed))?;
        played
    }

    fn play_inside(&self, bed: &Arc<dyn Bed>, worker: &Path, logs: &Path, seed: u64) -> io::Result<Option<Played>> {
        let site = Arc::new(Breakable::new(bed, &site_name(), 5)?);
        if !self.strategy.is_possible(&*site) || self.uses != Uses::Mutexes && !bed.shares() {
            return Ok(None);
        }
        site.heal()?;
        let &Self { strategy, strikes, uses } = self;
        let drill = Drill::at(Arc::clone(&site) as Arc<dyn Site>, logs, worker, strategy, seed);
        let verdict = Drill { tasks: 25, strikes, uses, locks: 6, grants_between: 600, ..drill }.run()?;
        let outages = verdict.toll.outages.iter().map(|(outage, count)| match outage {
            Outage::AnswerCut => site.cuts().min(*count as u64),
            _ => *count as u64,
        });
        let faults = outages.sum::<u64>() + (verdict.toll.killed + verdict.toll.stopped) as u64;
        Ok(Some(Played { verdict, faults }))
    }
}

impl Played {
    /// Why a clean verdict would prove nothing.
    #[must_use]
    pub fn shows_nothing(&self) -> Option<&'static str> {
        let Self { verdict, faults } = self;
        let (toll, report) = (&verdict.toll, &verdict.report);
        // Only a sole holder writes. Of workers that take permits, one in six is alone.
        let writes = if verdict.uses == Uses::Semaphores { 50 / 6 } else { 50 };
        let is_fenced = !verdict.history.writes.is_empty();
        let is_shared = verdict.history.sections.iter().any(|section| !section.claim.is_whole());
        match verdict.strategy {
            _ if report.grants <= 50 => Some("too few grants"),
            _ if is_fenced && report.writes.0 <= writes => Some("too few writes"),
            _ if verdict.uses != Uses::Mutexes && !is_shared => Some("no lock was shared"),
            Strategy::KillHolders if toll.killed_holders == 0 => Some("no holder was killed"),
            Strategy::StopHoldersPastTheirSession if toll.stopped_holders == 0 => Some("no holder was stopped"),
            Brief(Outage::AnswerCut) if *faults < toll.outages[&Outage::AnswerCut] as u64 => {
                Some("not every answer was cut")
            }
            Strategy::Calm => None,
            _ if *faults == 0 => Some("no fault took effect"),
            _ => None,
        }
    }
}

/// A word that no other site of this process has, and no other process on servers that both use.
pub fn site_name() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("t{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}
