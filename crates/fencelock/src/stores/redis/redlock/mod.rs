//! Redlock: the layout `plain` at several independent servers. A client with the key at a majority of them holds the lock. Faults of a
//! minority cost no lock. `../try_again/NOTES.md` has the rest.

mod attempt;
mod servers;
mod session;
mod store;
mod url;
mod votes;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_core::future::BoxFuture;

use self::store::Redlock;
use super::ask::ask;
use super::plain;
use super::try_again::{Dialect, Held, Marks, Ours};
use crate::error::Result;
use crate::kit::served::request_id;
use crate::kit::server::ServerStore;
use crate::store::{Capability, Peer, Presumption, Store, StoreInfo, StoreUrl};

/// The registry's entry for this store over TCP.
pub(crate) const INFO: StoreInfo = StoreInfo {
    options: url::OPTIONS,
    capability: Some(|| CAPABILITY.clone()),
    open: Some(open),
    ask: Some(|url, questions| Ok(url::read(url)?.servers.into_iter().map(|config| ask(config, questions)).collect())),
    ..StoreInfo::OFF
};

/// Redlock over TLS.
pub(crate) const TLS_INFO: StoreInfo = StoreInfo { options: url::TLS_OPTIONS, ..INFO };

static CAPABILITY: LazyLock<Capability> = LazyLock::new(|| Capability {
    store: "redlock",
    layout: "SET name value NX PX ttl at a quorum of masters",
    presumes: &[
        Presumption::SameMasters,
        Presumption::QuorumKept,
        Presumption::KeyStays,
        Presumption::ClockSteady,
        Presumption::ClockRates,
    ],
    same_as: &[Peer::Redsync, Peer::NpmRedlock, Peer::Rslock, Peer::Pottery, Peer::RedisSemaphore, Peer::SetIfAbsent],
    ..plain::CAPABILITY.clone()
});

fn open(url: StoreUrl) -> BoxFuture<'static, Result<Arc<dyn Store>>> {
    Box::pin(async move {
        let url::RedlockUrl { servers, prefix, times } = url::read(url)?;
        let plain = plain::dialect(prefix, plain::Extra::Nothing);
        let dialect = Arc::new(Dialect { capability: &CAPABILITY, marks: &MARKS, ..plain });
        let servers = servers.into_iter().map(Arc::new).collect();
        Ok(Arc::new(ServerStore::new(Redlock { servers, dialect, times })) as Arc<dyn Store>)
    })
}

/// The options for the times of a lock at several servers.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    /// How much sooner than the ttl a grant ends, for clocks of different rates; `None` for a hundredth of the ttl and 2 ms.
    drift: Option<Duration>,
    /// How long after its start a server has no vote; `None` for the ttl.
    rejoin: Option<Duration>,
}

impl Times {
    fn drift(self, ttl: Duration) -> Duration {
        self.drift.unwrap_or(ttl / 100 + Duration::from_millis(2))
    }
}

/// The capability for a user who may not run INFO, which has the `run_id`, at every server.
fn without_info(capability: &Capability) -> Capability {
    Capability {
        presumes: &[
            Presumption::SameMasters,
            Presumption::QuorumKept,
            Presumption::ClockSteady,
            Presumption::ClockRates,
            Presumption::NoConnectionBreaks,
        ],
        ..capability.clone()
    }
}

/// As in `plain`, but that the number of the attempt follows the request's.
static MARKS: Marks = Marks { head: |id| format!("{}{id}.", plain::OURS), ours, ..plain::MARKS };

/// Reads the request at the beginning of a fencelock's value, without its attempt, and the text after it.
fn ours(held: &Held) -> Ours<'_> {
    let (id, said) = std::str::from_utf8(&held.by).ok()?.strip_prefix(plain::OURS)?.split_once(':')?;
    Some((request_id(id.split_once('.')?.0)?, said.as_bytes()))
}
