//! Locks in PostgreSQL: functions keep an ordered queue for each name. To acquire is one call and one transaction, and so is to release.
//!
//! A lock lives as long as its session's lease, a row that one statement renews, by the server's clock. `NOTES.md` has tables and functions.
//!
//! A client makes the schema when it first connects, if its role may; else another role runs [`Schema::migrate`] once. A write is fenced by
//! [`HOLD`], in the same transaction (with `sqlx`, by `Hold` of the crate `fencelock-sqlx`):
//!
//! ```no_run
//! # async fn f(locks: fencelock::Client, mut database: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let guard = locks.mutex("stock/42")?.require_token().acquire().await?;
//! let transaction = database.transaction().await?; // of any connection to the same database
//! let token = guard.require_token()?.to_i64();
//! transaction.execute(fencelock::postgres::HOLD, &[&guard.name().as_str(), &token]).await?; // FL001: not ours any more
//! transaction.execute("UPDATE stock SET left_over = left_over - 1 WHERE item = 42", &[]).await?;
//! transaction.commit().await?; // before the release, which would wait for it
//! guard.release().await?;
//! # Ok(()) }
//! ```

mod advisory;
mod bell;
mod connection;
mod dial;
mod fault;
mod link;
mod schema;
mod session;
mod setup;
mod tables;
mod url;

use self::link::Postgres;
pub use self::schema::{HOLD, Schema};
pub use crate::kit::database::Migration;
use crate::kit::database::session::FAIR;
use crate::kit::database::store::open;
use crate::kit::lock_table;
use crate::store::{Capability, StoreInfo};

pub(crate) const INFO: StoreInfo = StoreInfo {
    options: url::OPTIONS,
    capability: Some(|| CAPABILITY.clone()),
    layouts: &[
        ("layout=distributed_lock", || lock_table::tutorial("postgres")),
        ("layout=shedlock", || lock_table::shedlock("postgres")),
        ("layout=advisory&key=.net", || advisory::CAPABILITY.clone()),
    ],
    open: Some(open::<Postgres>),
    ask: Some(link::ask),
    ..StoreInfo::OFF
};

static CAPABILITY: Capability = Capability { store: "postgres", layout: "fencelock postgres fair layout 8", ..FAIR };
