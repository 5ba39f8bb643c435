//! Locks in MariaDB and MySQL: an ordered queue for each name, kept by procedures in the database that the URL names. Acquiring takes one
//! call, one round trip and one transaction, and releasing the same.
//!
//! A lock lives as long as the lease of its session does, one row that one call renews for any number of locks, and only the server's clock
//! judges that. `NOTES.md` in this folder has tables, procedures, and the order of locks.

mod bell;
mod connection;
mod fault;
mod get_lock;
mod layout;
mod link;
mod schema;
mod session;
mod setup;
mod tables;
mod url;

use std::sync::Arc;

use futures_core::future::BoxFuture;

use self::layout::layout_and_config;
use self::link::Dialler;
pub use self::schema::Schema;
use self::tables::Table;
#[allow(unused_imports, reason = "a build without TLS does not need it")]
pub(in crate::stores) use self::url::bad;
use crate::error::Result;
pub use crate::kit::database::Migration;
use crate::kit::database::session::FAIR;
use crate::kit::database::session_locks;
use crate::kit::database::store::store;
use crate::kit::lock_table::{self, Layout};
use crate::store::{Capability, Presumption, Residue, Store, StoreInfo, StoreUrl};

pub(crate) const INFO: StoreInfo = StoreInfo {
    options: url::OPTIONS,
    capability: Some(|| CAPABILITY.clone()),
    layouts: &[
        ("layout=distributed_lock", || lock_table::tutorial("mysql")),
        ("layout=shedlock", || lock_table::shedlock("mysql")),
        ("layout=get_lock&key=.net", || get_lock::CAPABILITY.clone()),
    ],
    open: Some(open),
    ask: Some(link::ask),
    ..StoreInfo::OFF
};

static CAPABILITY: Capability = Capability {
    store: "mysql",
    layout: "fencelock mysql fair layout 6",
    presumes: &[Presumption::CommitsKept, Presumption::ClockSteady],
    residue: &[Residue::Buckets(4096), Residue::Notes, Residue::BreaksForDays(30), Residue::LeftByCrashed],
    ..FAIR
};

fn open(url: StoreUrl) -> BoxFuture<'static, Result<Arc<dyn Store>>> {
    Box::pin(async move {
        let (layout, config) = layout_and_config(url)?;
        Ok(match layout {
            Layout::Fair => store::<Dialler>(config),
            Layout::Table(table) => lock_table::store(config, Table::new(table)),
            Layout::Session(keys) => session_locks::store(config, keys),
        })
    })
}
