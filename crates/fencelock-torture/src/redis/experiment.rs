//! Limits of a Redis lock, shown and counted: a fault happens to the server or to the holder, another client
//! takes the lock, and then both write to a resource, the newer holder first.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use fencelock_testbed::redis::{Reply, Role, Server, Settings};
use fencelock_testbed::{PATIENCE, Proxy, Way, wait_for};

pub use super::contestants::Lock;
use super::contestants::{Held, TTL};
use super::findings::Round;
pub use super::findings::{Findings, HEAD};

/// The event while a client holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Experiment {
    /// The replica lags; the primary takes the lock, and is killed. The replica is promoted, and the address moves to it.
    FailoverLagging,
    /// As [`Experiment::FailoverLagging`], but the holder's connections do not follow: the holder receives nothing
    /// more.
    FailoverCutOff,
    /// The replica follows, and the primary is killed as it answers. The address moves.
    FailoverAtOnce,
    /// The primary is paused, the replica promoted, and the primary continues, with the holder: both are primaries, until
    /// the old one is made a replica, two ttls after the second grant.
    Split,
    /// As [`Experiment::Split`], where the primary refuses writes that no replica follows (`min-replicas-to-write 1`,
    /// `max-lag 1`).
    SplitGuarded,
    /// The server is killed and started again, without persistence.
    RestartEmpty,
    /// As [`Experiment::RestartEmpty`], while the holder's connections carry nothing: the holder notices the restart
    /// too late.
    RestartCutOff,
    /// As [`Experiment::RestartEmpty`], with a snapshot from before the lock was taken.
    RestartSnapshot,
    /// As [`Experiment::RestartEmpty`], with an append-only file that is synced every second: the process dies, the
    /// machine does not.
    RestartEverysec,
    /// The server has no memory left, and evicts every key.
    Evicted,
    /// The server's wall clock jumps a minute ahead.
    ClockAhead,
    /// The server's wall clock jumps a minute back, and the holder dies.
    ClockBehind,
    /// The server's wall clock jumps an hour back while the second one waits; the holder is renewed after that, and dies.
    ClockBehindRenewed,
    /// The holder checks its lock. Then it is stopped for longer than its lease, and writes afterwards.
    HolderPaused,
    /// The holder has two of three masters, and is cut off from the third. A master of the two is killed and started again,
    /// without persistence.
    QuorumRestartEmpty,
    /// The holder has two of three masters, and is cut off from the third. The wall clock of one of the two jumps a
    /// minute ahead.
    QuorumClockAhead,
    /// The holder has all of three masters, and the wall clock of one jumps a minute ahead.
    QuorumClockOfOne,
    /// As [`Experiment::HolderPaused`], on three masters.
    QuorumHolderPaused,
}

/// How long the second client tries without a grant, and how long two believers are watched.
const LONG: Duration = Duration::from_secs(8);

/// How far the clock jumps, in seconds.
const JUMP: i64 = 60;

/// How far back the clock jumps under a holder that renews: far beyond every limit of a wait.
const STEP_BACK: i64 = 3600;

impl Experiment {
    /// Runs `times` rounds of the experiment with `lock`, `at_once` at a time. Each round has its own servers.
    pub fn run(self, lock: Lock, times: usize, at_once: usize) -> io::Result<Findings> {
        let title = lock.title(self.is_of_quorum()).to_owned();
        Findings::count((self, title), (times, at_once), || self.round(lock))
    }

    fn round(self, lock: Lock) -> io::Result<Round> {
        let scene = Scene::set(self)?;
        let ways: Vec<SocketAddr> = scene.ways().map(Proxy::address).collect();
        let first = Held::take(lock, &ways, PATIENCE)?.ok_or_else(|| io::Error::other("no first grant"))?;
        let (addresses, patience) = (scene.second(), self.patience());
        let take = move || Held::take(lock, &addresses, patience);
        let waiting = (self == Self::ClockBehindRenewed).then(|| thread::spawn(take.clone()));
        scene.happens(self)?;
        let happened = Instant::now();
        let second = match waiting {
            Some(waiting) => waiting.join().map_err(|_| io::Error::other("the waiting client panicked"))?,
            None => take(),
        };
        let Some(second) = second? else { return Ok(Round::default()) };
        let mut is_split = self == Self::Split;
        Round::of((&first, &second), (happened.elapsed(), LONG), |since| {
            let is_late = since > TTL * 2 && std::mem::take(&mut is_split);
            if is_late { scene.demote() } else { Ok(()) }
        })
    }

    /// How long the second client tries: not for ever, because the first may keep its lock.
    fn patience(self) -> Duration {
        match self {
            Self::FailoverAtOnce | Self::RestartEverysec | Self::ClockBehind => LONG,
            Self::QuorumRestartEmpty | Self::QuorumClockAhead | Self::QuorumClockOfOne => LONG,
            _ => PATIENCE,
        }
    }

    /// Whether the experiment applies to `lock`.
    #[must_use]
    pub fn is_of(self, lock: Lock) -> bool {
        lock == Lock::ByHand || self.is_of_quorum() == (lock == Lock::Redlock)
    }

    /// Whether a quorum of three masters holds the lock.
    fn is_of_quorum(self) -> bool {
        matches!(self, Self::QuorumClockAhead | Self::QuorumClockOfOne)
            || matches!(self, Self::QuorumHolderPaused | Self::QuorumRestartEmpty)
    }

    fn settings(self) -> Settings {
        let settings = Settings::default();
        match self {
            Self::ClockAhead | Self::ClockBehind | Self::ClockBehindRenewed => Settings { own_clock: true, ..settings },
            Self::QuorumClockAhead | Self::QuorumClockOfOne => Settings { own_clock: true, ..settings },
            Self::SplitGuarded => settings.with("min-replicas-to-write 1").with("min-replicas-max-lag 1"),
            Self::RestartEverysec => settings.with("appendonly yes").with("appendfsync everysec"),
            _ => settings,
        }
    }

    fn has_replica(self) -> bool {
        matches!(self, Self::FailoverAtOnce | Self::FailoverCutOff | Self::FailoverLagging)
            || matches!(self, Self::Split | Self::SplitGuarded)
    }
}

/// The servers of one round, and the holder's route to them.
struct Scene {
    primary: Server,
    replica: Option<Server>,
    /// The link on which the replica follows.
    _following: Proxy,
    /// The holder's route to the server.
    way: Proxy,
    /// The other masters, and the holder's routes to them.
    others: Vec<(Server, Proxy)>,
}

impl Scene {
    fn set(experiment: Experiment) -> io::Result<Self> {
        let primary = Server::start(experiment.settings())?;
        let following = Proxy::start(primary.address())?;
        let of_primary = || Server::start(Settings::role(Role::ReplicaOf(following.address())));
        let replica = experiment.has_replica().then(of_primary).transpose()?;
        if let Some(replica) = &replica {
            wait_for("the replica follows", || replica.info("master_link_status").is_ok_and(|link| link == "up"))?;
            wait_for("the primary has its replica", || {
                primary.info("connected_slaves").is_ok_and(|count| count == "1")
            })?;
            // A guarded primary refuses this until its replica has answered.
            wait_for("the primary takes writes", || primary.ask(&["SET", "ready", "1"]).is_ok())?;
        }
        match experiment {
            Experiment::FailoverLagging | Experiment::FailoverCutOff => following.hold(Way::Down),
            Experiment::RestartSnapshot => drop(primary.ask(&["SAVE"])?),
            _ => {}
        }
        let other = |_| {
            let server = Server::start(experiment.settings())?;
            let way = Proxy::start(server.address())?;
            Ok((server, way))
        };
        let others: Vec<_> =
            (0..if experiment.is_of_quorum() { 2 } else { 0 }).map(other).collect::<io::Result<_>>()?;
        if matches!(experiment, Experiment::QuorumRestartEmpty | Experiment::QuorumClockAhead) {
            others[1].1.refuse();
        }
        Ok(Self { way: Proxy::start(primary.address())?, primary, replica, _following: following, others })
    }

    /// The holder's routes to the servers that it asks.
    fn ways(&self) -> impl Iterator<Item = &Proxy> {
        std::iter::once(&self.way).chain(self.others.iter().map(|(_, way)| way))
    }

    fn replica(&self) -> io::Result<&Server> {
        self.replica.as_ref().ok_or_else(|| io::Error::other("there is no replica"))
    }

    /// The address for the second client.
    fn second(&self) -> Vec<SocketAddr> {
        let first = self.replica.as_ref().unwrap_or(&self.primary);
        std::iter::once(first).chain(self.others.iter().map(|(server, _)| server)).map(Server::address).collect()
    }

    fn happens(&self, what: Experiment) -> io::Result<()> {
        match what {
            Experiment::FailoverLagging | Experiment::FailoverCutOff | Experiment::FailoverAtOnce => {
                if what == Experiment::FailoverCutOff {
                    self.way.hold(Way::Both);
                }
                self.way.lead_to(self.replica()?.address());
                self.primary.kill();
                self.promote()
            }
            Experiment::Split | Experiment::SplitGuarded => {
                self.primary.pause();
                self.promote()?;
                self.primary.resume();
                Ok(())
            }
            Experiment::RestartEmpty
            | Experiment::RestartCutOff
            | Experiment::RestartSnapshot
            | Experiment::RestartEverysec
            | Experiment::QuorumRestartEmpty => {
                if what == Experiment::RestartCutOff {
                    self.way.hold(Way::Both);
                }
                self.primary.restart()?;
                self.primary.wait_until_serving()
            }
            Experiment::Evicted => self.evict(),
            Experiment::ClockAhead | Experiment::QuorumClockAhead | Experiment::QuorumClockOfOne => {
                self.primary.set_clock(JUMP)
            }
            Experiment::ClockBehind => {
                self.way.hole(Way::Both);
                self.primary.set_clock(-JUMP)
            }
            Experiment::ClockBehindRenewed => {
                wait_for("the second client waits", || self.is_waited_for().unwrap_or(false))?;
                // A waiter notices that by itself: no janitor clears away the remains of the dead.
                self.primary.ask(&["SET", "fencelock:2:janitor", ""])?;
                self.primary.set_clock(-STEP_BACK)?;
                wait_for("a renewal follows the step", || self.is_renewed().unwrap_or(false))?;
                self.way.hole(Way::Both);
                Ok(())
            }
            Experiment::HolderPaused | Experiment::QuorumHolderPaused => {
                self.ways().for_each(|way| way.hold(Way::Both));
                Ok(())
            }
        }
    }

    /// Takes the server's memory away until no key is left, and gives it back.
    fn evict(&self) -> io::Result<()> {
        let mut hands = self.primary.hands()?;
        hands.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random", "maxmemory", "1"])?;
        wait_for("the server is empty", || hands.ask(&["DBSIZE"]).is_ok_and(|keys| keys.number() == Some(0)))?;
        hands.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction", "maxmemory", "0"]).map(drop)
    }

    /// Whether the first client's lock has a queue, or a layout without queues.
    fn is_waited_for(&self) -> io::Result<bool> {
        let queues = self.primary.ask(&["KEYS", "fencelock:*:queue:job"])?;
        Ok(!queues.items().is_empty() || self.primary.ask(&["EXISTS", "job"])?.number() == Some(1))
    }

    /// Whether the step no longer falls into a client's wait.
    fn is_renewed(&self) -> io::Result<bool> {
        let sessions = self.primary.ask(&["KEYS", "fencelock:*:session:*"])?;
        let mut keys = sessions.items().iter().map(Reply::to_string).chain(["job".to_owned()]);
        let left = |key: String| Ok(self.primary.ask(&["PTTL", &key])?.number().unwrap_or(0));
        let is_short = |left: i64| i128::from(left) <= TTL.as_millis() as i128;
        keys.try_fold(true, |all, key| left(key).map(|left| all && is_short(left)))
    }

    fn promote(&self) -> io::Result<()> {
        self.replica()?.ask(&["REPLICAOF", "NO", "ONE"]).map(drop)
    }

    /// Makes the old primary a replica of the new one, as a Sentinel does at its return.
    fn demote(&self) -> io::Result<()> {
        let new = self.replica()?.address();
        self.primary.ask(&["REPLICAOF", &new.ip().to_string(), &new.port().to_string()]).map(drop)
    }
}
