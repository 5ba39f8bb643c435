//! The parts of a capability that are not numbers, as enums: programs compare them, and each has a sentence for people.

use std::fmt;

/// An assumption behind the validity of a guard. If it fails, two clients can hold a lock at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Presumption {
    /// The process lives: the kernel keeps the lock for as long.
    ProcessLives,
    /// No user removes the store's files by hand.
    FilesStay,
    /// The servers receive each other's messages in time and lose no transactions.
    ServersAgree,
    /// The server keeps its memory: a crash loses what was not saved yet, a failover what was not replicated yet.
    MemoryKept,
    /// The server keeps what it committed: a failover to an asynchronous standby or replica loses what was not replicated yet, and MariaDB
    /// needs `innodb_flush_log_at_trx_commit=1`.
    CommitsKept,
    /// Clients delete the lock's key and change its row only by the rules of its layout.
    KeyStays,
    /// The server's wall clock does not jump ahead.
    ClockSteady,
    /// No connection breaks: a user who may not run `INFO` cannot tell whether the server behind a new connection was started anew.
    NoConnectionBreaks,
    /// All clients name the same masters, which know nothing of each other.
    SameMasters,
    /// At least one master of every quorum keeps the key. fencelock ignores a restarted master for `rejoin_ms`; other clients count it.
    QuorumKept,
    /// Clocks go at rates that differ by less than `drift_ms` in a ttl.
    ClockRates,
    /// Both ends learn of a connection's end: no proxy drops one alone, no session is killed on the server, and its host does not restart within a ttl.
    EndsAreHeard,
    /// No standby or replica takes over, for session locks exist on their own server only.
    NoTakeover,
}

impl fmt::Display for Presumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ProcessLives => "the process lives",
            Self::FilesStay => "no user removes its files by hand",
            Self::ServersAgree => "the servers reach each other in time and lose no transactions",
            Self::MemoryKept => "the server keeps its memory",
            Self::CommitsKept => "the server keeps what it committed",
            Self::KeyStays => "key stays",
            Self::ClockSteady => "no clock jumps",
            Self::NoConnectionBreaks => "no connection breaks (the user may not run INFO)",
            Self::SameMasters => "independent masters",
            Self::QuorumKept => "quorum kept",
            Self::ClockRates => "clocks go alike",
            Self::EndsAreHeard => "both ends hear of the connection's end",
            Self::NoTakeover => "no replica takes over",
        })
    }
}

/// Another client that shares our locks: each excludes the other. Locks of all other clients do not exclude ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Peer {
    /// etcd's `concurrency` package: clientv3's Mutex and Election, and `etcdctl lock`.
    EtcdConcurrency,
    /// Apache Curator's mutexes and read-write locks.
    Curator,
    /// The lock of go-zk.
    GoZk,
    /// The locks of kazoo: `Lock`, `WriteLock` and `ReadLock`.
    Kazoo,
    /// kazoo's `Lock` with the extra pattern `-lock-`.
    KazooWithPattern,
    /// zk-lock for Node.
    ZkLock,
    /// redis-py.
    RedisPy,
    /// redsync.
    Redsync,
    /// redlock of npm.
    NpmRedlock,
    /// rslock.
    Rslock,
    /// bsm/redislock.
    BsmRedislock,
    /// pottery.
    Pottery,
    /// The mutex of npm's redis-semaphore, with `prefix=mutex:`.
    RedisSemaphore,
    /// python-redis-lock, whose waiters are woken.
    PythonRedisLock,
    /// Any other client that sets a string of that key if it is absent, on Redlock at a quorum of the same masters.
    SetIfAbsent,
    /// Redisson's `RLock`, its spin lock, its fenced lock, and the holder of its fair lock. Its read-write locks wait for a fenced lock of ours;
    /// ours are refused while one of those is held.
    Redisson,
    /// Redisson's read-write lock. A mutex is refused under the name of one, and the other way round.
    RedissonReadWrite,
    /// `ShedLock`'s providers of JDBC, R2DBC, jOOQ and Exposed, with `usingDbTime`, on that table.
    ShedLock,
    /// Programs that insert a row with the same key and an expiry, by the same database's clock, and delete it by key and value.
    ExpiryTable,
    /// DistributedLock.NET, with `key=.net`.
    DistributedLockNet,
    /// The gem `with_advisory_lock`, with `key=with_advisory_lock`.
    WithAdvisoryLock,
    /// Any program that takes a session lock with the same key: in that database of PostgreSQL, on that server of MariaDB.
    SessionLock,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EtcdConcurrency => "clientv3's Mutex and Election, `etcdctl lock`",
            Self::Curator => "Curator",
            Self::GoZk => "go-zk",
            Self::Kazoo => "kazoo",
            Self::KazooWithPattern => "kazoo with the extra pattern -lock-",
            Self::ZkLock => "zk-lock",
            Self::RedisPy => "redis-py",
            Self::Redsync => "redsync",
            Self::NpmRedlock => "npm redlock",
            Self::Rslock => "rslock",
            Self::BsmRedislock => "bsm/redislock",
            Self::Pottery => "pottery",
            Self::RedisSemaphore => "npm redis-semaphore (`prefix=mutex:`)",
            Self::PythonRedisLock => "python-redis-lock",
            Self::SetIfAbsent => "other `SET NX`",
            Self::Redisson => "Redisson",
            Self::RedissonReadWrite => "its read-write lock",
            Self::ShedLock => "ShedLock with usingDbTime",
            Self::ExpiryTable => "programs that insert a row with an expiry",
            Self::DistributedLockNet => "DistributedLock.NET",
            Self::WithAdvisoryLock => "with_advisory_lock",
            Self::SessionLock => "any session's lock of that key",
        })
    }
}

/// Data of an idle name that may stay in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Residue {
    /// A counter or two for each of so many buckets, which all names share.
    Buckets(u32),
    /// A number for each name that was ever locked, for ever.
    NumberPerName,
    /// A row for each name that was ever locked, for ever.
    RowPerName,
    /// The row of a holder that crashed, until a client acquires that lock.
    RowOfCrashed,
    /// Empty containers, for so many seconds.
    ContainersForSeconds(u32),
    /// The signal of a release, for so many seconds.
    SignalForSeconds(u32),
    /// Notes, until they expire or a holder deletes them.
    Notes,
    /// Records of breaks, for ever.
    Breaks,
    /// Records of breaks, for so many days.
    BreaksForDays(u32),
    /// The last so many records of breaks of each name.
    LastBreaks(u32),
    /// Data of crashed clients, until living clients remove it.
    LeftByCrashed,
}

impl fmt::Display for Residue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Buckets(count) => write!(f, "{count} counters"),
            Self::NumberPerName => f.write_str("a number per name, for ever"),
            Self::RowPerName => f.write_str("a row per name, for ever"),
            Self::RowOfCrashed => f.write_str("the row of a crashed holder"),
            Self::ContainersForSeconds(seconds) => write!(f, "containers for {seconds} s"),
            Self::SignalForSeconds(seconds) => write!(f, "a signal for {seconds} s"),
            Self::Notes => f.write_str("notes"),
            Self::Breaks => f.write_str("records of breaks"),
            Self::BreaksForDays(days) => write!(f, "records of breaks for {days} days"),
            Self::LastBreaks(count) => write!(f, "{count} records of breaks"),
            Self::LeftByCrashed => f.write_str("crashed clients' places"),
        }
    }
}
