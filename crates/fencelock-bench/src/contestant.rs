//! The contestants.

use clap::ValueEnum;
use fencelock_interop::Foreign;

use crate::what::Store;

/// A way to lock, or the floor below all of them, in the order of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contestant {
    /// The bare system calls of the layout of `file:`.
    Floor,
    /// The bare requests of a lock on ZooKeeper, on our client: create and delete; notified of a deletion, a waiter is next.
    ZkFloor,
    /// As [`Contestant::ZkFloor`], with a list concurrent with the create and another after the deletion.
    ZkFloorListed,
    /// The bare scripts of a lock on Redis, on our connection: a release grants the lock to the next waiter and notifies it.
    RedisFloor,
    /// The bare commands of `layout=plain` on our connection: `SET NX PX`, and a script that deletes its own key. No waiting.
    PlainFloor,
    /// The bare scripts of `layout=redisson` on our connection: the hash, its end, the message of a release. No waiting.
    RedissonFloor,
    /// The bare statements of a lock in a database, on one connection: insert and delete. A release before a queue grants the lock to
    /// the next waiter and wakes it.
    SqlFloor,
    /// The bare requests of a lock in etcd, by clientv3: put and delete. No waiting.
    EtcdFloor,
    /// fencelock with `Io::CurrentRuntime`.
    Current,
    /// As [`Contestant::Current`], in the layout of redis-py, redsync and `rslock`: no queue; a session hands the lock
    /// on within itself.
    CurrentPlain,
    /// As [`Contestant::Current`], in the layout of Redisson's `RLock`.
    CurrentRedisson,
    /// As [`Contestant::Current`], at the URL `FENCELOCK_ELSEWHERE`, as of a Cluster; only where it is named, and without a delay.
    Elsewhere,
    /// fencelock with its I/O thread, on any core: the default.
    Own,
    /// fencelock with its I/O thread on the second core.
    OwnApart,
    /// The crate `zookeeper-client`.
    ZkCrate,
    /// The crate `rslock`.
    Rslock,
    /// The table of tutorials, by hand, on a pool of 64 connections as services have it. A failed try is repeated after 50 ms.
    Table,
    /// The table in MariaDB from a driver that prepares each statement anew, as Go's does by default. No waiting.
    TableUnprepared,
    /// The statements of ShedLock's provider, by hand. No waiting.
    ShedLock,
    /// PostgreSQL's advisory locks, by hand. Nothing is written.
    Advisory,
    /// MariaDB's named locks, by hand. Nothing is written. No waiting.
    GetLock,
    /// Curator's `InterProcessMutex`.
    Curator,
    /// go-zk's `Lock`.
    GoZk,
    /// kazoo's `Lock`.
    Kazoo,
    /// Redisson's plain lock, for the client that receives the message of a release first.
    Redisson,
    /// Redisson's fair lock.
    RedissonFair,
    /// redsync's mutex, with its defaults: a retry after 50 to 250 ms.
    Redsync,
    /// redis-py's `Lock`, with its defaults: a retry after 100 ms.
    RedisPy,
    /// npm's `redlock`, with its defaults.
    NpmRedlock,
    /// clientv3's `Mutex`. Contenders for one name have a session each.
    Clientv3,
    /// `flock(2)` of a file that stays open.
    Flock,
    /// Python's `filelock`, with its defaults.
    Filelock,
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

    /// The name in a table.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Floor => "floor: the bare system calls of the layout",
            Self::ZkFloor => "floor: the bare requests, without a list",
            Self::ZkFloorListed => "floor: the bare requests, with a list",
            Self::RedisFloor => "floor: the bare scripts",
            Self::PlainFloor => "floor of `layout=plain`: the bare commands",
            Self::RedissonFloor => "floor of `layout=redisson`: the bare scripts",
            Self::SqlFloor => "floor: the bare statements",
            Self::EtcdFloor => "floor: the bare requests",
            Self::Current => "fencelock, `Io::CurrentRuntime`",
            Self::CurrentPlain => "fencelock, `Io::CurrentRuntime`, `layout=plain`",
            Self::CurrentRedisson => "fencelock, `Io::CurrentRuntime`, `layout=redisson`",
            Self::Elsewhere => "fencelock, `Io::CurrentRuntime`, elsewhere",
            Self::Own => "fencelock, I/O thread",
            Self::OwnApart => "fencelock, I/O thread apart",
            Self::ZkCrate => "crate `zookeeper-client`",
            Self::Rslock => "crate `rslock`",
            Self::Table => "a table with a unique key, by hand",
            Self::TableUnprepared => "the same, each statement prepared anew",
            Self::ShedLock => "ShedLock's statements, by hand",
            Self::Advisory => "advisory locks, by hand",
            Self::GetLock => "named locks (`GET_LOCK`), by hand",
            Self::Curator => "Curator",
            Self::GoZk => "go-zk",
            Self::Kazoo => "kazoo",
            Self::Redisson => "Redisson",
            Self::RedissonFair => "Redisson, fair lock",
            Self::Redsync => "redsync",
            Self::RedisPy => "redis-py",
            Self::NpmRedlock => "npm `redlock`",
            Self::Clientv3 => "clientv3's `Mutex`",
            Self::Flock => "`flock` of an open file",
            Self::Filelock => "Python's `filelock`",
        }
    }

    /// The name in a goal, without the requests that a table names, unless the store has two floors.
    pub(crate) fn short(self) -> &'static str {
        let name = self.title().trim_start_matches("fencelock, ").trim_end_matches(", by hand");
        name.split_once(": ").filter(|(_, of)| !of.contains("list")).map_or(name, |(name, _)| name)
    }

    /// Whether it is ours.
    pub(crate) const fn is_fencelock(self) -> bool {
        matches!(self, Self::Current | Self::CurrentPlain | Self::CurrentRedisson | Self::Elsewhere)
            || matches!(self, Self::Own | Self::OwnApart)
    }

    /// Whether it is another project's lock on a server.
    pub(crate) const fn is_peer(self) -> bool {
        matches!(self, Self::ZkCrate | Self::Rslock | Self::Table | Self::TableUnprepared)
            || matches!(self, Self::ShedLock | Self::Advisory | Self::GetLock)
            || self.is_driven()
    }

    /// Whether it can lock on `store`.
    pub(crate) const fn is_on(self, store: Store) -> bool {
        match self {
            Self::Current | Self::Own | Self::OwnApart => true,
            Self::ZkFloor | Self::ZkFloorListed | Self::ZkCrate | Self::Curator | Self::GoZk | Self::Kazoo => {
                matches!(store, Store::ZooKeeper)
            }
            Self::SqlFloor | Self::Table | Self::ShedLock => store.is_sql(),
            Self::Advisory => matches!(store, Store::Postgres),
            Self::TableUnprepared | Self::GetLock => matches!(store, Store::Mysql),
            Self::Redsync => matches!(store, Store::Redis | Store::Redlock),
            Self::NpmRedlock => matches!(store, Store::Redlock),
            Self::EtcdFloor | Self::Clientv3 => matches!(store, Store::Etcd),
            Self::Floor | Self::Flock | Self::Filelock => matches!(store, Store::File),
            _ => matches!(store, Store::Redis),
        }
    }

    /// Whether it can wait for a lock that another task of it holds.
    pub(crate) const fn waits(self) -> bool {
        !matches!(self, Self::PlainFloor | Self::RedissonFloor | Self::Advisory | Self::ShedLock)
            && !matches!(self, Self::TableUnprepared | Self::GetLock | Self::Floor | Self::EtcdFloor)
    }

    /// Whether its locks may outlive its process, with its session.
    pub(crate) const fn is_session(self) -> bool {
        self.is_fencelock() || !self.is_on(Store::File)
    }

    /// The program of its language that drives it, and that program's name for its lock, see `interop/README.md`.
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

    /// Whether a program of its language drives it.
    pub(crate) const fn is_driven(self) -> bool {
        self.driver().is_some()
    }

    /// Whether a waiter polls, so that the server does not come to rest.
    pub(crate) const fn is_restless(self) -> bool {
        matches!(self, Self::Rslock | Self::Redsync | Self::RedisPy | Self::CurrentPlain | Self::Table)
            || matches!(self, Self::Elsewhere)
    }
}
