//! The stores, one room each with the same roles.

#[cfg(feature = "etcd")]
pub(crate) mod etcd;
#[cfg(all(feature = "file", target_os = "linux"))]
pub mod file;
#[cfg(feature = "memory")]
#[cfg_attr(
    not(feature = "test-util"),
    allow(dead_code, unreachable_pub, reason = "what tests script is public with that feature alone")
)]
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "mysql-tls")]
#[path = "mysql/tls.rs"]
mod mysql_tls;
#[cfg(all(feature = "mysql", not(feature = "mysql-tls")))]
#[path = "mysql/tls_off.rs"]
mod mysql_tls;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;
