//! The task of a connection: drives requests and answers, receives messages, and detects a silent server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::sync::oneshot;

use super::handshake::Driver;
use super::user::{Chores, LinkUser};
use crate::time::Clock;

/// Counts the requests and answers of a connection.
#[derive(Default)]
pub(super) struct Traffic {
    /// Requests whose callers wait, or have not looked at the answer yet.
    waiting: AtomicUsize,
    /// The number of answers that callers have read.
    answered: AtomicUsize,
    ended: AtomicBool,
}

impl Traffic {
    /// Whether the connection ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

/// A caller that waits for its answer.
pub(super) struct Waiting<'a>(&'a Traffic);

impl<'a> Waiting<'a> {
    pub(super) fn new(traffic: &'a Traffic) -> Self {
        traffic.waiting.fetch_add(1, Ordering::Relaxed);
        Self(traffic)
    }
}

impl Waiting<'_> {
    /// The caller looks at its answer.
    pub(super) fn answered(self) {
        self.0.answered.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The task of a connection: runs its driver, its chores and the check for silence.
pub(super) async fn drive(
    (requests, driver): (MultiplexedConnection, Driver),
    chores: oneshot::Receiver<Chores>,
    (user, number): (Arc<dyn LinkUser>, u64),
    traffic: Arc<Traffic>,
    clock: Arc<dyn Clock>,
    patience: Duration,
) {
    let chores = async {
        match chores.await {
            Ok(chores) => chores.await,
            Err(_) => std::future::pending().await,
        }
    };
    // Reports the end in every case: also when the task is dropped.
    let _notice = EndNotice { traffic: &traffic, user: &*user, number };
    // Polls the driver first: most wake-ups are for the driver.
    tokio::select! {
        biased;
        () = driver => {}
        () = silence(requests, &traffic, &*clock, patience) => tracing::debug!(?patience, "a connection without an answer is given up"),
        () = chores => {}
    }
}

struct EndNotice<'a> {
    traffic: &'a Traffic,
    user: &'a dyn LinkUser,
    number: u64,
}

impl Drop for EndNotice<'_> {
    fn drop(&mut self) {
        self.traffic.end();
        self.user.disconnected(self.number);
    }
}

/// Completes when a question of `ask` receives no answer within half of `patience`, and `answered` stays the same meanwhile.
async fn unanswered<A>(ask: impl Fn() -> Option<A>, answered: impl Fn() -> usize, clock: &dyn Clock, patience: Duration)
where
    A: Future<Output = RedisResult<Value>>,
{
    loop {
        clock.sleep_until(clock.now().after(patience / 2)).await;
        let before = answered();
        let Some(question) = ask() else { continue };
        let answered = tokio::select! {
            biased;
            // A refusal is an answer, too: the server is busy.
            answer = question => answer.map_or_else(|error| error.code().is_some(), |_| true),
            () = clock.sleep_until(clock.now().after(patience / 2)) => answered() != before,
        };
        if !answered {
            return;
        }
    }
}

/// Completes when a caller waits, and neither a PING nor an earlier request has an answer. A caller whose task stands still and looks at no
/// answer waits as well, so waiting alone proves nothing.
async fn silence(wire: MultiplexedConnection, traffic: &Traffic, clock: &dyn Clock, patience: Duration) {
    let ping = || {
        let mut wire = wire.clone();
        let is_waited_for = traffic.waiting.load(Ordering::Relaxed) > 0;
        is_waited_for.then_some(async move { wire.send_packed_command(&redis::cmd("PING")).await })
    };
    unanswered(ping, || traffic.answered.load(Ordering::Relaxed), clock, patience).await;
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::stores::memory::VirtualClock;

    /// Whether a connection without an answer to questions is given up within ten times its patience, if it has `answered` so much.
    fn is_given_up(answered: impl Fn() -> usize) -> bool {
        let (clock, patience) = (VirtualClock::new(), Duration::from_secs(1));
        let given_up = unanswered(|| Some(std::future::pending()), answered, &clock, patience);
        let mut given_up = std::pin::pin!(given_up);
        (0..20).any(|_| {
            let has_ended = given_up.as_mut().now_or_never().is_some();
            clock.advance(patience / 2);
            has_ended
        })
    }

    #[test]
    fn a_connection_that_answers_what_was_asked_before_is_not_silent() {
        let answers = AtomicUsize::new(0);
        assert!(!is_given_up(|| answers.fetch_add(1, Ordering::Relaxed)));
        assert!(is_given_up(|| 0));
    }
}
