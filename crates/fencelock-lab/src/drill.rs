//! A drill: makes faults, heals, lets the workers continue, counts the remains, and checks the history.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fencelock::capability::Liveness;
use fencelock::{Client, Io, Name};

use super::fleet::Fleet;
use super::site::{Site, Unbreakable};
use super::strategy::{Strategy, Toll};
use super::uses::{Lock, Uses};
use super::worker::{Orders, lock_name};
use crate::history::{History, Laws, Report, check, read_directory};

/// A drill of workers on one store.
#[derive(Debug, Clone)]
pub struct Drill {
    /// The store, and what can be broken there.
    pub site: Arc<dyn Site>,
    /// An empty directory for logs and resources.
    pub directory: PathBuf,
    /// The worker binary.
    pub worker: PathBuf,
    /// The arguments of `worker` before its orders.
    pub arguments: Vec<String>,
    /// The beginning of the names of all locks; a store with other users needs one.
    pub prefix: String,
    /// Whether workers wait patiently for each lock, instead of giving up now and then.
    pub is_patient: bool,
    /// Ends the strikes early, once it is true.
    pub stop: Arc<AtomicBool>,
    /// The faults of the workers.
    pub strategy: Strategy,
    /// The use of the locks.
    pub uses: Uses,
    /// The seed of the schedule, and of the workers' requests.
    pub seed: u64,
    /// How many processes there are.
    pub processes: usize,
    /// How many tasks each worker runs, each with a client of its own.
    pub tasks: usize,
    /// How many more tasks wait for the same locks, in one process with one client; usually none.
    pub crowd: usize,
    /// How many locks the workers take.
    pub locks: usize,
    /// How often the strategy strikes.
    pub strikes: usize,
    /// How many grants there are between two strikes, as far as the strike before allows any.
    pub grants_between: u64,
    /// How many times each lock must be granted after everything is healed.
    pub grants_after: u64,
    /// How long the harness waits for an event that must come, before it reports a fault.
    pub patience: Duration,
}

/// How long the harness waits for grants that a stopped process may prevent.
const LULL: Duration = Duration::from_millis(100);

impl Drill {
    /// A drill of four processes with two tasks each, over two locks of a store that does not break; every field may be
    /// set.
    #[must_use]
    pub fn new(url: &str, directory: &Path, worker: &Path, strategy: Strategy, seed: u64) -> Self {
        Self::at(Arc::new(Unbreakable { url: url.to_owned(), ttl: Duration::ZERO }), directory, worker, strategy, seed)
    }

    /// A drill at a site that may break.
    #[must_use]
    pub fn at(site: Arc<dyn Site>, directory: &Path, worker: &Path, strategy: Strategy, seed: u64) -> Self {
        Self {
            site,
            directory: directory.to_owned(),
            worker: worker.to_owned(),
            arguments: Vec::new(),
            prefix: String::new(),
            is_patient: false,
            stop: Arc::default(),
            strategy,
            uses: Uses::Mutexes,
            seed,
            processes: 4,
            tasks: 2,
            crowd: 0,
            locks: 2,
            strikes: 20,
            grants_between: 10,
            grants_after: 60,
            patience: Duration::from_secs(180),
        }
    }

    /// Runs the drill. Blocks. Every started process is gone when the call returns or panics.
    ///
    /// # Errors
    /// An error of the machine: files, processes, the harness's own use of the store. Faults of the locks are in the
    /// verdict.
    pub fn run(&self) -> io::Result<Verdict> {
        let mut toll = Toll::default();
        let mut fleet = Fleet::start(self, self.orders())?;
        self.hurt(&mut fleet, &mut toll)?;
        self.heal(&mut fleet)?;
        fleet.finish(self.patience)?;
        let mut faults = std::mem::take(&mut fleet.faults);
        drop(fleet);
        let census = tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(self.census());
        let (laws, linger) = census.unwrap_or_else(|fault: Fault| {
            faults.push(fault);
            (Laws::ALL, u64::MAX)
        });
        let mut history = read_directory(&self.directory, linger)?;
        history.lapses = self.site.lapses();
        fs::write(self.directory.join("lapses.json"), serde_json::to_vec(&history.lapses)?)?;
        let report = check(&history, laws);
        let &Self { strategy, uses, seed, .. } = self;
        let remarks = self.site.remarks();
        Ok(Verdict { strategy, uses, seed, toll, laws, faults, remarks, report, history })
    }

    fn orders(&self) -> Orders {
        let Self { directory, seed, tasks, locks, prefix, uses, is_patient, .. } = self.clone();
        let (client, is_exhausted) = (String::new(), self.strategy.refusal().is_some());
        Orders { directory, client, seed, tasks, locks, prefix, uses, is_crowd: false, is_patient, is_exhausted }
    }

    fn hurt(&self, fleet: &mut Fleet, toll: &mut Toll) -> io::Result<()> {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        if !fleet.wait_for(self.patience, |grants| grants.iter().all(|grants| *grants > 0))? {
            fleet.faults.push(Fault::Stuck("nothing was granted even before the first strike".to_owned()));
        }
        for _strike in 0..self.strikes {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            self.strategy.strike(fleet, &mut rng, toll)?;
            // Half of the strikes hit locks that still wait for the end of a dead session.
            let is_soon = rng.bool() || fleet.workers.iter().any(|worker| worker.is_stopped);
            let lull = if is_soon { LULL } else { LULL + self.site.ttl() * 3 / 2 };
            self.wait_for_grants(fleet, lull)?;
        }
        Ok(())
    }

    /// Waits for the grants between two strikes, unless there is none for the time `lull`.
    fn wait_for_grants(&self, fleet: &mut Fleet, lull: Duration) -> io::Result<()> {
        let sum = |grants: &[u64]| grants.iter().sum::<u64>();
        let mut seen = sum(&fleet.grants());
        let (enough, mut is_progress) = (seen + self.grants_between, true);
        while seen < enough && is_progress {
            fleet.wait_for(lull, |grants| sum(grants) > seen || self.stop.load(Ordering::Relaxed))?;
            let now = sum(&fleet.grants());
            (seen, is_progress) = (now, now > seen);
        }
        Ok(())
    }

    fn heal(&self, fleet: &mut Fleet) -> io::Result<()> {
        self.site.heal()?;
        for number in 0..fleet.workers.len() {
            if fleet.workers[number].is_stopped {
                fleet.go_on(number)?;
            }
        }
        let before = fleet.grants();
        let goes_on =
            |grants: &[u64]| grants.iter().zip(&before).all(|(now, before)| *now >= before + self.grants_after);
        if !fleet.wait_for(self.patience, goes_on)? {
            let stuck = "a lock is stuck after everything was healed";
            let stuck = format!("{stuck}: grants {before:?}, then {:?}", fleet.grants());
            fleet.faults.push(Fault::Stuck(stuck));
        }
        Ok(())
    }

    /// Whether the store has no name and no place.
    async fn nothing_is_left(&self, client: &Client) -> Result<(), Fault> {
        // Names with a prefix are in a store that may be unable to list them.
        let left = match self.prefix.as_str() {
            "" => client.names("", None, 100).await.map_err(Fault::of_census)?,
            _ => Vec::new(),
        };
        for name in
            left.iter().cloned().chain((0..self.locks).filter_map(|lock| Name::new(lock_name(&self.prefix, lock)).ok()))
        {
            let queue = client.queue(&name).await.map_err(Fault::of_census)?;
            if !queue.contenders.is_empty() || !queue.strangers.is_empty() {
                return Err(Fault::LeftBehind(format!("census: left behind: {queue:?}")));
            }
        }
        match left.is_empty() {
            true => Ok(()),
            false => Err(Fault::LeftBehind(format!("census: names left behind: {left:?}"))),
        }
    }

    /// Looks at every lock once, and then for remains. Returns the laws that the store claims, and for how many
    /// nanoseconds the store may take a dead process for a living one.
    async fn census(&self) -> Result<(Laws, u64), Fault> {
        let in_words = Fault::of_census;
        // On this thread: the library has a thread of its own, which may be in another network.
        let builder = Client::builder().connect_timeout(self.patience).io(Io::CurrentRuntime);
        let client = builder.connect(&self.site.url(self.processes)).await.map_err(in_words)?;
        for lock in 0..self.locks {
            let whole = Lock::new(&client, &lock_name(&self.prefix, lock), self.uses.whole(lock)).map_err(in_words)?;
            let held = whole.acquire_within(self.patience).await;
            let held = held.map_err(|error| Fault::Stuck(format!("census: {error}")))?;
            held.into_any().release().await.map_err(in_words)?;
        }
        // A request that a worker sent just before it was killed may come about later, and is there as long as its session.
        let start = Instant::now();
        while let Err(left) = self.nothing_is_left(&client).await {
            if start.elapsed() > self.patience {
                return Err(left);
            }
            tokio::time::sleep(LULL).await;
        }
        let capability = client.capability();
        let linger = match capability.liveness {
            Liveness::Process | Liveness::Memory => capability.detection_slack,
            _ => client.timing().ttl + capability.detection_slack,
        };
        let laws = Laws::from(&*capability);
        client.close().await.map_err(in_words)?;
        Ok((laws, u64::try_from(linger.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A fault that the laws of a history do not cover, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A lock or a worker makes no progress.
    Stuck(String),
    /// A place or a name is still in the store.
    LeftBehind(String),
    /// A worker or the harness received an error that no strike explains.
    Failed(String),
}

impl Fault {
    fn of_census(error: fencelock::Error) -> Self {
        Self::Failed(format!("census: {error}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Stuck(said) | Self::LeftBehind(said) | Self::Failed(said)) = self;
        f.write_str(said)
    }
}

/// The outcome of a drill.
#[derive(Debug)]
pub struct Verdict {
    /// The faults of the workers.
    pub strategy: Strategy,
    /// The use of the locks.
    pub uses: Uses,
    /// The seed of the schedule.
    pub seed: u64,
    /// The faults of the strategy, counted.
    pub toll: Toll,
    /// The laws that the store claims to keep.
    pub laws: Laws,
    /// Workers that failed, locks that are stuck, things left in the store.
    pub faults: Vec<Fault>,
    /// Repairs of the store's servers without a fault of ours: no fault of the locks, and a reason to doubt the rest.
    pub remarks: Vec<String>,
    /// The checker's report.
    pub report: Report,
    /// The logs of the processes.
    pub history: History,
}

impl Verdict {
    /// Whether nothing is wrong: no violation, no waiter stuck, nothing left.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty() && self.report.is_clean()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { strategy, uses, seed, toll, faults, remarks, report, history, .. } = self;
        write!(f, "{strategy:?} of {uses:?}, seed {seed}: {toll}; {}", report.describe(history))?;
        faults.iter().try_for_each(|fault| write!(f, "\n{fault}"))?;
        remarks.iter().try_for_each(|remark| write!(f, "\n{remark}"))
    }
}
