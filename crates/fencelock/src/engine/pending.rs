//! Clean-up that outlives its caller, counted so that an ending program can wait for it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Counts the clean-ups under way.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    count: Mutex<usize>,
    none_left: Condvar,
    told: Notify,
}

impl Pending {
    /// Counts one clean-up until the ticket is dropped.
    pub(crate) fn ticket(self: &Arc<Self>) -> PendingTicket {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        PendingTicket(Arc::clone(self))
    }

    /// Blocks this thread until nothing is under way, at most for `limit`.
    pub(crate) fn wait_blocking(&self, limit: Duration) {
        let end = Instant::now() + limit;
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            count = self.none_left.wait_timeout(count, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until nothing is under way.
    pub(crate) async fn wait(&self) {
        self.wait_for_others(0).await;
    }

    /// Waits until no more than `own` clean-ups are under way, which the caller counts as its own.
    pub(crate) async fn wait_for_others(&self, own: usize) {
        loop {
            let told = self.told.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if *self.count.lock().unwrap_or_else(PoisonError::into_inner) <= own {
                return;
            }
            told.await;
        }
    }
}

/// One clean-up under way.
#[derive(Debug)]
pub(crate) struct PendingTicket(Arc<Pending>);

impl Drop for PendingTicket {
    fn drop(&mut self) {
        let mut count = self.0.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count -= 1;
        self.0.told.notify_waiters();
        if *count == 0 {
            self.0.none_left.notify_all();
        }
    }
}
