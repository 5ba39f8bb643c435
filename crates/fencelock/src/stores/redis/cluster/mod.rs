//! Locks in a Redis Cluster: the owner of a slot, slots that move without a loss, and a store of sixteen slots, each of which is a store of
//! the layout `fair`. The layout does not depend on this room. `NOTES.md` in this folder has the reasons.

pub(crate) mod nodes;
mod possession;
mod session;
mod store;
mod url;

pub(super) use self::nodes::ClusterSlot;
pub(super) use self::possession::Possession;
use super::ask::ask;
use super::fair;
use crate::store::StoreInfo;

/// The registry's entry.
pub(crate) const INFO: StoreInfo = StoreInfo {
    options: url::OPTIONS,
    capability: Some(|| fair::CAPABILITY.clone()),
    open: Some(store::open),
    ask: Some(|url, questions| Ok(url::read(url)?.0.named().map(|node| ask(node, questions)).collect())),
    ..StoreInfo::OFF
};
