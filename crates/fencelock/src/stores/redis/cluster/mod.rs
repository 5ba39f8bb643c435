//! Locks in a Redis Cluster. For `fair`, a store of sixteen slots, each of which is a store with its owner and moves without a loss. For `plain`
//! and `redisson`, the way of each request to the owner of its key. The layouts do not depend on this room. `NOTES.md` has the reasons.

pub(crate) mod nodes;
mod possession;
mod routes;
mod session;
mod store;
mod url;

pub(super) use self::nodes::{ClusterSlot, Nodes};
pub(super) use self::possession::Possession;
pub(super) use self::routes::{Routes, key_in, slot_of_command};
pub(super) use self::store::new;
pub(super) use self::url::config;
use super::ask::ask;
use super::wire::Address;
use super::{plain, redisson};
use crate::store::StoreInfo;

/// The registry's entry.
pub(crate) const INFO: StoreInfo = StoreInfo {
    options: url::OPTIONS,
    layouts: &[
        ("layout=plain", || plain::CAPABILITY.clone()),
        ("layout=redisson", || redisson::CAPABILITY.clone()),
        ("layout=redisson-fenced", || redisson::FENCED.clone()),
    ],
    ask: Some(|url, questions| {
        let Address::Nodes(nodes) = super::url::read(url)?.0.address else { unreachable!("a URL of a Cluster") };
        Ok(nodes.named().map(|node| ask(node, questions)).collect())
    }),
    ..super::INFO
};
