//! MariaDB, as a kind of server.

use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;

use super::server::{self, Server, Settings};
use crate::packages::MARIADB;
use crate::server::{Kind, database_name};

/// The user that owns the databases of tests; no administrator.
pub const OWNER: &str = "fencelock";

/// MariaDB.
pub static KIND: Kind = Kind {
    scheme: "mysql",
    other_schemes: &["mariadb"],
    variable: "FENCELOCK_TEST_MYSQL",
    package: MARIADB,
    options: "user=fencelock&password=secret",
    // No test has a power cut. With syncs, tests would spend most of their time in waiting for the disk.
    start: || Ok(Box::new(Server::start(Settings::default().with("--innodb-flush-log-at-trx-commit=0"))?)),
    namespace: database,
    shared: OnceLock::new(),
};

/// A database that no other test uses, as in `/t1a2b_7`.
fn database(server: SocketAddr) -> io::Result<String> {
    let name = database_name();
    server::sql_at(server, &format!("CREATE DATABASE {name}; GRANT ALL ON {name}.* TO {OWNER}@'%'"))?;
    Ok(format!("/{name}"))
}
