//! A store without a server: its scenes are a server's, without a network.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::Site;
use crate::crew::Target;
use crate::what::Store;

/// Until all processes that have entered a queue sleep.
const SETTLE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Here {
    store: Store,
    directory: String,
}

impl Here {
    /// The store's files, and the files that other contestants lock, are in `directory`.
    pub(crate) fn new(store: Store, directory: &Path) -> Result<Self> {
        let directory = directory.to_str().context("the path of the scratch directory is not UTF-8")?.to_owned();
        Ok(Self { store, directory })
    }
}

impl Site for Here {
    fn target(&self, _servers: &str, number: u64) -> Target {
        let path = format!("{}/target-{number}", self.directory);
        let url = match self.store {
            Store::Memory => "memory:bench".to_owned(),
            _ => format!("file://{}", path.replace('%', "%25").replace('#', "%23").replace('?', "%3F")),
        };
        Target { url, file: format!("{path}.lock").into() }
    }

    /// A contender of ours is in the queue, but may not listen yet; a thread may not have come to its system call. No
    /// counter tells when they have.
    fn is_quiet(&self) -> Result<()> {
        std::thread::sleep(SETTLE);
        Ok(())
    }
}
