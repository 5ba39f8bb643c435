//! Locks in etcd: the queue of etcd's own `concurrency` package, so that clientv3's Mutex and `etcdctl lock` take turns with ours.
//!
//! A lock lives as long as its session's lease. Its fencing token is the revision that made its key. `NOTES.md` has keys and requests.

mod connection;
mod dial;
mod fault;
mod keys;
mod ops;
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated from etcd.proto")]
mod proto;
mod session;
mod store;
mod url;

use std::time::Duration;

use crate::kit::served::REPAIR;
use crate::store::{Capability, Liveness, Order, Pace, Peer, Presumption, Residue, StoreInfo, Tokens, Waiters};

pub(crate) const INFO: StoreInfo = StoreInfo {
    options: url::OPTIONS,
    capability: Some(|| CAPABILITY.clone()),
    open: Some(store::open),
    ask: Some(store::ask),
    ..StoreInfo::OFF
};

pub(crate) const TLS_INFO: StoreInfo = StoreInfo { options: url::TLS_OPTIONS, ..INFO };

static CAPABILITY: Capability = Capability {
    store: "etcd",
    layout: "etcd concurrency",
    liveness: Liveness::Session,
    order: Order::Fifo,
    tokens: Tokens::CommitNumber,
    presumes: &[Presumption::ServersAgree],
    shared_claims: true,
    permits: true,
    // etcd tells no time of day.
    notes: false,
    waiters: Waiters::Looked(Duration::from_millis(100)),
    // Leases have whole seconds, and the leader looks for expired ones twice a second.
    detection_slack: Duration::from_secs(2),
    wake_bound: REPAIR.saturating_add(Duration::from_secs(1)),
    same_as: &[Peer::EtcdConcurrency],
    residue: &[Residue::BreaksForDays(30)],
    // With its default election timeout of 1 s, etcd makes every shorter lease one of 2 s.
    pace: Pace { least_ttl: Duration::from_secs(2), ..Pace::DEFAULT },
    blocking: false,
};
