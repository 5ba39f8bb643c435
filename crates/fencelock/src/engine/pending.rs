//! Clean-up that outlives its caller, counted so that an ending program can wait for it.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::io;

/// Those of all clients of the process.
static EVERYWHERE: LazyLock<Pending> = LazyLock::new(Pending::default);

/// Waits until every release and other clean-up that any client of the process had under way when this was called has ended,
/// at most for `limit`, and says whether that came about. What begins later is not waited for. A client whose store is out of
/// reach makes it `false`: its clean-up goes on for as long as its session may live.
///
/// For the end of `main`: the drop of a guard or of a client starts its release and waits for nothing, and a client in a `static` is never
/// dropped. Blocks the thread; it must not be called where releases need this very thread to go on, inside an async runtime
/// with [`Io::CurrentRuntime`](crate::Io::CurrentRuntime): it would wait for `limit` in vain. On the library's own threads, in an
/// observer, it does not wait: it says at once whether there is nothing to wait for.
///
/// What another thread is giving back by itself at that moment, as uncontended releases on `memory:` and `file:` are, is not under
/// way for this: a caller that needs it waits for that thread. Both stores end such a place with its process.
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
    numbers: Mutex<Numbers>,
    oldest_ended: Condvar,
    told: Notify,
}

/// Each clean-up has a number, higher than all before it.
#[derive(Debug, Default)]
struct Numbers {
    next: u64,
    under_way: BTreeSet<u64>,
}

impl Numbers {
    fn is_any_before(&self, number: u64) -> bool {
        self.under_way.first().is_some_and(|oldest| *oldest < number)
    }
}

impl Pending {
    /// Counts one clean-up until the ticket is dropped, for this client and for the process.
    pub(crate) fn ticket(self: &Arc<Self>) -> PendingTicket {
        PendingTicket { number: self.begin(), everywhere: EVERYWHERE.begin(), pending: Arc::clone(self) }
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> u64 {
        let mut numbers = self.numbers();
        let number = numbers.next;
        numbers.next += 1;
        numbers.under_way.insert(number);
        number
    }

    fn end(&self, number: u64) {
        let mut numbers = self.numbers();
        let was_oldest = numbers.under_way.first() == Some(&number);
        numbers.under_way.remove(&number);
        self.told.notify_waiters();
        if was_oldest {
            self.oldest_ended.notify_all();
        }
    }

    /// Blocks this thread until what is under way now has ended, at most for `limit`; says whether that came.
    fn wait_blocking(&self, limit: Duration) -> bool {
        self.wait_for_those_before(self.next(), limit)
    }

    /// The number of the next clean-up.
    fn next(&self) -> u64 {
        self.numbers().next
    }

    fn wait_for_those_before(&self, number: u64, limit: Duration) -> bool {
        let waited = self.oldest_ended.wait_timeout_while(self.numbers(), limit, |all| all.is_any_before(number));
        let (numbers, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !numbers.is_any_before(number)
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
            if self.numbers().under_way.len() <= own {
                return;
            }
            told.await;
        }
    }
}

/// One clean-up under way.
#[derive(Debug)]
pub(crate) struct PendingTicket {
    pending: Arc<Pending>,
    number: u64,
    everywhere: u64,
}

impl Drop for PendingTicket {
    fn drop(&mut self) {
        self.pending.end(self.number);
        EVERYWHERE.end(self.everywhere);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_later_is_not_waited_for_and_what_is_older_is() {
        let pending = Arc::new(Pending::default());
        let (first, second) = (pending.ticket(), pending.ticket());
        let asked = pending.next();
        let later = pending.ticket();
        let is_over = || pending.wait_for_those_before(asked, Duration::ZERO);
        drop(second);
        assert!(!is_over(), "the first one is under way");
        drop(first);
        assert!(is_over(), "the later one is nobody's concern");
        assert!(!pending.wait_blocking(Duration::ZERO), "but of those who ask from now on");
        drop(later);
        assert!(pending.wait_blocking(Duration::ZERO));
    }
}
