//! Who waits in the queue of a floor: the server tells this process whose turn it is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::{oneshot, watch};

/// How long whoever finds a lock without a queue taken waits before it tries again.
const AGAIN: Duration = Duration::from_millis(50);

/// A lock that is held.
pub(super) struct Held {
    pub(super) place: String,
    /// Nobody can be waiting for it.
    pub(super) alone: bool,
}

#[derive(Clone)]
pub(super) struct Waiters {
    /// Where this process hears whose turn it is.
    pub(super) channel: Arc<str>,
    waiting: Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>,
    queued: Arc<watch::Sender<u64>>,
    last: Arc<AtomicU64>,
}

impl Waiters {
    pub(super) fn new(channel: String) -> Self {
        Self { channel: channel.into(), waiting: Arc::default(), queued: Arc::default(), last: Arc::default() }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<()>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another place, as it stands in the server: the channel and a number.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.channel, self.last.fetch_add(1, Ordering::Relaxed))
    }

    /// Tells the one whose place this is.
    pub(super) fn hear(&self, place: &str) {
        if let Some(next) = self.table().remove(place) {
            let _ = next.send(());
        }
    }

    /// Waits for its turn, unless `had` says that the lock was free.
    pub(super) async fn turn(&self, place: String, had: impl Future<Output = Result<bool>>) -> Result<Held> {
        let (sender, told) = oneshot::channel();
        self.table().insert(place.clone(), sender);
        if had.await? {
            self.table().remove(&place);
        } else {
            self.queued.send_modify(|queued| *queued += 1);
            told.await.context("the connection is gone")?;
        }
        Ok(Held { place, alone: false })
    }

    /// Tries until one had it.
    pub(super) async fn again<F: Future<Output = Result<bool>>>(&self, had: impl Fn() -> F) -> Result<()> {
        let mut is_first = true;
        while !had().await? {
            if std::mem::take(&mut is_first) {
                self.queued.send_modify(|queued| *queued += 1);
            }
            tokio::time::sleep(AGAIN).await;
        }
        Ok(())
    }

    pub(super) fn queued(&self) -> u64 {
        *self.queued.borrow()
    }

    pub(super) async fn until_queued(&self, count: u64) -> Result<()> {
        let mut queued = self.queued.subscribe();
        queued.wait_for(|now| *now >= count).await.context("nobody queues any more")?;
        Ok(())
    }
}
