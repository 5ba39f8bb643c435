//! What stores are made of: parts that more than one store needs, and that say nothing about any.

#[cfg(feature = "redis")]
pub(crate) mod address;
#[cfg(any(feature = "file", feature = "zookeeper"))]
#[cfg_attr(
    not(all(feature = "file", feature = "zookeeper")),
    allow(dead_code, reason = "a store may need a part of it")
)]
pub(crate) mod bell;
#[cfg(any(feature = "file", feature = "redis"))]
pub(crate) mod bucket;
#[cfg(any(feature = "file", feature = "redis", feature = "zookeeper"))]
pub(crate) mod fault;
#[cfg(any(feature = "file", feature = "memory", all(test, feature = "redis")))]
pub(crate) mod number;
#[cfg_attr(
    not(all(feature = "redis", feature = "zookeeper")),
    allow(dead_code, reason = "in a build with some stores only, nobody may ask")
)]
pub(crate) mod own_places;
pub(crate) mod pause;
#[cfg(feature = "redis")]
pub(crate) mod reconnect;
#[cfg(any(feature = "file", feature = "redis", feature = "zookeeper"))]
pub(crate) mod record;
#[cfg(any(feature = "redis", feature = "zookeeper"))]
#[cfg_attr(not(feature = "zookeeper"), allow(dead_code, reason = "on Redis, no call is closed to others"))]
pub(crate) mod share_call;
#[cfg(feature = "redis-tls")]
pub(crate) mod tls;
#[cfg(all(feature = "redis", not(feature = "redis-tls")))]
#[path = "tls_off.rs"]
pub(crate) mod tls;
#[cfg(any(feature = "file", feature = "memory"))]
#[cfg_attr(not(all(feature = "file", feature = "memory")), allow(dead_code, reason = "a store may need a part of it"))]
pub(crate) mod waking_lock;
