//! The known stores, and the stores that this build can open.

use std::sync::Arc;

use futures_core::future::BoxFuture;

use super::{Capability, Store, StoreUrl};
use crate::ask::AskFn;
use crate::error::{Error, ErrorKind, Result};

/// Opens a store from its URL; takes the options it knows.
pub(crate) type OpenFn = fn(StoreUrl) -> BoxFuture<'static, Result<Arc<dyn Store>>>;

/// A store that fencelock knows.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StoreInfo {
    /// The URL scheme.
    pub scheme: &'static str,
    /// The cargo feature of the store.
    pub feature: &'static str,
    /// The URL, by example.
    pub example: &'static str,
    /// The options of this store alone.
    pub options: &'static [&'static str],
    /// The default capability; `None` when the feature is off.
    pub capability: Option<fn() -> Capability>,
    /// The other layouts of the URL, each with its option and its capability.
    #[allow(clippy::type_complexity, reason = "a name for the pair would say no more")]
    pub layouts: &'static [(&'static str, fn() -> Capability)],
    pub(crate) open: Option<OpenFn>,
    /// Asks each of its servers, on a connection of its own; `None` for a store without servers.
    pub(crate) ask: Option<AskFn>,
}

impl StoreInfo {
    /// A store that this build leaves out. [`STORES`] has scheme, feature and example of every store.
    pub(crate) const OFF: Self = Self {
        scheme: "",
        feature: "",
        example: "",
        options: &[],
        capability: None,
        layouts: &[],
        open: None,
        ask: None,
    };
}

/// Every store that fencelock knows, whether compiled in or not.
#[must_use]
pub fn stores() -> &'static [StoreInfo] {
    STORES
}

/// A row for each scheme, below the condition of its room: the feature of the scheme, the words of the room, and the URL by example.
macro_rules! stores {
    ($($room:meta { $($scheme:literal $feature:literal $info:expr, $example:literal;)* })*) => {
        static STORES: &[StoreInfo] = &[$($({
            #[cfg($room)]
            let info = if cfg!(feature = $feature) { $info } else { StoreInfo { options: $info.options, ..StoreInfo::OFF } };
            #[cfg(not($room))]
            let info = StoreInfo::OFF;
            StoreInfo { scheme: $scheme, feature: $feature, example: $example, ..info }
        },)*)*];
    };
}

stores! {
    feature = "etcd" {
        "etcd" "etcd" crate::stores::etcd::INFO, "etcd://host1:2379,host2,host3/locks";
        "etcds" "etcd-tls" crate::stores::etcd::TLS_INFO, "etcds://user:password@host1:2379,host2,host3/locks";
    }
    all(feature = "file", target_os = "linux") {
        "file" "file" crate::stores::file::INFO, "file:///var/lib/fencelock";
    }
    feature = "memory" {
        "memory" "memory" crate::stores::memory::INFO, "memory:test";
    }
    feature = "mysql" {
        "mysql" "mysql" crate::stores::mysql::INFO, "mysql://user:password@host:3306/database";
        "mariadb" "mysql" crate::stores::mysql::INFO, "mariadb://user:password@host:3306/database";
    }
    feature = "postgres" {
        "postgres" "postgres" crate::stores::postgres::INFO, "postgres://user:password@host:5432/database";
        "postgresql" "postgres" crate::stores::postgres::INFO, "postgresql://user:password@host1,host2/database";
    }
    feature = "redis" {
        "redis" "redis" crate::stores::redis::INFO, "redis://host:6379/0";
        "rediss" "redis-tls" crate::stores::redis::TLS_INFO, "rediss://host:6379/0";
        "redis+unix" "redis" crate::stores::redis::UNIX_INFO, "redis+unix:///run/redis/redis.sock?db=0";
        "redis+sentinel" "redis" crate::stores::redis::SENTINEL_INFO, "redis+sentinel://host1:26379,host2,host3/NAME";
        "rediss+sentinel" "redis-tls" crate::stores::redis::SENTINEL_INFO,
            "rediss+sentinel://host1:26379,host2,host3/NAME";
        "redis+cluster" "redis" crate::stores::redis::cluster::INFO, "redis+cluster://host1:6379,host2,host3";
        "rediss+cluster" "redis-tls" crate::stores::redis::cluster::INFO,
            "rediss+cluster://host1:6379,host2,host3";
        "redlock" "redis" crate::stores::redis::redlock::INFO, "redlock://host1:6379,host2,host3/0";
        "redlocks" "redis-tls" crate::stores::redis::redlock::TLS_INFO, "redlocks://host1:6379,host2,host3/0";
    }
    feature = "zookeeper" {
        "zk" "zookeeper" crate::stores::zookeeper::INFO, "zk://host1:2181,host2,host3/locks";
        "zks" "zookeeper-tls" crate::stores::zookeeper::TLS_INFO, "zks://host1:2281,host2:2281/locks";
    }
}

fn unknown(scheme: &str) -> Error {
    let known: Vec<_> = STORES.iter().filter(|info| info.open.is_some()).map(|info| info.scheme).collect();
    Error::new(ErrorKind::Config, "store URL", "unknown scheme").with("scheme", scheme).with("known", known.join(" "))
}

/// The store that `url` names.
pub(crate) fn known(url: &StoreUrl) -> Result<&'static StoreInfo> {
    STORES.iter().find(|info| info.scheme == url.scheme()).ok_or_else(|| unknown(url.scheme()))
}

/// Opens the store that `url` names; the client's own options must have been taken out before.
///
/// # Errors
/// [`ErrorKind::Config`] for an unknown scheme (the known ones are listed), [`ErrorKind::Unsupported`] for one whose
/// feature is off, and the errors of the store.
pub async fn open_url(url: StoreUrl) -> Result<Arc<dyn Store>> {
    let info = known(&url)?;
    info.open.ok_or_else(|| switched_off(info))?(url).await
}

fn switched_off(info: &StoreInfo) -> Error {
    let message = "this build lacks the store: its cargo feature is off, or `file:` is not on Linux; the command `fencelock` has the stores on servers with its feature `servers`";
    Error::new(ErrorKind::Unsupported, "store URL", message).with("scheme", info.scheme).with("feature", info.feature)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_the_build_lacks_is_refused_with_the_features_of_the_library_and_of_the_command() {
        let refused = switched_off(&STORES[0]).to_string();
        assert!(refused.contains("`servers`") && refused.contains(STORES[0].feature), "{refused}");
    }

    #[test]
    fn the_error_for_a_mistyped_scheme_lists_the_known_ones() {
        let bogus = unknown("bogus");
        assert!(bogus.kind() == ErrorKind::Config && bogus.to_string().contains("known"), "{bogus}");
    }
}
