//! The crate `rslock` as a driver, with its defaults but for how often it tries: again after up to 200 ms.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use tokio::runtime::Runtime;

use crate::ours::{Lock, Locks, obey_all};

/// Takes orders until stdin ends.
pub(crate) fn serve(servers: &str, ttl_ms: u64) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let manager = rslock::LockManager::new(servers.split(',').map(str::to_owned).collect());
    obey_all(Rslock { runtime, manager, ttl: Duration::from_millis(ttl_ms) })
}

struct Rslock {
    runtime: Runtime,
    manager: rslock::LockManager,
    ttl: Duration,
}

impl Locks for Rslock {
    type Held = rslock::Lock;

    const VERSION: &'static str = "rslock=0.10";

    fn acquire(&mut self, (_, parent, name): Lock<'_>, wait_ms: Option<u64>) -> Result<Option<rslock::Lock>> {
        let key = format!("{parent}:{name}");
        let limit = wait_ms.map_or(Duration::MAX, Duration::from_millis);
        let acquire = self.manager.acquire_no_guard(key.as_bytes(), self.ttl);
        match self.runtime.block_on(async { tokio::time::timeout(limit, acquire).await }) {
            Ok(lock) => Ok(Some(lock.map_err(|fault| anyhow!("{fault}"))?)),
            Err(_late) => Ok(None),
        }
    }

    fn release(&mut self, held: rslock::Lock) -> Result<()> {
        self.runtime.block_on(self.manager.unlock(&held));
        Ok(())
    }
}
