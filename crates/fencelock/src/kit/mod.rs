//! Parts that several stores need, and that say nothing about any. A part without dependencies of its own is compiled in every build.

#![cfg_attr(
    not(all(feature = "file", feature = "redis", feature = "zookeeper", feature = "postgres", feature = "mysql")),
    allow(dead_code, unused_imports, reason = "a build with some stores needs a part of it")
)]

pub(crate) mod address;
#[cfg(any(feature = "file", feature = "zookeeper"))]
pub(crate) mod bell;
pub(crate) mod bounds;
#[cfg(any(feature = "file", feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) mod bucket;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod database;
#[cfg(any(feature = "etcd", feature = "redis", feature = "postgres", feature = "zookeeper"))]
pub(crate) mod dial;
pub(crate) mod fault;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod lock_table;
#[cfg(any(feature = "file", feature = "memory", all(test, feature = "redis")))]
pub(crate) mod number;
pub(crate) mod own_places;
pub(crate) mod pause;
pub(crate) mod reconnect;
#[cfg(any(
    feature = "etcd",
    feature = "file",
    feature = "redis",
    feature = "postgres",
    feature = "mysql",
    feature = "zookeeper"
))]
pub(crate) mod record;
pub(crate) mod served;
pub(crate) mod server;
pub(crate) mod session_state;
pub(crate) mod share_call;
#[cfg(any(feature = "etcd-tls", feature = "redis-tls", feature = "postgres-tls", feature = "zookeeper-tls"))]
pub(crate) mod tls;
#[cfg(not(any(feature = "etcd-tls", feature = "redis-tls", feature = "postgres-tls", feature = "zookeeper-tls")))]
#[path = "tls_off.rs"]
pub(crate) mod tls;
pub(crate) mod try_again;
#[cfg(feature = "file")]
pub(crate) mod waking_lock;
