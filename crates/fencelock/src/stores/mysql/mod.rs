//! Locks in MariaDB and MySQL: an ordered queue for each name, kept by procedures in the database that the URL names. Acquiring takes one
//! call, one round trip and one transaction, and releasing the same.
//!
//! A lock lives as long as the lease of its session does, one row that one call renews for any number of locks, and only the server's clock
//! judges that. `NOTES.md` in this folder has tables, procedures, and the order of locks.

mod bell;
mod connection;
mod fault;
mod get_lock;
mod link;
mod schema;
mod session;
mod setup;
mod tables;
mod url;

use self::link::Mysql;
pub use self::schema::Schema;
#[allow(unused_imports, reason = "a build without TLS does not need it")]
pub(in crate::stores) use self::url::bad;
pub use crate::kit::database::Migration;
use crate::kit::database::session::FAIR;
use crate::kit::database::store::open;
use crate::kit::lock_table;
use crate::store::{Capability, StoreInfo};

pub(crate) const INFO: StoreInfo = StoreInfo {
    options: url::OPTIONS,
    capability: Some(|| CAPABILITY.clone()),
    layouts: &[
        ("layout=distributed_lock", || lock_table::tutorial("mysql")),
        ("layout=shedlock", || lock_table::shedlock("mysql")),
        ("layout=get_lock&key=.net", || get_lock::CAPABILITY.clone()),
    ],
    open: Some(open::<Mysql>),
    ask: Some(link::ask),
    ..StoreInfo::OFF
};

static CAPABILITY: Capability = Capability { store: "mysql", layout: "fencelock mysql fair layout 6", ..FAIR };
