//! etcd, as a kind of server.

use std::sync::OnceLock;

use super::server::Server;
use crate::packages::ETCD;
use crate::server::{Kind, database_name};

/// etcd: a single member.
pub static KIND: Kind = Kind {
    scheme: "etcd",
    other_schemes: &["etcds"],
    variable: "FENCELOCK_TEST_ETCD",
    package: ETCD,
    options: "",
    start: || Ok(Box::new(Server::start(&[])?)),
    namespace: |_| Ok(format!("/{}", database_name())),
    shared: OnceLock::new(),
};
