//! The lock of the crate `rslock`, with its defaults, which try again after up to 200 ms.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow};
use rslock::LockManager;

use super::ours::TTL;
use super::workload::{Lock, Take};

/// A task without the lock after this time counts as a waiter: there is no queue that could be counted.
const PATIENCE: Duration = Duration::from_millis(20);

#[derive(Clone)]
pub(super) struct Rslock {
    manager: LockManager,
    key: Arc<str>,
    /// The prefix of every key.
    prefix: Arc<str>,
    /// The tasks whose first try failed.
    refused: Arc<AtomicU64>,
}

impl Rslock {
    pub(super) fn new(url: &str, prefix: &str) -> Self {
        let (url, _) = url.split_once('?').unwrap_or((url, ""));
        let manager = LockManager::new(vec![url.to_owned()]);
        Self { manager, key: key(prefix, "bench"), prefix: prefix.into(), refused: Arc::default() }
    }
}

fn key(prefix: &str, name: &str) -> Arc<str> {
    format!("{prefix}:{name}").into()
}

impl Take for Rslock {
    type Held = rslock::Lock;

    async fn acquire(&self) -> Result<rslock::Lock> {
        let acquire = self.manager.acquire_no_guard(self.key.as_bytes(), TTL);
        tokio::pin!(acquire);
        if let Ok(lock) = tokio::time::timeout(PATIENCE, &mut acquire).await {
            return lock.map_err(|fault| anyhow!("{fault}"));
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        acquire.await.map_err(|fault| anyhow!("{fault}"))
    }

    async fn release(&self, held: rslock::Lock) -> Result<()> {
        self.manager.unlock(&held).await;
        Ok(())
    }
}

impl Lock for Rslock {
    fn named(&self, name: &str) -> Result<Self> {
        Ok(Self { key: key(&self.prefix, name), ..self.clone() })
    }

    async fn acquire_free(&self) -> Result<rslock::Lock> {
        self.manager.lock(self.key.as_bytes(), TTL).await.map_err(|fault| anyhow!("{fault}"))
    }

    async fn queued(&self) -> Result<u64> {
        Ok(self.refused.load(Ordering::Relaxed))
    }
}
