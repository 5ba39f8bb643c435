//! The parts of a capability that are not numbers, as enums: programs compare them, and each has a sentence for people.

use std::fmt;

/// An enum, and the words for each of its variants.
macro_rules! words {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$what:meta])* $variant:ident = $words:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name { $($(#[$what])* $variant,)* }

        impl $name {
            /// All of them, in their order.
            #[allow(dead_code, reason = "one enum needs it")]
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),*];
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $(Self::$variant => $words,)* })
            }
        }
    };
}
pub(super) use words;

words! {
    /// An assumption behind the validity of a guard. If it fails, two clients can hold a lock at once.
    pub enum Presumption {
        /// The process lives: the kernel keeps the lock for as long.
        ProcessLives = "the process lives",
        /// No user removes the store's files by hand.
        FilesStay = "no user removes its files by hand",
        /// The servers receive each other's messages in time and lose no transactions.
        ServersAgree = "the servers reach each other in time and lose no transactions",
        /// The server keeps its memory: a crash loses what was not saved yet, a failover what was not replicated yet.
        MemoryKept = "the server keeps its memory",
        /// The server keeps what it committed: a failover to an asynchronous standby or replica loses what was not replicated yet, and MariaDB
        /// needs `innodb_flush_log_at_trx_commit=1`.
        CommitsKept = "the server keeps what it committed",
        /// Clients delete the lock's key and change its row only by the rules of its layout.
        KeyStays = "key stays",
        /// The server's wall clock does not jump ahead.
        ClockSteady = "no clock jumps",
        /// No connection breaks: a user who may not run `INFO` cannot tell whether the server behind a new connection was started anew.
        NoConnectionBreaks = "no connection breaks (the user may not run INFO)",
        /// All clients name the same masters, which know nothing of each other.
        SameMasters = "independent masters",
        /// At least one master of every quorum keeps the key. fencelock ignores a restarted master for `rejoin_ms`; other clients count it.
        QuorumKept = "quorum kept",
        /// Clocks go at rates that differ by less than `drift_ms` in a ttl.
        ClockRates = "no clock drift",
        /// Both sides notice a connection's end: no proxy drops one alone, no session is killed on the server, its host does not restart within a ttl.
        EndsAreHeard = "both sides notice the connection's end",
        /// No standby or replica takes over, for session locks exist on their own server only.
        NoTakeover = "no replica takes over",
    }
}

words! {
    /// Another client that shares our locks: each client excludes the other. Locks of all other clients do not exclude ours.
    pub enum Peer {
        /// etcd's `concurrency` package: clientv3's Mutex and Election, and `etcdctl lock`.
        EtcdConcurrency = "clientv3's Mutex and Election, `etcdctl lock`",
        /// Apache Curator's mutexes and read-write locks.
        Curator = "Curator",
        /// The lock of go-zk.
        GoZk = "go-zk",
        /// The locks of kazoo: `Lock`, `WriteLock` and `ReadLock`.
        Kazoo = "kazoo",
        /// kazoo's `Lock` with the extra pattern `-lock-`.
        KazooWithPattern = "kazoo with the extra pattern -lock-",
        /// zk-lock for Node.
        ZkLock = "zk-lock",
        /// redis-py.
        RedisPy = "redis-py",
        /// redsync.
        Redsync = "redsync",
        /// redlock of npm.
        NpmRedlock = "npm redlock",
        /// rslock.
        Rslock = "rslock",
        /// bsm/redislock.
        BsmRedislock = "bsm/redislock",
        /// pottery.
        Pottery = "pottery",
        /// The mutex of npm's redis-semaphore, with `prefix=mutex:`.
        RedisSemaphore = "npm redis-semaphore (`prefix=mutex:`)",
        /// python-redis-lock, whose waiters are woken.
        PythonRedisLock = "python-redis-lock",
        /// Any other client that sets a string of that key if it is absent, on Redlock at a quorum of the same masters.
        SetIfAbsent = "other `SET NX`",
        /// Redisson's `RLock`, its spin lock, its fenced lock, and the holder of its fair lock. Its read-write locks wait for a fenced lock
        /// of ours; our locks are refused while such a lock is held.
        Redisson = "Redisson",
        /// Redisson's read-write lock. A mutex is refused under the name of such a lock, and such a lock under the name of a mutex.
        RedissonReadWrite = "its read-write lock",
        /// `ShedLock`'s providers of JDBC, R2DBC, jOOQ and Exposed, with `usingDbTime`, on that table.
        ShedLock = "ShedLock with usingDbTime",
        /// Programs that insert a row with the same key and an expiry, by the same database's clock, and delete it by key and value.
        ExpiryTable = "programs that insert a row with an expiry",
        /// DistributedLock.NET, with `key=.net`.
        DistributedLockNet = "DistributedLock.NET",
        /// The gem `with_advisory_lock`, with `key=with_advisory_lock`.
        WithAdvisoryLock = "with_advisory_lock",
        /// Any program that takes a session lock with the same key: in that database of PostgreSQL, on that server of MariaDB.
        SessionLock = "any session's lock of that key",
    }
}

/// Data of an idle name that may stay in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Residue {
    /// A counter or two for each of this number of buckets, which all names share.
    Buckets(u32),
    /// A number for each name that was ever locked, for ever.
    NumberPerName,
    /// A row for each name that was ever locked, for ever.
    RowPerName,
    /// The row of a holder that crashed, until a client acquires that lock.
    RowOfCrashed,
    /// Empty containers, for this number of seconds.
    ContainersForSeconds(u32),
    /// The signal of a release, for this number of seconds.
    SignalForSeconds(u32),
    /// Notes, until they expire or a holder deletes them.
    Notes,
    /// Records of breaks, for ever.
    Breaks,
    /// Records of breaks, for this number of days.
    BreaksForDays(u32),
    /// This number of latest records of breaks, for each name.
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
