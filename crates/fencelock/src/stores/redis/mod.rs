//! Locks on one Redis server. The default layout `fair` keeps a queue: first come, first served, with a script to acquire and a script to
//! release. The layouts `plain` and `redisson` use the keys of other clients, without an order.
//!
//! A lock lives as long as the lease of its session, by the server's clock alone. Keys that a server forgets (a crash without a saved
//! state, a failover) are lost locks. `NOTES.md` in this folder has keys and scripts.
//!
//! `wire/` connects to a server, for all layouts, `sentinel/` finds the primary that Sentinels watch, and `cluster/` the owner of a slot.
//! `fair/` is our own layout. `try_again/` has the common part of the layouts without a queue, `plain/` and `redisson/`; `redlock/` is `plain/`
//! over several servers. Sessions and readers implement `wire::LinkUser`, their whole interface to the wire.

mod ask;
pub(crate) mod cluster;
pub(crate) mod fair;
mod plain;
mod redisson;
pub(crate) mod redlock;
mod sentinel;
pub(crate) mod try_again;
mod url;
pub(crate) mod wire;

use std::sync::Arc;

use futures_core::future::BoxFuture;
use redis::Value;

use self::wire::Address;
use crate::error::Result;
use crate::kit::record::{self, Record};
use crate::name::Name;
use crate::store::{Break, Store, StoreInfo, StoreUrl};

/// The registry's entry for this store over TCP.
pub(crate) const INFO: StoreInfo = StoreInfo {
    options: url::OPTIONS,
    capability: Some(|| fair::CAPABILITY.clone()),
    layouts: &[
        ("layout=plain", || plain::CAPABILITY.clone()),
        ("layout=plain&signal=python-redis-lock", || plain::SIGNALLING.clone()),
        ("layout=plain&fence=:fence", || plain::COUNTING.clone()),
        ("layout=redisson", || redisson::CAPABILITY.clone()),
        ("layout=redisson-fenced", || redisson::FENCED.clone()),
    ],
    open: Some(open),
    ask: Some(|url, questions| Ok(vec![ask::ask(url::read(url)?.0, questions)])),
    ..StoreInfo::OFF
};

/// Redis over TLS.
pub(crate) const TLS_INFO: StoreInfo = StoreInfo { options: url::TLS_OPTIONS, ..INFO };

/// Redis over a socket file.
pub(crate) const UNIX_INFO: StoreInfo = StoreInfo { options: url::UNIX_OPTIONS, ..INFO };

/// The primary of several servers, which Sentinels name.
pub(crate) const SENTINEL_INFO: StoreInfo = StoreInfo { options: sentinel::OPTIONS, ..INFO };

/// The records of breaks of a lock, which every layout keeps in a list; `None` for another answer.
fn breaks_of(records: &Value, name: &Name) -> Option<Vec<Break>> {
    let text = |record: &Value| {
        if let Value::BulkString(text) = record { record::read::<Record>(text)?.order(name) } else { None }
    };
    records.as_sequence().map(|records| records.iter().filter_map(text).collect())
}

fn open(url: StoreUrl) -> BoxFuture<'static, Result<Arc<dyn Store>>> {
    Box::pin(async move {
        let (config, layout, prefix) = url::read(url)?;
        Ok(match layout {
            url::Layout::Fair => match config.address {
                Address::Nodes(nodes) => cluster::new(nodes, config.min_replicas, &prefix),
                _ => fair::new(config, &prefix),
            },
            url::Layout::Plain(extra) => plain::new(config, prefix, extra),
            url::Layout::Redisson => redisson::new(config, prefix, false),
            url::Layout::RedissonFenced => redisson::new(config, prefix, true),
        })
    })
}
