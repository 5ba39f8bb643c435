//! PostgreSQL, as a kind of server.

use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;

use super::pooler::Pooler;
use super::server::{self, Server};
use super::settings::Settings;
use crate::packages::{PGBOUNCER, POSTGRESQL, Package};
use crate::server::{Kind, Shared, database_name};

/// The role that owns the databases of tests; no superuser.
pub const OWNER: &str = "fencelock";

/// Statements that plant things in `public` under the names of the server's own. Each run of one counts in the sequence `public.planted`.
pub const PLANTED: &str = include_str!("planted.sql");

/// PostgreSQL.
pub static KIND: Kind = kind("FENCELOCK_TEST_POSTGRES", POSTGRESQL, start, database);

/// PostgreSQL with an administrator's limits on every connection ([`LIMITS`]), on a server of its own.
pub static LIMITED: Kind = kind("FENCELOCK_TEST_POSTGRES", POSTGRESQL, start, limited);

/// PostgreSQL behind PgBouncer in transaction mode.
pub static POOLED: Kind = kind("FENCELOCK_TEST_PGBOUNCER", PGBOUNCER, pooled, database);

const fn kind(
    variable: &'static str,
    package: Package,
    start: fn() -> io::Result<Box<dyn crate::server::Server>>,
    namespace: fn(SocketAddr) -> io::Result<String>,
) -> Kind {
    let (scheme, other_schemes, options) = ("postgres", &["postgresql"], "user=fencelock");
    Kind { scheme, other_schemes, variable, package, options, start, namespace, shared: OnceLock::new() }
}

/// No test has a power cut. With syncs, tests would spend most of their time in waiting for the disk.
fn start() -> io::Result<Box<dyn crate::server::Server>> {
    Ok(Box::new(quick()?))
}

/// Few connections of the pooler for many of its clients, so that each transaction may be on another one.
fn pooled() -> io::Result<Box<dyn crate::server::Server>> {
    let mut server = quick()?;
    let mode = "transaction\ndefault_pool_size = 3\nserver_round_robin = 1";
    server.program.pooler = Some(Pooler::start(server.address(), mode)?);
    Ok(Box::new(server))
}

fn quick() -> io::Result<Server> {
    Server::start(Settings::default().with("fsync = off").with("full_page_writes = off"))
}

/// The settings of [`LIMITED`] for every connection to its databases.
pub const LIMITS: [(&str, &str); 5] = [
    ("statement_timeout", "300ms"),
    ("lock_timeout", "50ms"),
    ("idle_session_timeout", "2s"),
    ("idle_in_transaction_session_timeout", "50ms"),
    ("default_transaction_isolation", "serializable"),
];

/// The server that all tests share: [`Kind::shared`].
pub fn shared() -> &'static Shared {
    KIND.shared()
}

/// A database that no other test uses, as in `/t1a2b_7`.
fn database(server: SocketAddr) -> io::Result<String> {
    let name = database_name();
    server::sql_at(server, "postgres", &format!("CREATE DATABASE {name} OWNER {OWNER}"))?;
    Ok(format!("/{name}"))
}

fn limited(server: SocketAddr) -> io::Result<String> {
    let name = database(server)?;
    let limit = |(setting, value)| format!("ALTER DATABASE {} SET {setting} = '{value}'; ", &name[1..]);
    server::sql_at(server, "postgres", &LIMITS.map(limit).concat())?;
    Ok(name)
}
