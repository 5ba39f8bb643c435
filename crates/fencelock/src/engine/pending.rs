//! Clean-up that outlives its caller, counted so that an ending program can wait for it.

use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// Those of all clients of the process.
static EVERYWHERE: LazyLock<Pending> = LazyLock::new(Pending::default);

/// Waits until no client of the process has a release or other clean-up under way, at most for `limit`, and says whether that
/// came about. A client whose store is out of reach, or threads that go on releasing, can make it `false`.
///
/// For the end of `main`, where a client is in a `static`: it is never dropped, so nothing else waits for what was released
/// last. Blocks the thread; it must not be called where releases need this very thread to go on (inside an async runtime
/// with [`Io::CurrentRuntime`](crate::Io::CurrentRuntime), in an observer): it would wait for `limit` in vain.
///
/// ```
/// use std::sync::LazyLock;
/// use std::time::Duration;
/// use fencelock::blocking::Client;
///
/// static LOCKS: LazyLock<Client> = LazyLock::new(|| Client::connect("memory:").unwrap());
///
/// drop(LOCKS.mutex("job")?.acquire()?);
/// assert!(fencelock::flush(Duration::from_secs(5)));
/// # Ok::<(), fencelock::Error>(())
/// ```
#[must_use = "it says whether everything was released in time"]
pub fn flush(limit: Duration) -> bool {
    EVERYWHERE.wait_blocking(limit)
}

/// Counts the clean-ups under way.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    count: Mutex<usize>,
    none_left: Condvar,
    told: Notify,
}

impl Pending {
    /// Counts one clean-up until the ticket is dropped, for this client and for the process.
    pub(crate) fn ticket(self: &Arc<Self>) -> PendingTicket {
        self.begin();
        EVERYWHERE.begin();
        PendingTicket(Arc::clone(self))
    }

    fn begin(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    fn end(&self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count -= 1;
        self.told.notify_waiters();
        if *count == 0 {
            self.none_left.notify_all();
        }
    }

    /// Blocks this thread until nothing is under way, at most for `limit`; says whether that came.
    pub(crate) fn wait_blocking(&self, limit: Duration) -> bool {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.none_left.wait_timeout_while(count, limit, |count| *count > 0);
        let (count, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *count == 0
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
        self.0.end();
        EVERYWHERE.end();
    }
}
