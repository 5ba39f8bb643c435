//! The clients of a run, as users write them: tasks that take locks in every way, for times that the seed draws.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use fencelock::inspect::Claim;
use fencelock::memory::MemoryStore;
use fencelock::observe::{Event, Observer};
use fencelock::time::Clock as _;
use fencelock::{AnyGuard, Client, Error, ErrorKind, Guard, Io, Result, WriteGuard};
use fencelock_lab::history::Enqueue;

use super::World;
use super::record::{Held, Record};

/// How many permits a semaphore has.
const CAPACITY: u32 = 3;

/// How often a holder tries to release a lock before it leaves that to the client.
const TRIES: usize = 10;

/// A lock of the run.
#[derive(Debug, Clone)]
pub(crate) struct Lock {
    pub(crate) name: String,
    use_: Use,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Mutex,
    Sticky,
    ReadWrite,
    Permits,
}

impl Lock {
    pub(crate) fn drawn(number: usize, rng: &mut fastrand::Rng) -> Self {
        let use_ = [Use::Mutex, Use::Sticky, Use::ReadWrite, Use::Permits][rng.usize(..4)];
        Self { name: format!("{use_:?}-{number}").to_lowercase(), use_ }
    }

    pub(crate) fn is_sticky(&self) -> bool {
        self.use_ == Use::Sticky
    }

    fn claim(&self, rng: &mut fastrand::Rng) -> Claim {
        match self.use_ {
            Use::Mutex | Use::Sticky => Claim::MUTEX,
            Use::ReadWrite => [Claim::READER, Claim::READER, Claim::WRITER][rng.usize(..3)],
            Use::Permits => Claim::new(rng.u32(1..=CAPACITY), CAPACITY).unwrap(),
        }
    }
}

/// When the client's one acquire was last known to be in its queue: not before, and by.
#[derive(Default)]
struct Queued {
    world: Option<Arc<World>>,
    not_before: AtomicU64,
    by: AtomicU64,
}

impl Observer for Queued {
    fn observe(&self, event: &Event<'_>) {
        let now = || self.world.as_ref().map_or(0, |world| world.record.lock().unwrap().now());
        match event {
            Event::Waiting { .. } => self.by.store(now(), Ordering::Relaxed),
            Event::Requeued { .. } => {
                self.not_before.store(now(), Ordering::Relaxed);
                self.by.store(0, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// A process: a client, and tasks that share it.
pub(crate) async fn process(world: Arc<World>, store: MemoryStore, number: u32, mut rng: fastrand::Rng) {
    let workers = rng.u64(1..=3);
    // Events do not name the task that they are about.
    let queued = Arc::new(Queued { world: (workers == 1).then(|| Arc::clone(&world)), ..Queued::default() });
    let client = loop {
        let builder = Client::builder().io(Io::CurrentRuntime).ttl(Duration::from_secs([2, 5, 10][rng.usize(..3)]));
        let connected = builder.observer(Arc::clone(&queued) as _).connect_store((world.wrap)(store.clone().into()));
        match connected.await {
            Ok(client) => break client,
            Err(error) => world.bear(&error),
        }
        world.pass(Duration::from_secs(1)).await;
    };
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..workers {
        let (world, client, queued, rng) = (Arc::clone(&world), client.clone(), Arc::clone(&queued), rng.fork());
        tasks.spawn(Worker { world, client, queued, number, rng }.work());
    }
    while let Some(ended) = tasks.join_next().await {
        if let Err(panic) = ended {
            world.record().fail(panic.to_string());
        }
    }
    world.running.fetch_sub(1, Ordering::Relaxed);
    // An idle client has no place, although its session lives.
    while !world.is_closing.load(Ordering::Relaxed) {
        world.pass(Duration::from_secs(1)).await;
    }
    if let Err(error) = client.close().await {
        world.bear(&error);
    }
}

impl World {
    pub(crate) fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap()
    }

    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.sleep_until(self.clock.now().after(time)).await;
    }

    /// Accepts an error that a fault explains: no answer came, or the lock was lost. Any other error fails the run.
    fn bear(&self, error: &Error) {
        let kind = error.kind();
        if !error.is_retryable() && ![ErrorKind::Lost, ErrorKind::TimedOut].contains(&kind) {
            self.record().fail(format!("{error:?}"));
        }
    }
}

struct Worker {
    world: Arc<World>,
    client: Client,
    queued: Arc<Queued>,
    number: u32,
    rng: fastrand::Rng,
}

/// The lock of a section, and when its place was taken, if that is known.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) lock: &'a Lock,
    pub(crate) enqueue: Option<Enqueue>,
}

impl Worker {
    async fn work(mut self) {
        while !self.world.is_ending.load(Ordering::Relaxed) {
            self.section().await;
            let pause = self.time(2_000);
            self.world.pass(pause).await;
        }
    }

    /// A time up to `most` milliseconds; short ones are as likely as long ones.
    fn time(&mut self, most: u64) -> Duration {
        let most = [most / 100, most / 10, most][self.rng.usize(..3)];
        Duration::from_micros(self.rng.u64(..most * 1_000))
    }

    async fn section(&mut self) {
        let world = Arc::clone(&self.world);
        let lock = &world.locks[self.rng.usize(..world.locks.len())];
        let claim = lock.claim(&mut self.rng);
        self.queued.not_before.store(0, Ordering::Relaxed);
        self.queued.by.store(0, Ordering::Relaxed);
        let section = world.record().called(self.number, &lock.name, claim);
        let (way, limit) = (self.rng.usize(..20), self.time(20_000));
        let acquired = match way {
            0..12 => self.acquire(lock, claim, Duration::MAX).await,
            12..15 => self.try_acquire(lock, claim).await,
            15..18 => self.acquire(lock, claim, limit).await,
            _ => {
                tokio::select! {
                    biased;
                    acquired = self.acquire(lock, claim, Duration::MAX) => acquired,
                    () = world.pass(limit) => return world.record().gave_up(section, "dropped"),
                }
            }
        };
        match acquired {
            Ok(held) => {
                let called = world.record().history.sections[section].called;
                let called = called.max(self.queued.not_before.load(Ordering::Relaxed));
                let by = self.queued.by.load(Ordering::Relaxed);
                // The order of a sticky lock is that of its grants, and not of its sections.
                let is_known = by > 0 && !lock.is_sticky();
                let enqueue = is_known.then_some(Enqueue { called, returned: by });
                self.hold(section, Place { lock, enqueue }, held).await;
            }
            Err(error) if error.kind() == ErrorKind::Busy => world.record().busy(section, true),
            Err(error) => {
                world.record().gave_up(section, &format!("{:?}", error.kind()));
                world.bear(&error);
            }
        }
    }

    async fn acquire(&self, lock: &Lock, claim: Claim, limit: Duration) -> Result<Held> {
        Ok(match (lock.use_, claim) {
            (Use::Mutex, _) => Held::Other(self.client.mutex(&lock.name)?.acquire_within(limit).await?.into_any()),
            (Use::Sticky, _) => {
                let mutex = self.client.mutex(&lock.name)?.sticky(Duration::from_secs(1));
                Held::Other(mutex.acquire_within(limit).await?.into_any())
            }
            (Use::ReadWrite, Claim::READER) => {
                Held::Other(self.client.rwlock(&lock.name)?.read_within(limit).await?.into_any())
            }
            (Use::ReadWrite, _) => Held::Writer(self.client.rwlock(&lock.name)?.write_within(limit).await?),
            (Use::Permits, _) => {
                let permits = self.client.semaphore(&lock.name, CAPACITY)?.permits(claim.weight());
                Held::Other(permits.acquire_within(limit).await?.into_any())
            }
        })
    }

    async fn try_acquire(&self, lock: &Lock, claim: Claim) -> Result<Held> {
        Ok(match (lock.use_, claim) {
            (Use::Mutex, _) => Held::Other(self.client.mutex(&lock.name)?.try_acquire().await?.into_any()),
            (Use::Sticky, _) => {
                let mutex = self.client.mutex(&lock.name)?.sticky(Duration::from_secs(1));
                Held::Other(mutex.try_acquire().await?.into_any())
            }
            (Use::ReadWrite, Claim::READER) => {
                Held::Other(self.client.rwlock(&lock.name)?.try_read().await?.into_any())
            }
            (Use::ReadWrite, _) => Held::Writer(self.client.rwlock(&lock.name)?.try_write().await?),
            (Use::Permits, _) => {
                let permits = self.client.semaphore(&lock.name, CAPACITY)?.permits(claim.weight());
                Held::Other(permits.try_acquire().await?.into_any())
            }
        })
    }

    async fn hold(&mut self, section: usize, place: Place<'_>, held: Held) {
        let (held, believes) = self.inside(section, place, held).await;
        match held {
            Held::Writer(guard) if believes && self.rng.usize(..3) == 0 => self.downgrade(section, place, guard).await,
            Held::Writer(guard) => self.release(section, place, guard).await,
            Held::Other(guard) => self.release(section, place, guard).await,
        }
    }

    /// Uses the lock for a while; returns whether it was held to the end of that.
    async fn inside(&mut self, section: usize, place: Place<'_>, held: Held) -> (Held, bool) {
        let held = Arc::new(held);
        self.world.record().granted(section, &held, place);
        for _ in 0..self.rng.usize(1..4) {
            self.world.record().writes(section, &held);
            let time = self.time(6_000);
            self.world.pass(time).await;
            self.world.record().looks(section, &held);
        }
        let believes = self.world.record().leaves(section, &held);
        (Arc::into_inner(held).expect("the record keeps no guard"), believes)
    }

    /// Continues as a reader in the writer's place: another section, which took its place when the writer did.
    async fn downgrade(&mut self, writer: usize, place: Place<'_>, guard: WriteGuard) {
        let reading: AnyGuard = match guard.downgrade_or_keep().await {
            Ok(reading) => reading.into_any(),
            Err(failed) => {
                self.world.bear(failed.error());
                return self.release(writer, place, failed.into_guard()).await;
            }
        };
        let reader = self.world.record().called(self.number, &place.lock.name, Claim::READER);
        let called = self.world.record().history.sections[writer].called;
        self.world.record().history.sections[reader].called = called;
        self.world.record().gone(writer);
        let (held, _) = self.inside(reader, place, Held::Other(reading)).await;
        if let Held::Other(guard) = held {
            self.release(reader, place, guard).await;
        }
    }

    /// Releases now, or by a drop in the background.
    async fn release<K>(&mut self, section: usize, place: Place<'_>, mut guard: Guard<K>) {
        if self.rng.usize(..4) == 0 {
            return drop(guard);
        }
        for _ in 0..TRIES {
            let failed = match guard.release_or_keep().await {
                // A sticky lock stays with its client.
                Ok(()) if place.lock.is_sticky() => return,
                Ok(()) => return self.world.record().gone(section),
                Err(failed) if failed.kind() == ErrorKind::Lost => return,
                Err(failed) => failed,
            };
            self.world.bear(failed.error());
            guard = failed.into_guard();
            self.world.pass(Duration::from_millis(500)).await;
        }
    }
}
