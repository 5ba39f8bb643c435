//! Locks of other languages' clients, driven by the programs in `interop/`.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use fencelock_interop::{Built, Foreign, Purpose};

use crate::contestant::Contestant;
use crate::what::Store;

/// The session timeout of fencelock's own workers.
const SESSION_TIMEOUT_MS: &str = "60000";

/// The programs, built.
#[derive(Debug)]
pub(crate) struct Peers(Built);

impl Peers {
    /// Builds the programs for `store` that are not built yet.
    pub(crate) fn build(store: Store) -> Result<Self> {
        if store == Store::Redis { Built::for_redis() } else { Built::for_zookeeper() }.map(Self)
    }

    /// The command that starts the program which drives `contestant`.
    pub(crate) fn command(&self, contestant: Contestant, servers: &str, log: &Path) -> Result<Command> {
        let driver = match contestant {
            Contestant::Curator => Foreign::Curator59,
            Contestant::GoZk => Foreign::Go,
            Contestant::Kazoo => Foreign::Kazoo,
            Contestant::Redisson | Contestant::RedissonFair => Foreign::Redisson,
            Contestant::Redsync => Foreign::Redsync,
            Contestant::RedisPy => Foreign::RedisPy,
            Contestant::NpmRedlock => Foreign::Node,
            _ => bail!("{} needs no driver", contestant.title()),
        };
        let mut command = self.0.command(driver, Purpose::Measuring);
        command.args([servers, SESSION_TIMEOUT_MS]).arg(log);
        Ok(command)
    }
}

/// The drivers' name for the lock of `contestant`.
pub(crate) const fn recipe(contestant: Contestant) -> Option<&'static str> {
    match contestant {
        Contestant::Curator => Some("InterProcessMutex"),
        Contestant::GoZk | Contestant::Kazoo | Contestant::Redisson | Contestant::RedisPy => Some("Lock"),
        Contestant::RedissonFair => Some("FairLock"),
        Contestant::Redsync => Some("Mutex"),
        Contestant::NpmRedlock => Some("redlock"),
        _ => None,
    }
}
