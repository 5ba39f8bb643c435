//! Who is measured.

use clap::ValueEnum;

use crate::bench::Store;

/// A way to lock, or the floor below all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contestant {
    /// fencelock with `Io::CurrentRuntime`.
    Current,
    /// fencelock with its I/O thread, on any core.
    Own,
    /// fencelock with its I/O thread on the second core.
    OwnApart,
    /// As [`Contestant::Current`], in the layout of redis-py, redsync and `rslock`: no queue, the same session hands on.
    CurrentPlain,
    /// As [`Contestant::Current`], in the layout of Redisson's `RLock`.
    CurrentRedisson,
    /// The bare requests of a lock on ZooKeeper, on our client: create and delete; told of a deletion, it is next.
    ZkFloor,
    /// The same with a list: beside the create, and after the deletion that it is told of.
    ZkFloorListed,
    /// The crate `zookeeper-client`.
    ZkCrate,
    /// Curator's `InterProcessMutex`.
    Curator,
    /// go-zk's `Lock`.
    GoZk,
    /// kazoo's `Lock`.
    Kazoo,
    /// The bare scripts of a lock on Redis, on our connection: a release gives the lock to the next one, and says so.
    RedisFloor,
    /// The bare commands of `layout=plain` on our connection: `SET NX PX`, and a script that deletes what is ours. Nobody waits.
    PlainFloor,
    /// The bare scripts of `layout=redisson` on our connection: the hash, its end, the message of a release. Nobody waits.
    RedissonFloor,
    /// The bare statements of a lock in PostgreSQL, on one connection: insert and delete; a release that is waited for gives the lock to the
    /// next one, and tells it as it commits.
    PgFloor,
    /// A table with a unique key, an owner and an expiry, by hand: whoever finds it taken tries again after 50 ms.
    PgTable,
    /// The statements of ShedLock's provider for PostgreSQL, by hand. Nobody waits.
    PgShedLock,
    /// PostgreSQL's advisory locks, by hand. Nothing is written.
    PgAdvisory,
    /// The bare statements of a lock in MariaDB, on one connection: insert and delete; a release that is waited for gives the lock to the
    /// next one, and wakes its process after the commit.
    MyFloor,
    /// The table of tutorials, by hand: delete what has expired, insert, delete. Whoever finds it taken tries again after 50 ms.
    MyTable,
    /// The same from a driver that prepares each statement anew, as Go's does where nothing is said. Nobody waits.
    MyTableUnprepared,
    /// The statements of ShedLock's provider for MariaDB, by hand. Nobody waits.
    MyShedLock,
    /// MariaDB's named locks, by hand. Nothing is written. Nobody waits.
    MyGetLock,
    /// The crate `rslock`.
    Rslock,
    /// Redisson's plain lock, for the client that hears of a release first.
    Redisson,
    /// Redisson's fair lock.
    RedissonFair,
    /// redsync's mutex, with its defaults: it tries again after 50 to 250 ms.
    Redsync,
    /// redis-py's `Lock`, with its defaults: it tries again after 100 ms.
    RedisPy,
    /// npm's `redlock`, with its defaults.
    NpmRedlock,
    /// The bare system calls of the layout of `file:`.
    Floor,
    /// `flock(2)` of a file that stays open.
    Flock,
    /// Python's `filelock`, with its defaults.
    Filelock,
}

impl Contestant {
    /// All of them, in the order of the tables.
    pub(crate) const ALL: [Self; 32] = [
        Self::Floor,
        Self::ZkFloor,
        Self::ZkFloorListed,
        Self::RedisFloor,
        Self::PlainFloor,
        Self::RedissonFloor,
        Self::PgFloor,
        Self::MyFloor,
        Self::Current,
        Self::CurrentPlain,
        Self::CurrentRedisson,
        Self::Own,
        Self::OwnApart,
        Self::ZkCrate,
        Self::Rslock,
        Self::PgTable,
        Self::PgShedLock,
        Self::PgAdvisory,
        Self::MyTable,
        Self::MyTableUnprepared,
        Self::MyShedLock,
        Self::MyGetLock,
        Self::Curator,
        Self::GoZk,
        Self::Kazoo,
        Self::Redisson,
        Self::RedissonFair,
        Self::Redsync,
        Self::RedisPy,
        Self::NpmRedlock,
        Self::Flock,
        Self::Filelock,
    ];

    /// Whom programs of their languages drive, on any store.
    pub(crate) const DRIVEN: [Self; 8] = [
        Self::Curator,
        Self::GoZk,
        Self::Kazoo,
        Self::Redisson,
        Self::RedissonFair,
        Self::Redsync,
        Self::RedisPy,
        Self::NpmRedlock,
    ];

    /// As a table names it.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Current => "fencelock, `Io::CurrentRuntime`",
            Self::Own => "fencelock, I/O thread",
            Self::OwnApart => "fencelock, I/O thread apart",
            Self::CurrentPlain => "fencelock, `Io::CurrentRuntime`, `layout=plain`",
            Self::CurrentRedisson => "fencelock, `Io::CurrentRuntime`, `layout=redisson`",
            Self::ZkFloor => "floor: the bare requests, without a list",
            Self::ZkFloorListed => "floor: the bare requests, with a list",
            Self::ZkCrate => "crate `zookeeper-client`",
            Self::Curator => "Curator",
            Self::GoZk => "go-zk",
            Self::Kazoo => "kazoo",
            Self::RedisFloor => "floor: the bare scripts",
            Self::PlainFloor => "floor of `layout=plain`: the bare commands",
            Self::RedissonFloor => "floor of `layout=redisson`: the bare scripts",
            Self::PgFloor | Self::MyFloor => "floor: the bare statements",
            Self::PgTable => "a table with a unique key, by hand",
            Self::PgShedLock | Self::MyShedLock => "ShedLock's statements, by hand",
            Self::PgAdvisory => "advisory locks, by hand",
            Self::MyTable => "the table of tutorials, by hand",
            Self::MyTableUnprepared => "the same, each statement prepared anew",
            Self::MyGetLock => "named locks (`GET_LOCK`), by hand",
            Self::Rslock => "crate `rslock`",
            Self::Redisson => "Redisson",
            Self::RedissonFair => "Redisson, fair lock",
            Self::Redsync => "redsync",
            Self::RedisPy => "redis-py",
            Self::NpmRedlock => "npm `redlock`",
            Self::Floor => "floor: the bare system calls of the layout",
            Self::Flock => "`flock` of an open file",
            Self::Filelock => "Python's `filelock`",
        }
    }

    /// Whether it is ours.
    pub(crate) const fn is_fencelock(self) -> bool {
        matches!(self, Self::Current | Self::Own | Self::OwnApart)
            || matches!(self, Self::CurrentPlain | Self::CurrentRedisson)
    }

    /// Whether it is somebody else's lock on a server.
    pub(crate) const fn is_peer(self) -> bool {
        matches!(self, Self::ZkCrate | Self::Rslock | Self::PgTable | Self::PgShedLock | Self::PgAdvisory)
            || matches!(self, Self::MyTable | Self::MyTableUnprepared | Self::MyShedLock | Self::MyGetLock)
            || self.is_driven()
    }

    /// Whether it can lock on `store`.
    pub(crate) const fn is_on(self, store: Store) -> bool {
        match self {
            Self::Current | Self::Own | Self::OwnApart => true,
            Self::ZkFloor | Self::ZkFloorListed => matches!(store, Store::ZooKeeper),
            Self::ZkCrate | Self::Curator | Self::GoZk | Self::Kazoo => matches!(store, Store::ZooKeeper),
            Self::RedisFloor | Self::PlainFloor | Self::RedissonFloor => matches!(store, Store::Redis),
            Self::PgFloor | Self::PgTable | Self::PgShedLock | Self::PgAdvisory => matches!(store, Store::Postgres),
            Self::MyFloor | Self::MyTable | Self::MyTableUnprepared => matches!(store, Store::Mysql),
            Self::MyShedLock | Self::MyGetLock => matches!(store, Store::Mysql),
            Self::Rslock | Self::CurrentPlain | Self::CurrentRedisson => matches!(store, Store::Redis),
            Self::Redisson | Self::RedissonFair | Self::RedisPy => matches!(store, Store::Redis),
            Self::Redsync => matches!(store, Store::Redis | Store::Redlock),
            Self::NpmRedlock => matches!(store, Store::Redlock),
            Self::Floor | Self::Flock | Self::Filelock => matches!(store, Store::File),
        }
    }

    /// Whether it can wait for a lock that somebody else of it holds.
    pub(crate) const fn waits(self) -> bool {
        !matches!(self, Self::PlainFloor | Self::RedissonFloor | Self::PgAdvisory | Self::PgShedLock)
            && !matches!(self, Self::MyTableUnprepared | Self::MyShedLock | Self::MyGetLock)
            && !matches!(self, Self::Floor)
    }

    /// Whether what it has in a store may outlive its process, with its session.
    pub(crate) const fn is_session(self) -> bool {
        self.is_fencelock() || !self.is_on(Store::File)
    }

    /// Whether a program of its language drives it, see `interop/README.md`.
    pub(crate) const fn is_driven(self) -> bool {
        matches!(self, Self::Curator | Self::GoZk | Self::Kazoo)
            || matches!(self, Self::Redisson | Self::RedissonFair | Self::Redsync | Self::RedisPy | Self::NpmRedlock)
    }

    /// Whether it asks again and again while it waits: no server comes to rest then.
    pub(crate) const fn is_restless(self) -> bool {
        matches!(self, Self::Rslock | Self::Redsync | Self::RedisPy | Self::CurrentPlain) || self.is_table()
    }

    /// Whether it is a table by hand: each try is a transaction, and a round with a thousand waiters takes minutes.
    pub(crate) const fn is_table(self) -> bool {
        matches!(self, Self::PgTable | Self::MyTable)
    }
}
