//! Redlock: the layout `plain` over several masters that know nothing of each other, by quorum. `../race/quorum/` does it; here is what
//! it is called and what a URL says of it.

mod url;

use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;

use super::plain;
use super::race::{Dialect, Held, Marks, Ours, WAKE_BOUND, quorum};
use crate::error::Result;
use crate::store::{
    Capability, Liveness, Order, Pace, Peer, Presumption, RequestId, Residue, Store, StoreInfo, StoreUrl, Tokens,
    Waiters,
};

/// What the registry knows of this store over TCP.
pub(crate) const INFO: StoreInfo = StoreInfo {
    scheme: "redlock",
    feature: "redis",
    example: "redlock://host1:6379,host2,host3/0",
    options: url::OPTIONS,
    capability: Some(|| CAPABILITY.clone()),
    layouts: &[],
    open: Some(open),
};

/// The same over TLS.
pub(crate) const TLS_INFO: StoreInfo = StoreInfo {
    scheme: "redlocks",
    feature: "redis-tls",
    example: "redlocks://host1:6379,host2,host3/0",
    options: url::TLS_OPTIONS,
    ..INFO
};

static CAPABILITY: Capability = Capability {
    store: "redlock",
    layout: "SET name value NX PX ttl at a quorum of masters",
    liveness: Liveness::Lease,
    order: Order::None,
    tokens: Tokens::None,
    presumes: &[
        Presumption::SameMasters,
        Presumption::QuorumKept,
        Presumption::KeyStays,
        Presumption::ClockSteady,
        Presumption::ClockRates,
    ],
    shared_claims: false,
    permits: false,
    notes: false,
    waiters: Waiters::Unseen,
    detection_slack: Duration::from_millis(100),
    wake_bound: WAKE_BOUND,
    same_as: &[Peer::Redsync, Peer::NpmRedlock, Peer::Rslock, Peer::Pottery, Peer::RedisSemaphore, Peer::SetIfAbsent],
    residue: &[Residue::BreaksForDays(30)],
    pace: Pace::DEFAULT,
    blocking: false,
};

fn open(url: StoreUrl) -> BoxFuture<'static, Result<Arc<dyn Store>>> {
    Box::pin(async move {
        let url::Said { masters, prefix, terms } = url::read(url)?;
        Ok(quorum::new(
            masters,
            Dialect { capability: &CAPABILITY, marks: &MARKS, ..plain::dialect(prefix, plain::Beside::Nothing) },
            terms,
        ))
    })
}

/// As in `plain`, but that the number of the bid follows the request's.
static MARKS: Marks = Marks { head: |id| format!("{}{id}.", plain::OURS), ours, ..plain::MARKS };

/// The request that a value of ours begins with, whichever bid of it, and what follows.
fn ours(held: &Held) -> Ours<'_> {
    let (id, said) = std::str::from_utf8(&held.by).ok()?.strip_prefix(plain::OURS)?.split_once(':')?;
    let (client, number) = id.split_once('.')?.0.split_once('-')?;
    let id = RequestId { client: u64::from_str_radix(client, 16).ok()?, number: u64::from_str_radix(number, 16).ok()? };
    Some((id, said.as_bytes()))
}
