//! Distributed locks for Rust programs: mutexes, read-write locks and semaphores over processes and machines.
//!
//! *Only one at a time*, over all processes that use the same store and name: stock that must not be oversold, a report that must run once.
//! The store is one that you run already: Redis, PostgreSQL, MariaDB, ZooKeeper, etcd or a directory. A URL chooses it. Waiters are served
//! first come, first served, a holder is notified before its lock can be granted to another client, and each grant has a fencing token.
//!
//! - **[The guide](https://github.com/fencelock/fencelock/blob/main/docs/guide/README.md)**: ten short pages, for readers who have never locked anything across machines.
//! - **[The library](https://github.com/fencelock/fencelock/blob/main/docs/library.md)**: recipes as whole programs, several stores, outages, metrics, threads.
//! - **[The stores](https://github.com/fencelock/fencelock/blob/main/docs/stores.md)**: the promises of each, its options and limits, and the clients of other languages that take the same locks.
//!
//! # A first lock
//!
//! ```
//! use std::time::Duration;
//!
//! use fencelock::Client;
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> fencelock::Result<()> {
//!     let client = Client::connect("memory:").await?; // for tests; else redis://…, postgres://…, file:///…
//!     let lock = client.mutex("deploy")?.purpose("release 1.4").timeout(Duration::from_secs(30));
//!
//!     let guard = lock.acquire().await?;
//!     deploy().await;
//!     guard.check()?; // still held? After anything that may have taken long
//!     guard.release().await?; // a dropped guard releases its lock in the background
//!     client.close().await
//! }
//!
//! async fn deploy() {}
//! ```
//!
//! [`Mutex`], [`RwLock`] and [`Semaphore`] have the same options and the same guard. [`blocking`] has all of it for code that is not async.
//! `try_acquire` never waits, `acquire_within` has a limit of its own, and every future can be dropped at any point: the client removes its
//! traces from the store.
//!
//! # The promise of a guard
//!
//! While [`Guard::remaining`] is not zero, no other client that the guard excludes can hold the lock. A background task renews the session
//! of the client; when renewals fail, the time runs down and [`Guard::lost`] completes *before* another client can be granted.
//!
//! A guard does not stop a paused process. A process that was swapped out, stopped or starved cannot notice the loss until it looks, and a
//! request on its way cannot be called back. So pass [`Guard::token`] to the resource, and let the resource refuse every token lower than
//! the highest that it has accepted; [`fencing`] has such checks for files and more.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
//! # let client = fencelock::Client::connect("memory:").await?;
//! let stock = client.mutex("stock")?.require_token(); // no grant where the store gives no tokens
//! let guard = stock.acquire().await?;
//! // UPDATE stock SET left_over = left_over - 1, fence = $1 WHERE item = 42 AND fence <= $1
//! let token: i64 = guard.require_token()?.to_i64(); // if no row changed, a later holder has written already
//! # assert!(token > 0);
//! guard.release().await
//! # }
//! ```
//!
//! # Errors and outages
//!
//! [`Error`] is the only type of errors: its [kind](Error::kind), whether the request [can have taken effect](Error::outcome), and whether
//! a [retry](Error::is_retryable) may help. [`Error::is_contention`] says that other clients hold the lock, and [`Error::contention`] names
//! them; [`Error::is_outage`] says that the store is unreachable, for which there are a [`Breaker`] and, for each lock, [`OnOutage`]. A
//! body under [`run`](Mutex::run) is dropped at its next await when the lock is lost.
//!
//! # Stores and features
//!
//! | URL | cargo feature | for |
//! |---|---|---|
//! | `zk://host1:2181,host2,host3/locks` | `zookeeper`; `zks:` with `zookeeper-tls` | many hosts; the same locks as Curator, go-zk and kazoo (`?layout=kazoo`) |
//! | `redis://:password@host:6379/0`, `redis+unix:///run/redis.sock`, `redis+sentinel://host1,host2,host3/NAME`, `redis+cluster://host1,host2,host3` | `redis`; `rediss:` with `redis-tls` | many hosts; Redis 6, Valkey; acquires in one round trip; as safe as the server's memory; the same locks as redis-py, redsync and npm redlock (`?layout=plain`), and as Redisson (`?layout=redisson`) |
//! | `redlock://host1,host2,host3` | `redis`; `redlocks:` with `redis-tls` | many hosts; a quorum of several Redis masters; the same locks as redsync, npm redlock and rslock |
//! | `etcd://host1:2379,host2,host3/locks` | `etcd`; `etcds:` with `etcd-tls`; not on by default | many hosts; the same locks as clientv3's Mutex and `etcdctl lock` |
//! | `postgres://user:password@host/database` | `postgres`, TLS with `postgres-tls`; not on by default | many hosts; acquires in one round trip; the lock can be part of a transaction |
//! | `mysql://user:password@host/database`, `mariadb:` | `mysql`, TLS with `mysql-tls`; not on by default | many hosts; acquires in one round trip; MariaDB 10.6, MySQL 8 |
//! | `file:///var/lib/locks` | `file` | all processes of one host |
//! | `memory:` | `memory` | tests; `test-util` adds a virtual clock and scripted faults |
//!
//! The feature `jobs`, not on by default, brings jobs that run once in each slot in the whole fleet: the module `jobs`.
//!
//! All stores but `postgres`, `mysql` and `etcd` are on by default; with `default-features = false` you name the features that you need.
//! [`Capability`](capability::Capability) has the promises of a store ([`Client::capability`]), and [`capability::stores`] lists the stores
//! of this build with their options.
//!
//! Every URL takes `ttl_ms`, `renew_interval_ms`, `margin_ms`, `request_deadline_ms` and `owner`, as [`ClientBuilder`] does, whose values win.
//! The ttl, 10 s by default, is how long a dead client can block other clients, and how long an outage a living client survives; see
//! [`Timing`].
//!
//! # In tests
//!
//! `memory:` needs no server. With the cargo feature `test-util`, `memory::MemoryStore` has a clock that the test turns, partitions, lost
//! answers and requests that arrive late; [`ClientBuilder::connect_store`] takes it.
//!
//! # A store of your own
//!
//! The cargo feature `unstable-store` makes the modules `store` and `queue` public: the contract between the engine and a
//! store, and the rule of admission. **They may change in every release**, also in one that breaks nothing else, until 1.0.
//! Everything outside of these two modules follows semantic versioning, with the feature or without.

#![cfg_attr(docsrs, feature(doc_cfg))]

/// The examples of both READMEs are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the documents, too.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct Library;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/1-a-first-lock.md")]
#[doc = include_str!("../../../docs/guide/5-fencing.md")]
#[doc = include_str!("../../../docs/guide/6-errors.md")]
#[doc = include_str!("../../../docs/guide/7-several-locks.md")]
#[doc = include_str!("../../../docs/guide/8-jobs-and-elections.md")]
#[doc = include_str!("../../../docs/guide/9-tests.md")]
struct Guide;

mod ask;
pub mod blocking;
mod breaker;
mod client;
mod engine;
mod error;
#[cfg(all(any(test, fencelock_fuzzing), feature = "file", feature = "redis"))]
#[path = "../../../fuzz/readers.rs"]
pub mod fuzz;
pub mod fencing {
    //! Checkers for the resource of a lock: each refuses a holder that is too late.
    //!
    //! A guard says whether the lock is held. But a guard cannot call back a request that is on its way, nor stop a process that is paused
    //! between its check and its write. The resource can: its checker keeps the newest fencing token, and refuses older ones. A new holder
    //! *claims* the resource before it reads, so that no older holder writes in the gap before the new holder's first write.
    //!
    //! | resource | checker |
    //! |---|---|
    //! | a file | `FencedFile` (feature `file`) |
    //! | a key of Redis | the script [`REDIS_FENCE`] |
    //! | the data of a service over HTTP | the layers `FenceLayer` of the service and `StampLayer` of its clients (feature `http`) |
    //! | a node of ZooKeeper, with the lock on the same servers | a check of the lock's own node in the write: `Client::child_created_by` of the crate `fencelock-zookeeper` |
    //! | a table of PostgreSQL, MariaDB or MySQL, the lock anywhere | a column that keeps the token: `UPDATE … SET …, fence = $1 WHERE … AND fence <= $1`, and no row is a refusal; or `fence` |
    //! | the same, with the lock in that database | `hold`, a part of the transaction: [`locks-in-postgresql.md`], [`locks-in-mysql.md`] |
    //!
    //! Without a token a checker refuses: some layouts of Redis and of lock tables have none, and a degraded guard has none
    //! ([`OnOutage`](crate::OnOutage)). A lock with [`require_token`](crate::Mutex::require_token) is not granted then.
    //!
    //! [`locks-in-postgresql.md`]: https://github.com/fencelock/fencelock/blob/main/docs/locks-in-postgresql.md
    //! [`locks-in-mysql.md`]: https://github.com/fencelock/fencelock/blob/main/docs/locks-in-mysql.md

    #[cfg(feature = "file")]
    mod file;
    #[cfg(feature = "http")]
    mod http;
    mod key;
    #[cfg(any(feature = "file", feature = "http"))]
    #[cfg_attr(not(feature = "file"), allow(dead_code, reason = "a service answers in its own way"))]
    mod token;

    #[cfg(feature = "file")]
    pub use self::file::FencedFile;
    #[cfg(feature = "http")]
    pub use self::http::{Fence, FenceLayer, Stamp, StampLayer, TOKEN_HEADER};
    pub use self::key::REDIS_FENCE;
}
#[cfg(feature = "jobs")]
#[path = "recipes/jobs/mod.rs"]
pub mod jobs;
mod kit;
#[cfg(feature = "metrics")]
mod metrics;
mod name;
mod outage;
mod pattern;
mod primitives;
#[cfg(feature = "unstable-store")]
pub mod queue;
#[cfg(not(feature = "unstable-store"))]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "part of it is there for stores outside of this crate")]
mod queue;
pub mod recipes;
#[cfg(feature = "unstable-store")]
pub mod store;
#[cfg(not(feature = "unstable-store"))]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "part of it is there for stores outside of this crate")]
mod store;
mod stores;
mod sync;
pub mod time;
mod token;

pub mod capability {
    //! The promises of a store, and the stores of this build.
    //!
    //! [`Client::capability`](crate::Client::capability) returns it for the store in use, [`stores`] lists all stores with their options.

    #[doc(hidden)]
    pub use crate::ask::ask_servers;
    pub use crate::store::{
        Capability, Liveness, Order, Pace, Peer, Presumption, Residue, StoreInfo, StoreUrl, Tokens, Waiters, stores,
    };
}
pub mod inspect {
    //! Views of queues, breaks and notes: holders, waiters, and times.
    //!
    //! [`Client::queue`](crate::Client::queue), [`Client::contention`](crate::Client::contention), [`Client::names`](crate::Client::names),
    //! [`Client::breaks`](crate::Client::breaks) and [`Client::note`](crate::Client::note) return them, and so does an error of an acquire
    //! ([`Error::contention`](crate::Error::contention)).

    pub use crate::queue::Claim;
    pub use crate::store::{
        Ahead, Break, Contender, Contention, Expiry, Foreign, ForeignLock, Grant, Note, NoteRead, Owner, Page, PlaceId,
        ProcessState, Queue, RequestId, Waits,
    };
}
pub mod observe {
    //! Observers: callbacks for every event of a client's locks ([`ClientBuilder::observer`](crate::ClientBuilder::observer)).

    pub use crate::engine::observe::{Event, Observer};
    #[cfg(feature = "metrics")]
    pub use crate::metrics::Metrics;
}

pub use breaker::{Breaker, BreakerState};
pub use client::{Client, ClientBuilder, Health};
pub use engine::hold::GuardState;
pub use engine::io::Io;
pub use engine::options::{Retry, Timing};
pub use engine::pending::flush;
pub use error::{Error, ErrorKind, Outcome, Result};
pub use name::Name;
pub use outage::OnOutage;
pub use pattern::NamePattern;
pub use primitives::{AnyGuard, Guard, GuardError, Mutex, PermitGuard, ReadGuard, RwLock, Semaphore, WriteGuard, kind};
pub use store::{AnyStore, Loss};
#[cfg(all(feature = "file", target_os = "linux"))]
pub use stores::file;
#[cfg(feature = "test-util")]
pub use stores::memory;
#[cfg(feature = "mysql")]
pub use stores::mysql;
#[cfg(feature = "postgres")]
pub use stores::postgres;
pub use token::FencingToken;
