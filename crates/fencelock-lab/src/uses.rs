//! The uses of the workers' locks.

use std::time::Duration;

use fencelock::inspect::Claim;
use fencelock::{AnyGuard, Client, Mutex, Result, RwLock, Semaphore, WriteGuard};
use serde::{Deserialize, Serialize};

/// How many permits the semaphores of drills have.
const CAPACITY: u32 = 3;

/// The use of the locks of a drill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Uses {
    /// All locks are mutexes.
    Mutexes,
    /// All locks are read-write locks with writers only: the laws of a mutex hold.
    Writers,
    /// All locks are semaphores of which each worker takes all permits: the laws of a mutex hold.
    AllPermits,
    /// All locks are read-write locks, with readers, writers, and writers that continue as readers.
    ReadWriteLocks,
    /// All locks are semaphores of three permits, of which each worker takes some.
    Semaphores,
    /// Each lock is of another kind: a mutex, a read-write lock, a semaphore.
    Mixed,
}

impl Uses {
    /// All uses.
    pub const ALL: [Self; 6] =
        [Self::Mutexes, Self::Writers, Self::AllPermits, Self::ReadWriteLocks, Self::Semaphores, Self::Mixed];

    /// The use of the lock with this number.
    fn of_lock(self, lock: usize) -> Self {
        match (self, lock % 3) {
            (Self::Mixed, 0) => Self::Mutexes,
            (Self::Mixed, 1) => Self::ReadWriteLocks,
            (Self::Mixed, _) => Self::Semaphores,
            _ => self,
        }
    }

    /// The claim to the whole of this lock.
    pub(super) fn whole(self, lock: usize) -> Claim {
        match self.of_lock(lock) {
            Self::Writers | Self::ReadWriteLocks => Claim::WRITER,
            Self::AllPermits | Self::Semaphores => permits(CAPACITY),
            Self::Mutexes | Self::Mixed => Claim::MUTEX,
        }
    }

    /// Whether writers of this lock sometimes continue as readers.
    pub(super) fn downgrades(self, lock: usize) -> bool {
        self.of_lock(lock) == Self::ReadWriteLocks
    }

    /// A claim to this lock, by chance.
    pub(super) fn claim(self, lock: usize, rng: &mut fastrand::Rng) -> Claim {
        match self.of_lock(lock) {
            Self::ReadWriteLocks if rng.usize(..5) < 3 => Claim::READER,
            Self::Semaphores => permits([1, 1, 1, 2, 2, 3][rng.usize(..6)]),
            _ => self.whole(lock),
        }
    }
}

fn permits(count: u32) -> Claim {
    Claim::new(count, CAPACITY).unwrap_or(Claim::MUTEX)
}

/// The primitive that asks for a claim.
pub(super) enum Lock {
    Mutex(Mutex),
    Read(RwLock),
    Write(RwLock),
    Permits(Semaphore),
}

/// The granted guard.
pub(super) enum Held {
    /// A writer, which may continue as a reader.
    Writer(WriteGuard),
    Other(AnyGuard),
}

impl Lock {
    pub(super) fn new(client: &Client, name: &str, claim: Claim) -> Result<Self> {
        const PURPOSE: &str = "a drill";
        Ok(match claim {
            Claim::MUTEX => Self::Mutex(client.mutex(name)?.purpose(PURPOSE)),
            Claim::READER => Self::Read(client.rwlock(name)?.purpose(PURPOSE)),
            Claim::WRITER => Self::Write(client.rwlock(name)?.purpose(PURPOSE)),
            _ => Self::Permits(client.semaphore(name, claim.capacity())?.permits(claim.weight()).purpose(PURPOSE)),
        })
    }

    pub(super) async fn acquire(&self) -> Result<Held> {
        self.acquire_within(Duration::MAX).await
    }

    pub(super) async fn acquire_within(&self, limit: Duration) -> Result<Held> {
        Ok(match self {
            Self::Mutex(lock) => Held::Other(lock.acquire_within(limit).await?.into_any()),
            Self::Read(lock) => Held::Other(lock.read_within(limit).await?.into_any()),
            Self::Write(lock) => Held::Writer(lock.write_within(limit).await?),
            Self::Permits(lock) => Held::Other(lock.acquire_within(limit).await?.into_any()),
        })
    }

    pub(super) async fn try_acquire(&self) -> Result<Held> {
        Ok(match self {
            Self::Mutex(lock) => Held::Other(lock.try_acquire().await?.into_any()),
            Self::Read(lock) => Held::Other(lock.try_read().await?.into_any()),
            Self::Write(lock) => Held::Writer(lock.try_write().await?),
            Self::Permits(lock) => Held::Other(lock.try_acquire().await?.into_any()),
        })
    }
}

impl Held {
    /// The grant of any of these guards.
    pub(super) fn into_any(self) -> AnyGuard {
        match self {
            Self::Writer(guard) => guard.into_any(),
            Self::Other(guard) => guard,
        }
    }
}
