//! What stores are made of: parts that more than one store needs, and that say nothing about any.

#![cfg_attr(
    not(all(feature = "file", feature = "redis", feature = "zookeeper", feature = "postgres", feature = "mysql")),
    allow(dead_code, unused_imports, reason = "a build with some stores needs a part of it")
)]

#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) mod address;
#[cfg(any(feature = "file", feature = "zookeeper"))]
pub(crate) mod bell;
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) mod bounds;
#[cfg(any(feature = "file", feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) mod bucket;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod database;
#[cfg(any(feature = "redis", feature = "postgres"))]
pub(crate) mod dial;
#[cfg(any(feature = "file", feature = "redis", feature = "postgres", feature = "mysql", feature = "zookeeper"))]
pub(crate) mod fault;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod lock_table;
#[cfg(any(feature = "file", feature = "memory", all(test, feature = "redis")))]
pub(crate) mod number;
pub(crate) mod own_places;
pub(crate) mod pause;
#[cfg(any(feature = "memory", feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) mod reconnect;
#[cfg(any(feature = "file", feature = "redis", feature = "postgres", feature = "mysql", feature = "zookeeper"))]
pub(crate) mod record;
#[cfg(any(feature = "memory", feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) mod served;
#[cfg(any(feature = "memory", feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) mod server;
#[cfg(any(feature = "memory", feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) mod session_state;
#[cfg(any(feature = "memory", feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) mod share_call;
#[cfg(any(feature = "redis-tls", feature = "postgres-tls", feature = "zookeeper-tls"))]
pub(crate) mod tls;
#[cfg(not(any(feature = "redis-tls", feature = "postgres-tls", feature = "zookeeper-tls")))]
#[path = "tls_off.rs"]
pub(crate) mod tls;
#[cfg(any(feature = "redis", feature = "postgres", feature = "mysql"))]
pub(crate) mod try_again;
#[cfg(feature = "file")]
pub(crate) mod waking_lock;
