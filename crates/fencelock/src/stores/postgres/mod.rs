//! Locks in PostgreSQL: an ordered queue for each name, kept by functions in a schema of its own. One call, one round trip and one
//! transaction to acquire, and the same to release.
//!
//! A lock lives as long as the lease of its session does, one row that one statement renews for any number of locks, and only the
//! server's clock judges that. `NOTES.md` beside this file has tables, functions, states, and the order of locks.

mod advisory;
mod connection;
mod dial;
mod fault;
mod link;
mod member;
mod notes;
mod schema;
mod server;
mod setup;
mod tables;
mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;

pub use self::schema::{HOLD, Migration, Schema};
use self::tables::Layout;
use self::url::Config;
use crate::error::Result;
use crate::kit::served::{REPAIR, ServedStore};
use crate::store::{Capability, Liveness, Order, Pace, Store, StoreInfo, StoreUrl, Tokens};

/// What the registry knows of this store.
pub(crate) const INFO: StoreInfo = StoreInfo {
    scheme: "postgres",
    feature: "postgres",
    example: "postgres://user:password@host:5432/database",
    options: url::OPTIONS,
    capability: Some(|| CAPABILITY.clone()),
    layouts: &[
        ("layout=distributed_lock", || tables::TUTORIAL.clone()),
        ("layout=shedlock", || tables::SHEDLOCK.clone()),
        ("layout=advisory&key=.net", || advisory::CAPABILITY.clone()),
    ],
    open: Some(open),
};

/// The same by its longer name.
pub(crate) const LONG_INFO: StoreInfo =
    StoreInfo { scheme: "postgresql", example: "postgresql://user:password@host1,host2/database", ..INFO };

static CAPABILITY: Capability = Capability {
    store: "postgres",
    layout: "fencelock postgres fair layout 4",
    liveness: Liveness::Lease,
    order: Order::Fifo,
    tokens: Tokens::ClockFlooredCounter,
    certainty: "the server keeps its commits, and its clock does not jump ahead",
    shared_claims: true,
    permits: true,
    notes: true,
    // Who waits looks when the lease of a holder may be over.
    detection_slack: Duration::from_secs(1),
    wake_bound: REPAIR.saturating_add(Duration::from_secs(1)),
    excludes: "",
    residue: "a schema with 4096 rows; records of breaks for 30 days",
    pace: Pace::DEFAULT,
    blocking: false,
};

fn open(url: StoreUrl) -> BoxFuture<'static, Result<Arc<dyn Store>>> {
    Box::pin(async move {
        let (layout, config) = Layout::and_config(url)?;
        Ok(match layout {
            Layout::Fair => Arc::new(ServedStore::new(Postgres(Arc::new(config)))) as Arc<dyn Store>,
            Layout::Table(table) => tables::new(config, *table),
            Layout::Advisory(keys) => advisory::new(config, keys),
        })
    })
}

/// Locks on a PostgreSQL server.
struct Postgres(Arc<Config>);

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
