//! Locks in a Redis Cluster: the owner of a slot, slots that move without a loss, and a store of sixteen slots, each of which is a store of
//! the layout `fair`. The layout does not depend on this room. `NOTES.md` in this folder has the reasons.

mod nodes;
mod possession;
mod session;
mod store;
mod url;

pub(super) use self::nodes::ClusterSlot;
pub(super) use self::possession::Possession;
use super::{INFO as REDIS, fair};
use crate::store::StoreInfo;

/// The registry's entry.
pub(crate) const INFO: StoreInfo = StoreInfo {
    scheme: "redis+cluster",
    example: "redis+cluster://host1:6379,host2,host3",
    options: url::OPTIONS,
    capability: Some(|| fair::CAPABILITY.clone()),
    layouts: &[],
    open: Some(store::open),
    ..REDIS
};

/// The same over TLS.
pub(crate) const TLS_INFO: StoreInfo = StoreInfo {
    scheme: "rediss+cluster",
    feature: "redis-tls",
    example: "rediss+cluster://host1:6379,host2,host3",
    ..INFO
};
