//! Clean-up that outlives its caller, counted so that an ending program can wait for it.

use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::io;

/// The clean-ups of all clients of the process.
static EVERYWHERE: LazyLock<Pending> = LazyLock::new(Pending::default);

/// Waits up to `limit` for the releases and the clean-up of all clients of the process, and returns whether all are done.
///
/// Call it at the end of `main`, after the program has ended its own workers: the drop of a guard or of a client starts a release and waits
/// for nothing, and a client in a `static` is never dropped. If a store is unreachable, the client's clean-up lasts as long as its session
/// may live.
///
/// `flush` blocks the thread. Inside an async runtime with [`Io::CurrentRuntime`](crate::Io::CurrentRuntime) the releases need this very
/// thread, so `flush` would wait until `limit`. On the library's own threads, in an observer, `flush` returns at once.
///
/// Releases that another thread makes by itself, as uncontended releases on `memory:` and `file:` are, do not count here: a caller that
/// needs them waits for that thread. Both stores end such a place with its process.
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
    EVERYWHERE.wait_blocking(if io::on_own_thread() { Duration::ZERO } else { limit })
}

/// Counts the clean-ups under way.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    under_way: Mutex<usize>,
    none_left: Condvar,
    ended: Notify,
}

impl Pending {
    /// Counts one clean-up until the ticket is dropped, for this client and for the process.
    pub(crate) fn ticket(self: &Arc<Self>) -> PendingTicket {
        *self.under_way() += 1;
        *EVERYWHERE.under_way() += 1;
        PendingTicket(Arc::clone(self))
    }

    fn under_way(&self) -> MutexGuard<'_, usize> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn one_ended(&self) {
        *self.under_way() -= 1;
        self.ended.notify_waiters();
        self.none_left.notify_all();
    }

    /// Blocks this thread until nothing is under way, for `limit` at most; returns whether nothing is.
    fn wait_blocking(&self, limit: Duration) -> bool {
        let waited = self.none_left.wait_timeout_while(self.under_way(), limit, |under_way| *under_way > 0);
        let (under_way, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *under_way == 0
    }

    /// Waits until no more than `own` clean-ups are under way, which the caller counts as its own.
    pub(crate) async fn wait_for_others(&self, own: usize) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if *self.under_way() <= own {
                return;
            }
            ended.await;
        }
    }
}

/// A clean-up under way.
#[derive(Debug)]
pub(crate) struct PendingTicket(Arc<Pending>);

impl Drop for PendingTicket {
    fn drop(&mut self) {
        self.0.one_ended();
        EVERYWHERE.one_ended();
    }
}
