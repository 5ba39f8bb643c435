//! Locks of other languages' clients, driven by the programs in `interop/`.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use fencelock_interop::{Built, Foreign, Purpose};

use crate::what::Store;

/// The session timeout of fencelock's own workers.
const SESSION_TIMEOUT_MS: &str = "60000";

/// The programs, built.
#[derive(Debug)]
pub(crate) struct Peers(Built);

impl Peers {
    /// Builds the programs for `store` that are not built yet.
    pub(crate) fn build(store: Store) -> Result<Self> {
        match store {
            Store::Redis => Built::for_redis(),
            Store::Etcd => Built::for_etcd(),
            _ => Built::for_zookeeper(),
        }
        .map(Self)
    }

    /// The command that starts the program `driver`.
    pub(crate) fn command(&self, driver: Foreign, servers: &str, log: &Path) -> Command {
        let mut command = self.0.command(driver, Purpose::Measuring);
        command.args([servers, SESSION_TIMEOUT_MS]).arg(log);
        command
    }
}
