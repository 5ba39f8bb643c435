//! The locks that take part on Redis.

use fencelock_interop::Foreign;

use crate::clients::{Client, Nodes, Program, at};

const OURS: Program = Program::Fencelock;
const PYTHON: Program = Program::Other(Foreign::RedisPy);
const GO: Program = Program::Other(Foreign::Redsync);
const REDISSON_4_7: Program = Program::Other(Foreign::Redisson);
const REDISSON_3_20: Program = Program::Other(Foreign::Redisson320);
const NODE: Program = Program::Other(Foreign::Node);

/// Most clients use the name unchanged.
const BARE: Nodes = Nodes::String("");

pub(crate) static PLAIN: Client = at(BARE, "fencelock layout=plain", OURS, "layout=plain&prefix={parent}:");
pub(crate) static PLAIN_LOCK: Client =
    at(Nodes::String("lock:"), "fencelock layout=plain prefix=lock:", OURS, "layout=plain&prefix=lock:{parent}:");
pub(crate) static SIGNALLING: Client = at(
    Nodes::String("lock:"),
    "fencelock layout=plain signal=python-redis-lock",
    OURS,
    "layout=plain&signal=python-redis-lock&prefix=lock:{parent}:",
);
pub(crate) static COUNTING: Client =
    at(BARE, "fencelock layout=plain fence=:fence", OURS, "layout=plain&fence=:fence&prefix={parent}:");
pub(crate) static PLAIN_MUTEX: Client =
    at(Nodes::String("mutex:"), "fencelock layout=plain prefix=mutex:", OURS, "layout=plain&prefix=mutex:{parent}:");
pub(crate) static REDISSON: Client = at(BARE, "fencelock layout=redisson", OURS, "layout=redisson&prefix={parent}:");
pub(crate) static REDISSON_FENCED: Client =
    at(BARE, "fencelock layout=redisson-fenced", OURS, "layout=redisson-fenced&prefix={parent}:");
pub(crate) static WRITES: Client =
    at(BARE, "fencelock layout=redisson writer", OURS, "layout=redisson&prefix={parent}:#write");
pub(crate) static READS: Client =
    at(BARE, "fencelock layout=redisson reader", OURS, "layout=redisson&prefix={parent}:#read");
/// Has queues of its own, whose keys no other client uses.
pub(crate) static FAIR: Client =
    at(Nodes::Apart, "fencelock layout=fair", OURS, "layout=fair&prefix=fencelock:{parent}");
/// Takes both locks, as in the middle of a move from one to the other.
pub(crate) static BOTH: Client = at(
    BARE,
    "fencelock layout=plain, then layout=fair",
    OURS,
    "layout=plain&prefix={parent}:+layout=fair&prefix=fencelock:{parent}",
);

/// The name as the key, at several masters.
const AT_ALL: Nodes = Nodes::Masters("");

/// Masters that were started a moment ago have nothing to forget.
pub(crate) static QUORUM: Client = at(AT_ALL, "fencelock redlock:", OURS, "rejoin_ms=0&prefix={parent}:");
pub(crate) static QUORUM_MUTEX: Client =
    at(Nodes::Masters("mutex:"), "fencelock redlock: prefix=mutex:", OURS, "rejoin_ms=0&prefix=mutex:{parent}:");

pub(crate) static REDIS_PY: Client = at(BARE, "redis-py Lock", PYTHON, "Lock");
pub(crate) static PYTHON_REDIS_LOCK: Client =
    at(Nodes::String("lock:"), "python-redis-lock Lock", PYTHON, "redis_lock");
pub(crate) static REDSYNC: Client = at(BARE, "redsync Mutex", GO, "Mutex");
pub(crate) static REDISLOCK: Client = at(BARE, "bsm/redislock", GO, "redislock");
pub(crate) static REDLOCK: Client = at(BARE, "npm redlock, one server", NODE, "redlock");
pub(crate) static REDIS_SEMAPHORE: Client = at(Nodes::String("mutex:"), "npm redis-semaphore Mutex", NODE, "mutex");
pub(crate) static RSLOCK: Client = at(BARE, "rslock, one server", Program::Rslock, "rslock");
pub(crate) static REDSYNC_QUORUM: Client = at(AT_ALL, "redsync Mutex, three masters", GO, "Mutex");
pub(crate) static REDLOCK_QUORUM: Client = at(AT_ALL, "npm redlock, three masters", NODE, "redlock");
pub(crate) static RSLOCK_QUORUM: Client = at(AT_ALL, "rslock, three masters", Program::Rslock, "rslock");
pub(crate) static REDLOCK_MUTEX: Client =
    at(Nodes::Masters("mutex:"), "npm redis-semaphore RedlockMutex", NODE, "RedlockMutex");

pub(crate) static RLOCK: Client = at(BARE, "Redisson 4.7 RLock", REDISSON_4_7, "Lock");
pub(crate) static RLOCK_3_20: Client = at(BARE, "Redisson 3.20 RLock", REDISSON_3_20, "Lock");
pub(crate) static SPIN: Client = at(BARE, "Redisson 4.7 spin lock", REDISSON_4_7, "SpinLock");
pub(crate) static FENCED: Client = at(BARE, "Redisson 4.7 RFencedLock", REDISSON_4_7, "FencedLock");
pub(crate) static FAIR_LOCK: Client = at(BARE, "Redisson 4.7 fair lock", REDISSON_4_7, "FairLock");
pub(crate) static WRITE_LOCK: Client = at(BARE, "Redisson 4.7 write lock", REDISSON_4_7, "WriteLock");
pub(crate) static READ_LOCK: Client = at(BARE, "Redisson 4.7 read lock", REDISSON_4_7, "ReadLock");
pub(crate) static WRITE_LOCK_3_20: Client = at(BARE, "Redisson 3.20 write lock", REDISSON_3_20, "WriteLock");
pub(crate) static READ_LOCK_3_20: Client = at(BARE, "Redisson 3.20 read lock", REDISSON_3_20, "ReadLock");
