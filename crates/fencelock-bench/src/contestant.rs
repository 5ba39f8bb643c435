//! The contestants.

use clap::ValueEnum;
use fencelock_interop::Foreign;

use crate::what::Store::{self, Etcd, File, Memory, Mysql, Postgres, Redis, Redlock, ZooKeeper};

/// A contestant, its name in a table, and the stores on which it can lock.
macro_rules! contestants {
    ($($(#[$about:meta])* $name:ident = $title:literal on $stores:expr;)*) => {
        /// A way to lock, or the floor below all of them, in the order of the tables.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
        pub(crate) enum Contestant { $($(#[$about])* $name,)* }

        impl Contestant {
            /// The name in a table.
            pub(crate) const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            /// Whether the contestant can lock on `store`.
            pub(crate) fn is_on(self, store: Store) -> bool {
                match self { $(Self::$name => $stores.contains(&store),)* }
            }
        }
    };
}

const EVERY: [Store; 8] = [File, Memory, ZooKeeper, Redis, Postgres, Mysql, Etcd, Redlock];

contestants! {
    /// The bare system calls of the layout of `file:`.
    Floor = "floor: the bare system calls of the layout" on [File];
    /// The bare requests of a lock on ZooKeeper, on our client: create and delete; notified of a deletion, a waiter is next.
    ZkFloor = "floor: the bare requests, without a list" on [ZooKeeper];
    /// As [`Contestant::ZkFloor`], with a list concurrent with the create and another after the deletion.
    ZkFloorListed = "floor: the bare requests, with a list" on [ZooKeeper];
    /// The bare scripts of a lock on Redis, on our connection: a release grants the lock to the next waiter and notifies it.
    RedisFloor = "floor: the bare scripts" on [Redis];
    /// The bare commands of `layout=plain` on our connection: `SET NX PX`, and a script that deletes its own key. No waiting.
    PlainFloor = "floor of `layout=plain`: the bare commands" on [Redis];
    /// The bare scripts of `layout=redisson` on our connection: the hash, its end, the message of a release. No waiting.
    RedissonFloor = "floor of `layout=redisson`: the bare scripts" on [Redis];
    /// The bare statements of a lock in a database, on one connection: insert and delete. A release before a queue grants the lock to
    /// the next waiter and wakes it.
    SqlFloor = "floor: the bare statements" on [Postgres, Mysql];
    /// The bare requests of a lock in etcd, by clientv3: put and delete. No waiting.
    EtcdFloor = "floor: the bare requests" on [Etcd];
    /// fencelock with `Io::CurrentRuntime`.
    Current = "fencelock, `Io::CurrentRuntime`" on EVERY;
    /// As [`Contestant::Current`], in the layout of redis-py, redsync and `rslock`: no queue; a session hands the lock
    /// on within itself.
    CurrentPlain = "fencelock, `Io::CurrentRuntime`, `layout=plain`" on [Redis];
    /// As [`Contestant::Current`], in the layout of Redisson's `RLock`.
    CurrentRedisson = "fencelock, `Io::CurrentRuntime`, `layout=redisson`" on [Redis];
    /// As [`Contestant::Current`], at the URL `FENCELOCK_ELSEWHERE`, as of a Cluster; only where it is named, and without a delay.
    Elsewhere = "fencelock, `Io::CurrentRuntime`, elsewhere" on [Redis];
    /// fencelock with its I/O thread, on any core: the default.
    Own = "fencelock, I/O thread" on EVERY;
    /// fencelock with its I/O thread on the second core.
    OwnApart = "fencelock, I/O thread apart" on EVERY;
    /// The crate `zookeeper-client`.
    ZkCrate = "crate `zookeeper-client`" on [ZooKeeper];
    /// The crate `rslock`.
    Rslock = "crate `rslock`" on [Redis];
    /// The table of tutorials, by hand, on a pool of 64 connections as services have it. A failed try is repeated after 50 ms.
    Table = "a table with a unique key, by hand" on [Postgres, Mysql];
    /// The table in MariaDB from a driver that prepares each statement anew, as Go's does by default. No waiting.
    TableUnprepared = "the same, each statement prepared anew" on [Mysql];
    /// The statements of ShedLock's provider, by hand. No waiting.
    ShedLock = "ShedLock's statements, by hand" on [Postgres, Mysql];
    /// PostgreSQL's advisory locks, by hand. Nothing is written.
    Advisory = "advisory locks, by hand" on [Postgres];
    /// MariaDB's named locks, by hand. Nothing is written. No waiting.
    GetLock = "named locks (`GET_LOCK`), by hand" on [Mysql];
    /// Curator's `InterProcessMutex`.
    Curator = "Curator" on [ZooKeeper];
    /// go-zk's `Lock`.
    GoZk = "go-zk" on [ZooKeeper];
    /// kazoo's `Lock`.
    Kazoo = "kazoo" on [ZooKeeper];
    /// Redisson's plain lock, for the client that receives the message of a release first.
    Redisson = "Redisson" on [Redis];
    /// Redisson's fair lock.
    RedissonFair = "Redisson, fair lock" on [Redis];
    /// redsync's mutex, with its defaults: a retry after 50 to 250 ms.
    Redsync = "redsync" on [Redis, Redlock];
    /// redis-py's `Lock`, with its defaults: a retry after 100 ms.
    RedisPy = "redis-py" on [Redis];
    /// npm's `redlock`, with its defaults.
    NpmRedlock = "npm `redlock`" on [Redlock];
    /// clientv3's `Mutex`. Contenders for one name have a session each.
    Clientv3 = "clientv3's `Mutex`" on [Etcd];
    /// `flock(2)` of a file that stays open.
    Flock = "`flock` of an open file" on [File];
    /// Python's `filelock`, with its defaults.
    Filelock = "Python's `filelock`" on [File];
}

impl Contestant {
    /// The floor of that store with which contestants are compared.
    pub(crate) const fn floor(store: Store) -> Self {
        match store {
            Store::File | Store::Memory => Self::Floor,
            Store::ZooKeeper => Self::ZkFloorListed,
            Store::Redis | Store::Redlock => Self::RedisFloor,
            Store::Postgres | Store::Mysql => Self::SqlFloor,
            Store::Etcd => Self::EtcdFloor,
        }
    }

    /// The name in a goal, without the requests that a table names, unless the store has two floors.
    pub(crate) fn short(self) -> &'static str {
        let name = self.title().trim_start_matches("fencelock, ").trim_end_matches(", by hand");
        name.split_once(": ").filter(|(_, of)| !of.contains("list")).map_or(name, |(name, _)| name)
    }

    /// Whether the contestant is fencelock.
    pub(crate) const fn is_fencelock(self) -> bool {
        matches!(self, Self::Current | Self::CurrentPlain | Self::CurrentRedisson | Self::Elsewhere)
            || matches!(self, Self::Own | Self::OwnApart)
    }

    /// Whether the contestant is another project's lock on a server.
    pub(crate) const fn is_peer(self) -> bool {
        matches!(self, Self::ZkCrate | Self::Rslock | Self::Table | Self::TableUnprepared)
            || matches!(self, Self::ShedLock | Self::Advisory | Self::GetLock)
            || self.is_driven()
    }

    /// Whether a task can wait for a lock that another task of the same contestant holds.
    pub(crate) const fn waits(self) -> bool {
        !matches!(self, Self::PlainFloor | Self::RedissonFloor | Self::Advisory | Self::ShedLock)
            && !matches!(self, Self::TableUnprepared | Self::GetLock | Self::Floor | Self::EtcdFloor)
    }

    /// Whether locks live in a session, which may outlive its process.
    pub(crate) fn is_session(self) -> bool {
        self.is_fencelock() || !self.is_on(Store::File)
    }

    /// The program that drives the contestant in its language, and the program's name for the lock, see `interop/README.md`.
    pub(crate) const fn driver(self) -> Option<(Foreign, &'static str)> {
        match self {
            Self::Curator => Some((Foreign::Curator59, "InterProcessMutex")),
            Self::GoZk => Some((Foreign::Go, "Lock")),
            Self::Kazoo => Some((Foreign::Kazoo, "Lock")),
            Self::Redisson => Some((Foreign::Redisson, "Lock")),
            Self::RedissonFair => Some((Foreign::Redisson, "FairLock")),
            Self::Redsync => Some((Foreign::Redsync, "Mutex")),
            Self::RedisPy => Some((Foreign::RedisPy, "Lock")),
            Self::NpmRedlock => Some((Foreign::Node, "redlock")),
            Self::EtcdFloor => Some((Foreign::Etcd, "floor")),
            Self::Clientv3 => Some((Foreign::Etcd, "Mutex")),
            _ => None,
        }
    }

    /// Whether a program in another language drives the contestant.
    pub(crate) const fn is_driven(self) -> bool {
        self.driver().is_some()
    }

    /// Whether a waiter polls, so that the server does not come to rest.
    pub(crate) const fn is_restless(self) -> bool {
        matches!(self, Self::Rslock | Self::Redsync | Self::RedisPy | Self::CurrentPlain | Self::Table)
            || matches!(self, Self::Elsewhere)
    }
}
