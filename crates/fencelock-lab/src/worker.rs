//! A worker: takes locks, writes to resources, logs everything, until an order to finish or its death.

use std::io::{self, BufRead};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fencelock::inspect::Claim;
use fencelock::observe::{Event, Observer};
use fencelock::{Client, ErrorKind, Guard, WriteGuard};
use serde::{Deserialize, Serialize};

use super::resource::Resource;
use super::uses::{Held, Lock, Uses};
use crate::history::{LogEvent, LogWriter};

/// The orders of a worker at its start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Orders {
    /// Where logs and resources are.
    pub(super) directory: PathBuf,
    /// The worker's name in the logs, unique.
    pub(super) client: String,
    pub(super) seed: u64,
    /// How many tasks the worker runs, each with a client of its own.
    pub(super) tasks: usize,
    /// How many locks the tasks take: `lock-0` and so on, with `prefix` before each name.
    pub(super) locks: usize,
    pub(super) prefix: String,
    pub(super) uses: Uses,
    /// Whether all tasks share one client.
    pub(super) is_crowd: bool,
    /// Whether the tasks wait for each lock without a limit.
    pub(super) is_patient: bool,
    /// Whether the store may be [`Exhausted`](ErrorKind::Exhausted) while it is hurt.
    pub(super) is_exhausted: bool,
}

/// The name of the lock with this number.
pub(super) fn lock_name(prefix: &str, number: usize) -> String {
    format!("{prefix}lock-{number}")
}

/// The environment variable with the URL of a worker's store. Arguments can be read by every user of the machine.
pub(super) const STORE: &str = "FENCELOCK_LAB_STORE";

/// The numbers of a task's sections in the log: the task in the upper half of the number.
pub(super) const SECTIONS_PER_TASK: u64 = 1 << 32;

/// How long a worker tries to connect and to release, and waits for the departure of a place.
const PATIENCE: Duration = Duration::from_secs(180);

/// The longest pause between two looks at a queue that a contender has to leave, and between two tries of a release.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

type Failure = Box<dyn std::error::Error>;

/// The whole of the worker binary. Takes its orders from its last argument, and finishes on a line or the end of its
/// standard input.
#[must_use]
pub fn worker_main() -> ExitCode {
    let orders = std::env::args().next_back().and_then(|orders| serde_json::from_str(&orders).ok());
    match orders.ok_or("started by the harness only".into()).and_then(work) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("worker: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// The log has the reason of a failure, unless this returns it.
fn work(orders: Orders) -> Result<ExitCode, Failure> {
    // A worker that is stopped cannot read that its parent is gone.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let finish = Arc::new(AtomicBool::new(false));
    listen(Arc::clone(&finish));
    let log = LogWriter::create(&orders.directory.join(format!("{}.log", orders.client)), &orders.client)?;
    let resources: Result<Vec<_>, _> =
        (0..orders.locks).map(|lock| Resource::open(&orders.directory, &lock_name(&orders.prefix, lock))).collect();
    let shared = Arc::new(Shared { log, resources: resources?, finish });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Err(failure) = runtime.block_on(work_at(&orders, &shared)) else { return Ok(ExitCode::SUCCESS) };
    shared.log.write(0, LogEvent::Note { text: &format!("{FAILED}{}", failure) })?;
    Ok(ExitCode::FAILURE)
}

/// The beginning of the last note of a worker that cannot continue.
pub(super) const FAILED: &str = "failed: ";

/// Ends when all tasks did, or with the first that fails.
async fn work_at(orders: &Orders, shared: &Arc<Shared>) -> Result<(), Failure> {
    let crowd = match orders.is_crowd {
        true => Some(connect(&Arc::default()).await?),
        false => None,
    };
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..orders.tasks {
        let (orders, shared, crowd) = (orders.clone(), Arc::clone(shared), crowd.clone());
        tasks.spawn(async move { task(&orders, number, &shared, crowd).await.map_err(|failure| failure.to_string()) });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    if let Some(client) = crowd {
        client.close().await?;
    }
    Ok(())
}

/// Sets `finish` on the first line; dies when the parent is gone.
fn listen(finish: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let mut line = String::new();
        match io::stdin().lock().read_line(&mut line) {
            Ok(read) if read > 0 => finish.store(true, Ordering::Relaxed),
            _ => std::process::exit(1),
        }
    });
}

struct Shared {
    log: LogWriter,
    resources: Vec<Resource>,
    finish: Arc<AtomicBool>,
}

/// When the client's present acquire joined its queue, as events show: at `not_before` at the earliest, at `by` at the latest.
#[derive(Debug, Default)]
struct Queued {
    not_before: AtomicU64,
    by: AtomicU64,
}

impl Observer for Queued {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Waiting { .. } => self.by.store(LogWriter::now(), Ordering::Relaxed),
            Event::Requeued { .. } => {
                self.not_before.store(LogWriter::now(), Ordering::Relaxed);
                self.by.store(0, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// The place of a section: its queue, its claim, and when the place joined the queue, if it had to wait.
struct Place {
    lock: usize,
    claim: Claim,
    called: u64,
    not_before: u64,
    /// The time of the place's arrival; 0 when unknown.
    by: u64,
}

struct Task<'a> {
    client: Client,
    queued: Arc<Queued>,
    shared: &'a Shared,
    section: u64,
    rng: fastrand::Rng,
    locks: usize,
    prefix: String,
    uses: Uses,
    is_patient: bool,
    is_exhausted: bool,
}

/// In a crowd, the arrivals that the shared client's observer receives belong to no task in particular.
async fn task(orders: &Orders, number: usize, shared: &Shared, crowd: Option<Client>) -> Result<(), Failure> {
    let queued = Arc::new(Queued::default());
    let client = match &crowd {
        Some(client) => client.clone(),
        None => connect(&queued).await?,
    };
    let section = number as u64 * SECTIONS_PER_TASK;
    let rng = fastrand::Rng::with_seed(orders.seed.wrapping_add(number as u64).wrapping_mul(0x9e37_79b9));
    let Orders { locks, uses, is_patient, is_exhausted, .. } = *orders;
    let prefix = orders.prefix.clone();
    let mut task = Task { client, queued, shared, section, rng, locks, prefix, uses, is_patient, is_exhausted };
    while !shared.finish.load(Ordering::Relaxed) {
        task.section().await?;
    }
    match crowd {
        Some(_) => Ok(()),
        None => Ok(task.client.close().await?),
    }
}

/// Connects, again and again: a process stopped inside the store can delay a connection beyond its deadline, and so can a
/// server that restarts.
async fn connect(queued: &Arc<Queued>) -> Result<Client, fencelock::Error> {
    let url = std::env::var(STORE).unwrap_or_default();
    let mut pauses = Pauses::new();
    loop {
        match Client::builder().observer(Arc::clone(queued) as Arc<dyn Observer>).connect(&url).await {
            Err(error) if error.is_retryable() && pauses.pause().await => {}
            result => return result,
        }
    }
}

impl Task<'_> {
    fn log(&self, event: LogEvent<&str>) -> io::Result<()> {
        self.shared.log.write(self.section, event)
    }

    /// An attempt at a lock, and its consequences.
    async fn section(&mut self) -> Result<(), Failure> {
        self.section += 1;
        let lock = self.rng.usize(..self.locks);
        let (name, claim) = (lock_name(&self.prefix, lock), self.uses.claim(lock, &mut self.rng));
        self.queued.not_before.store(0, Ordering::Relaxed);
        self.queued.by.store(0, Ordering::Relaxed);
        let called = LogWriter::now();
        self.shared.log.write_at(self.section, called, LogEvent::Acquire { lock: &name, claim })?;
        match self.acquire(&name, claim).await {
            Some(Ok(held)) => {
                let by = self.queued.by.load(Ordering::Relaxed);
                let not_before = self.queued.not_before.load(Ordering::Relaxed).max(called);
                self.hold(held, &Place { lock, claim, called, not_before, by }).await?;
            }
            Some(Err(error)) if error.kind() == ErrorKind::Busy => {
                self.log(LogEvent::Busy)?;
                self.log(LogEvent::Gone)?;
            }
            gave_up => {
                self.log(LogEvent::GaveUp)?;
                if let Some(Err(error)) = &gave_up
                    && error.kind() != ErrorKind::TimedOut
                {
                    self.bear(error)?;
                }
                self.wait_until_gone(&name).await?;
            }
        }
        self.pause(2_000).await;
        Ok(())
    }

    /// Acquires in one of several ways; `None` when the acquire was cancelled.
    async fn acquire(&mut self, name: &str, claim: Claim) -> Option<fencelock::Result<Held>> {
        let lock = match Lock::new(&self.client, name, claim) {
            Ok(lock) => lock,
            Err(error) => return Some(Err(error)),
        };
        if self.is_patient {
            return Some(lock.acquire().await);
        }
        let limit = Duration::from_micros(self.rng.usize(..5_000) as u64);
        match self.rng.usize(..20) {
            0..13 => Some(lock.acquire().await),
            13..17 => Some(lock.try_acquire().await),
            17..19 => Some(lock.acquire_within(limit).await),
            _ => tokio::time::timeout(limit, lock.acquire()).await.ok(),
        }
    }

    async fn hold(&mut self, held: Held, place: &Place) -> Result<(), Failure> {
        match held {
            Held::Writer(guard) => {
                let believes = self.inside(&guard, place).await?;
                if believes && self.uses.downgrades(place.lock) && self.rng.usize(..3) == 0 {
                    return self.downgrade(guard, place).await;
                }
                self.release(guard).await
            }
            Held::Other(guard) => {
                self.inside(&guard, place).await?;
                self.release(guard).await
            }
        }
    }

    /// Uses the lock for a while. Returns whether the lock was held to the end.
    async fn inside<K>(&mut self, guard: &Guard<K>, place: &Place) -> Result<bool, Failure> {
        if place.by > 0 {
            self.shared.log.write_at(self.section, place.by, LogEvent::Enqueued { called: place.not_before })?;
        }
        let token = guard.token().map(fencelock::FencingToken::to_i64);
        let granted = LogWriter::now();
        let mut believes = guard.check().is_ok();
        self.shared.log.write_at(self.section, granted, LogEvent::Granted { token })?;
        // A grant that ended before its answer was read has no core.
        let mut proof = granted.saturating_sub(u64::from(!believes));
        for _write in 0..=self.rng.usize(..2) {
            // Only exclusive grants are ordered by their tokens.
            if let Some(token) = token.filter(|_| place.claim.is_whole()) {
                self.shared.resources[place.lock].write(token)?;
            }
            self.pause(500).await;
            // A holder that believes after a moment believed at that moment, too, wherever the process was paused.
            let now = LogWriter::now();
            believes &= guard.check().is_ok();
            if believes {
                proof = now;
                self.shared.log.write_at(self.section, now, LogEvent::Inside)?;
            }
        }
        let now = LogWriter::now();
        believes &= guard.check().is_ok();
        if believes {
            self.shared.log.write_at(self.section, now, LogEvent::Release)?;
        } else {
            self.shared.log.write_at(self.section, proof, LogEvent::BeliefEnds)?;
        }
        Ok(believes)
    }

    /// Continues as a reader in the writer's place: another section, which took its place when the writer did.
    async fn downgrade(&mut self, guard: WriteGuard, place: &Place) -> Result<(), Failure> {
        let reading = match guard.downgrade_or_keep().await {
            Ok(reading) => reading,
            Err(failed) => {
                self.bear(failed.error())?;
                return self.release(failed.into_guard()).await;
            }
        };
        let (writer, reader) = (self.section, Place { claim: Claim::READER, ..*place });
        self.section += 1;
        let name = lock_name(&self.prefix, place.lock);
        let acquire = LogEvent::Acquire { lock: name.as_str(), claim: reader.claim };
        self.shared.log.write_at(self.section, place.called, acquire)?;
        self.shared.log.write(writer, LogEvent::Gone)?;
        self.inside(&reading, &reader).await?;
        self.release(reading).await
    }

    /// Notes an error that a fault explains: the store could not be reached, or ended the session, or refuses by its
    /// rules. Any other ends the worker.
    fn bear(&self, error: &fencelock::Error) -> Result<(), Failure> {
        let is_refused = self.is_exhausted && error.kind() == ErrorKind::Exhausted;
        let is_explained = error.is_retryable() || error.kind() == ErrorKind::Lost || is_refused;
        match is_explained {
            true => Ok(self.log(LogEvent::Note { text: &error.to_string() })?),
            false => Err(format!("{error:?}").into()),
        }
    }

    /// Releases, again and again if need be: a failed release forgets nothing.
    async fn release<K>(&self, mut guard: Guard<K>) -> Result<(), Failure> {
        let mut pauses = Pauses::new();
        loop {
            let failed = match guard.release_or_keep().await {
                Ok(()) => return Ok(self.log(LogEvent::Gone)?),
                Err(failed) if failed.kind() == ErrorKind::Lost => return Ok(()),
                Err(failed) => failed,
            };
            self.bear(failed.error())?;
            guard = failed.into_guard();
            if !pauses.pause().await {
                return Err("a lock could not be released, and was not lost either".into());
            }
        }
    }

    /// An acquire that was given up leaves the queue in the background.
    async fn wait_until_gone(&self, name: &str) -> Result<(), Failure> {
        if self.is_patient {
            return Ok(());
        }
        let (name, mine) = (fencelock::Name::new(name)?, self.client.owner().client);
        let mut pauses = Pauses::new();
        loop {
            match self.client.queue(&name).await {
                Ok(queue) if queue.contenders.iter().all(|contender| contender.id.client != mine) => {
                    return Ok(self.log(LogEvent::Gone)?);
                }
                Ok(_) => {}
                Err(error) => self.bear(&error)?,
            }
            if !pauses.pause().await {
                return Err(format!("an acquire of {name} was given up and never left the queue").into());
            }
        }
    }

    /// Impatient tasks rarely sleep: their sections follow one another as fast as the store allows.
    async fn pause(&mut self, up_to_us: usize) {
        let pause = self.rng.usize(..up_to_us) as u64;
        if self.is_patient || pause.is_multiple_of(4) {
            tokio::time::sleep(Duration::from_micros(pause)).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}

/// Longer and longer pauses, for as long as a worker has patience.
struct Pauses {
    since: u64,
    next: Duration,
}

impl Pauses {
    fn new() -> Self {
        Self { since: LogWriter::now(), next: Duration::from_millis(1) }
    }

    /// Returns false once the patience has ended.
    async fn pause(&mut self) -> bool {
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(LOOK_AGAIN);
        Duration::from_nanos(LogWriter::now().saturating_sub(self.since)) < PATIENCE
    }
}
