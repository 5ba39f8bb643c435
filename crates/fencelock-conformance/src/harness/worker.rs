//! A worker: takes locks, writes to resources, logs everything, until it is told to finish or dies.

use std::io::{self, BufRead};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fencelock::{Claim, Client, ErrorKind, Event, Guard, Observer, WriteGuard};

use super::resource::Resource;
use super::rng::Rng;
use super::uses::{Held, Lock, Uses};
use crate::history::{LogEvent, LogWriter};

/// What a worker is told when it is started.
#[derive(Debug, Clone)]
pub(super) struct Orders {
    pub(super) url: String,
    /// Where logs and resources are.
    pub(super) directory: PathBuf,
    /// Its name in the logs, unique.
    pub(super) client: String,
    pub(super) seed: u64,
    /// How many tasks it runs, each with a client of its own.
    pub(super) tasks: usize,
    /// How many locks they take, `lock-0` and on.
    pub(super) locks: usize,
    pub(super) uses: Uses,
}

impl Orders {
    pub(super) fn to_args(&self) -> [String; 7] {
        let Self { url, directory, client, seed, tasks, locks, uses } = self.clone();
        let numbers = [seed.to_string(), tasks.to_string(), locks.to_string()];
        let [seed, tasks, locks] = numbers;
        [url, directory.display().to_string(), client, seed, tasks, locks, uses.to_arg()]
    }

    fn from_args(args: impl Iterator<Item = String>) -> Option<Self> {
        let args: Vec<String> = args.collect();
        let [url, directory, client, seed, tasks, locks, uses] = &args[..] else { return None };
        Some(Self {
            url: url.clone(),
            directory: directory.into(),
            client: client.clone(),
            seed: seed.parse().ok()?,
            tasks: tasks.parse().ok()?,
            locks: locks.parse().ok()?,
            uses: Uses::from_arg(uses)?,
        })
    }
}

/// The name of the lock with this number.
pub(super) fn lock_name(number: usize) -> String {
    format!("lock-{number}")
}

/// What the log says of a task's sections: the task in the upper half of the number.
pub(super) const SECTIONS_PER_TASK: u64 = 1 << 32;

/// The longest pause between two looks at a queue that somebody has to leave.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

type Failure = Box<dyn std::error::Error>;

/// The whole of the worker binary. Takes its orders from its arguments, and finishes on a line or the end of its
/// standard input.
#[must_use]
pub fn worker_main() -> ExitCode {
    match Orders::from_args(std::env::args().skip(1)).ok_or("started by the harness only".into()).and_then(work) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("worker: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn work(orders: Orders) -> Result<(), Failure> {
    // A worker that is stopped cannot read that its parent is gone.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let finish = Arc::new(AtomicBool::new(false));
    listen(Arc::clone(&finish));
    let log = LogWriter::create(&orders.directory.join(format!("{}.log", orders.client)), &orders.client)?;
    let resources: Result<Vec<_>, _> =
        (0..orders.locks).map(|lock| Resource::open(&orders.directory, &lock_name(lock))).collect();
    let shared = Arc::new(Shared { log, resources: resources?, finish });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let tasks: Vec<_> = (0..orders.tasks)
            .map(|number| {
                let (orders, shared) = (orders.clone(), Arc::clone(&shared));
                tokio::spawn(async move { task(&orders, number, &shared).await.map_err(|failure| failure.to_string()) })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok(())
    })
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

/// When the client's one acquire was last known to be in its queue: not before, and by.
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

/// Where a section has its place: in which queue, for what, and when it was taken, if it had to wait.
struct Place {
    lock: usize,
    claim: Claim,
    called: u64,
    not_before: u64,
    /// 0 when nobody knows.
    by: u64,
}

struct Task<'a> {
    client: Client,
    queued: Arc<Queued>,
    shared: &'a Shared,
    section: u64,
    rng: Rng,
    locks: usize,
    uses: Uses,
}

async fn task(orders: &Orders, number: usize, shared: &Shared) -> Result<(), Failure> {
    let queued = Arc::new(Queued::default());
    let client = connect(&orders.url, &queued).await?;
    let section = number as u64 * SECTIONS_PER_TASK;
    let rng = Rng::new(orders.seed.wrapping_add(number as u64).wrapping_mul(0x9e37_79b9));
    let mut task = Task { client, queued, shared, section, rng, locks: orders.locks, uses: orders.uses };
    while !shared.finish.load(Ordering::Relaxed) {
        task.section().await?;
    }
    task.client.close().await?;
    Ok(())
}

/// A process that is stopped inside the store can delay a connection beyond its deadline; it is tried again.
async fn connect(url: &str, queued: &Arc<Queued>) -> Result<Client, fencelock::Error> {
    let mut tries = 0;
    loop {
        tries += 1;
        match Client::builder().observer(Arc::clone(queued) as Arc<dyn Observer>).connect(url).await {
            Err(error) if error.is_retryable() && tries < 20 => {}
            result => return result,
        }
    }
}

impl Task<'_> {
    fn log(&self, event: LogEvent<'_>) -> io::Result<()> {
        self.shared.log.write(self.section, event)
    }

    /// One attempt at one lock, and what it leads to.
    async fn section(&mut self) -> Result<(), Failure> {
        self.section += 1;
        let lock = self.rng.below(self.locks);
        let (name, claim) = (lock_name(lock), self.uses.claim(lock, &mut self.rng));
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
                    self.log(LogEvent::Note { text: &error.to_string().replace('\n', " ") })?;
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
        let limit = Duration::from_micros(self.rng.below(5_000) as u64);
        match self.rng.below(20) {
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
                if believes && self.uses.downgrades(place.lock) && self.rng.below(3) == 0 {
                    return self.downgrade(guard, place).await;
                }
                self.release(&guard).await
            }
            Held::Other(guard) => {
                self.inside(&guard, place).await?;
                self.release(&guard).await
            }
        }
    }

    /// Uses what is held for a while; says whether it was held to the end of that.
    async fn inside<K>(&mut self, guard: &Guard<K>, place: &Place) -> Result<bool, Failure> {
        if place.by > 0 {
            self.shared.log.write_at(self.section, place.by, LogEvent::Enqueued { called: place.not_before })?;
        }
        let token = guard.token().map(fencelock::FencingToken::to_i64);
        let granted = LogWriter::now();
        let mut believes = guard.check().is_ok();
        self.shared.log.write_at(self.section, granted, LogEvent::Granted { token })?;
        // A grant that was over before it was known has no core.
        let mut proof = granted.saturating_sub(u64::from(!believes));
        for _write in 0..=self.rng.below(2) {
            // Only exclusive grants are ordered by their tokens.
            if let Some(token) = token.filter(|_| place.claim.is_whole()) {
                self.shared.resources[place.lock].write(token)?;
            }
            self.pause(500).await;
            // Believing after a moment means having believed at that moment, wherever the process was paused.
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

    /// Goes on as a reader in the writer's place: another section, which took its place when the writer did.
    async fn downgrade(&mut self, guard: WriteGuard, place: &Place) -> Result<(), Failure> {
        let reading = match guard.downgrade().await {
            Ok(reading) => reading,
            Err(failed) => {
                self.log(LogEvent::Note { text: &failed.to_string().replace('\n', " ") })?;
                return self.release(&failed.into_guard()).await;
            }
        };
        let (writer, reader) = (self.section, Place { claim: Claim::READER, ..*place });
        self.section += 1;
        let acquire = LogEvent::Acquire { lock: &lock_name(place.lock), claim: reader.claim };
        self.shared.log.write_at(self.section, place.called, acquire)?;
        self.shared.log.write(writer, LogEvent::Gone)?;
        self.inside(&reading, &reader).await?;
        self.release(&reading).await
    }

    /// Releases, again and again if need be: a failed release forgets nothing.
    async fn release<K>(&self, guard: &Guard<K>) -> Result<(), Failure> {
        for _try in 0..20 {
            match guard.release().await {
                Ok(()) => return Ok(self.log(LogEvent::Gone)?),
                Err(error) if error.kind() == ErrorKind::Lost => return Ok(()),
                Err(error) => self.log(LogEvent::Note { text: &error.to_string().replace('\n', " ") })?,
            }
        }
        Ok(())
    }

    /// An acquire that was given up leaves the queue in the background.
    async fn wait_until_gone(&self, name: &str) -> Result<(), Failure> {
        let (name, mine) = (fencelock::Name::new(name)?, self.client.owner().client);
        let mut pause = Duration::from_millis(1);
        for _look in 0..1_000 {
            if let Ok(queue) = self.client.queue(&name).await
                && queue.contenders.iter().all(|contender| contender.id.client != mine)
            {
                return Ok(self.log(LogEvent::Gone)?);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_AGAIN);
        }
        Err(format!("an acquire of {name} was given up and never left the queue").into())
    }

    async fn pause(&mut self, up_to_us: usize) {
        tokio::time::sleep(Duration::from_micros(self.rng.below(up_to_us) as u64)).await;
    }
}
