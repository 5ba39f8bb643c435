//! The known stores, and those that this build can open.

use std::sync::Arc;

use futures_core::future::BoxFuture;

use super::{Capability, Store, StoreUrl};
use crate::error::{Error, ErrorKind, Result};

/// Opens a store from its URL; takes the options it knows.
pub(crate) type OpenFn = fn(StoreUrl) -> BoxFuture<'static, Result<Arc<dyn Store>>>;

/// A store that fencelock knows.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StoreInfo {
    /// The URL scheme.
    pub scheme: &'static str,
    /// The cargo feature that compiles it in.
    pub feature: &'static str,
    /// The URL, by example.
    pub example: &'static str,
    /// Its options, without those of every store.
    pub options: &'static [&'static str],
    /// The default capability; `None` when the feature is off.
    pub capability: Option<fn() -> Capability>,
    /// The other layouts that its URL may ask for: the option for each, and its capability.
    #[allow(clippy::type_complexity, reason = "a name for the pair would say no more")]
    pub layouts: &'static [(&'static str, fn() -> Capability)],
    pub(crate) open: Option<OpenFn>,
}

/// Every store that fencelock knows, whether compiled in or not.
#[must_use]
pub fn stores() -> &'static [StoreInfo] {
    STORES
}

impl StoreInfo {
    /// A store that this build leaves out.
    #[allow(dead_code, reason = "with every feature on, nothing is left out")]
    const fn off(scheme: &'static str, feature: &'static str, example: &'static str) -> Self {
        Self { scheme, feature, example, options: &[], capability: None, layouts: &[], open: None }
    }
}

static STORES: &[StoreInfo] = &[
    #[cfg(feature = "file")]
    crate::stores::file::INFO,
    #[cfg(not(feature = "file"))]
    StoreInfo::off("file", "file", "file:///var/lib/fencelock"),
    #[cfg(feature = "memory")]
    crate::stores::memory::INFO,
    #[cfg(not(feature = "memory"))]
    StoreInfo::off("memory", "memory", "memory:test"),
    #[cfg(feature = "mysql")]
    crate::stores::mysql::INFO,
    #[cfg(feature = "mysql")]
    crate::stores::mysql::MARIADB_INFO,
    #[cfg(not(feature = "mysql"))]
    StoreInfo::off("mysql", "mysql", "mysql://user:password@host:3306/database"),
    #[cfg(not(feature = "mysql"))]
    StoreInfo::off("mariadb", "mysql", "mariadb://user:password@host:3306/database"),
    #[cfg(feature = "postgres")]
    crate::stores::postgres::INFO,
    #[cfg(feature = "postgres")]
    crate::stores::postgres::LONG_INFO,
    #[cfg(not(feature = "postgres"))]
    StoreInfo::off("postgres", "postgres", "postgres://user:password@host:5432/database"),
    #[cfg(not(feature = "postgres"))]
    StoreInfo::off("postgresql", "postgres", "postgresql://user:password@host1,host2/database"),
    #[cfg(feature = "redis")]
    crate::stores::redis::INFO,
    #[cfg(feature = "redis-tls")]
    crate::stores::redis::TLS_INFO,
    #[cfg(all(feature = "redis", not(feature = "redis-tls")))]
    StoreInfo { capability: None, layouts: &[], open: None, ..crate::stores::redis::TLS_INFO },
    #[cfg(feature = "redis")]
    crate::stores::redis::UNIX_INFO,
    #[cfg(feature = "redis")]
    crate::stores::redis::SENTINEL_INFO,
    #[cfg(feature = "redis")]
    crate::stores::redis::SENTINEL_TLS_INFO,
    #[cfg(feature = "redis")]
    crate::stores::redis::redlock::INFO,
    #[cfg(feature = "redis-tls")]
    crate::stores::redis::redlock::TLS_INFO,
    #[cfg(all(feature = "redis", not(feature = "redis-tls")))]
    StoreInfo { capability: None, open: None, ..crate::stores::redis::redlock::TLS_INFO },
    #[cfg(not(feature = "redis"))]
    StoreInfo::off("redis", "redis", "redis://host:6379/0"),
    #[cfg(not(feature = "redis"))]
    StoreInfo::off("rediss", "redis-tls", "rediss://host:6379/0"),
    #[cfg(not(feature = "redis"))]
    StoreInfo::off("redis+unix", "redis", "redis+unix:///run/redis/redis.sock?db=0"),
    #[cfg(not(feature = "redis"))]
    StoreInfo::off("redis+sentinel", "redis", "redis+sentinel://host1:26379,host2,host3/NAME"),
    #[cfg(not(feature = "redis"))]
    StoreInfo::off("rediss+sentinel", "redis-tls", "rediss+sentinel://host1:26379,host2,host3/NAME"),
    #[cfg(not(feature = "redis"))]
    StoreInfo::off("redlock", "redis", "redlock://host1:6379,host2,host3/0"),
    #[cfg(not(feature = "redis"))]
    StoreInfo::off("redlocks", "redis-tls", "redlocks://host1:6379,host2,host3/0"),
    #[cfg(feature = "zookeeper")]
    crate::stores::zookeeper::INFO,
    #[cfg(feature = "zookeeper-tls")]
    crate::stores::zookeeper::TLS_INFO,
    #[cfg(all(feature = "zookeeper", not(feature = "zookeeper-tls")))]
    StoreInfo { capability: None, layouts: &[], open: None, ..crate::stores::zookeeper::TLS_INFO },
    #[cfg(not(feature = "zookeeper"))]
    StoreInfo::off("zk", "zookeeper", "zk://host1:2181,host2,host3/locks"),
    #[cfg(not(feature = "zookeeper"))]
    StoreInfo::off("zks", "zookeeper-tls", "zks://host1:2281,host2:2281/locks"),
];

/// Schemes of planned stores, so that the error does not look like a typing mistake.
const PLANNED: &[&str] = &["etcd", "redis+cluster"];

fn unknown(scheme: &str) -> Error {
    let known: Vec<_> = STORES.iter().filter(|info| info.open.is_some()).map(|info| info.scheme).collect();
    if PLANNED.contains(&scheme) {
        return Error::new(ErrorKind::Unsupported, "store URL", "this store is planned, and not in this release")
            .with("scheme", scheme)
            .with("known", known.join(" "));
    }
    Error::new(ErrorKind::Config, "store URL", "unknown scheme").with("scheme", scheme).with("known", known.join(" "))
}

/// Opens the store that `url` names; the client's own options must have been taken out before.
///
/// # Errors
/// [`ErrorKind::Config`] for an unknown scheme (the known ones are listed), [`ErrorKind::Unsupported`] for one that is planned or whose
/// feature is off, and the errors of the store.
pub async fn open_url(url: StoreUrl) -> Result<Arc<dyn Store>> {
    let Some(info) = STORES.iter().find(|info| info.scheme == url.scheme()) else {
        return Err(unknown(url.scheme()));
    };
    let Some(open) = info.open else {
        return Err(Error::new(ErrorKind::Unsupported, "store URL", "this build has the store's feature switched off")
            .with("scheme", info.scheme)
            .with("feature", info.feature));
    };
    open(url).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_that_is_planned_and_one_that_is_mistyped_are_told_apart() {
        for scheme in PLANNED {
            assert!(STORES.iter().all(|info| info.scheme != *scheme), "{scheme} is there: it is not planned any more");
            let error = unknown(scheme);
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("not in this release"), "{error}");
        }
        let bogus = unknown("bogus");
        assert!(bogus.kind() == ErrorKind::Config && bogus.to_string().contains("known"), "{bogus}");
    }
}
