//! The circuit breaker of a client: acquires fail at once while its store is known to be out of reach.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::engine::observe::{Event, Observer, Observers};
use crate::error::{Error, ErrorKind, Result, rounded};
use crate::sync::Mutex;
use crate::time::{Clock, Moment};

/// The settings of a client's circuit breaker: [`ClientBuilder::breaker`](crate::ClientBuilder::breaker).
///
/// The breaker opens when this number of acquires in a row have failed because the store was out of reach (the rule is that of
/// [`OnOutage`](crate::OnOutage)), each after its own wait limit or [`Retry::give_up_after`](crate::Retry). While it is open, acquires fail
/// at once, with [`ErrorKind::Unreachable`], the [operation](Error::operation) `breaker` and for how long it has been open. After
/// `open_for` one acquire is the probe, polled or not, and all others keep failing: the breaker closes if the store answers the probe, even
/// if another client holds the lock. Otherwise it stays open for another `open_for`.
///
/// Only acquires are judged and refused. Renewals, releases and withdrawals of abandoned requests still reach the store, and so does a wait
/// that was under way when the breaker opened: that wait keeps its place, and ends by its own limit.
///
/// ```
/// use std::time::Duration;
///
/// use fencelock::{Breaker, Client};
///
/// let builder = Client::builder().breaker(Breaker::default().failures(3).open_for(Duration::from_secs(10)));
/// # drop(builder);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Breaker {
    /// The number of acquires in a row that find the store out of reach before the breaker opens: 1 or more.
    pub failures: u32,
    /// The time that the breaker stays open before an acquire probes the store: 1 ms or more.
    pub open_for: Duration,
}

impl Default for Breaker {
    /// 5 failures, 5 s.
    fn default() -> Self {
        Self { failures: 5, open_for: Duration::from_secs(5) }
    }
}

impl Breaker {
    /// Sets the number of failures in a row that opens the breaker.
    #[must_use]
    pub const fn failures(mut self, failures: u32) -> Self {
        self.failures = failures;
        self
    }

    /// Sets the time that the breaker stays open before a probe.
    #[must_use]
    pub const fn open_for(mut self, time: Duration) -> Self {
        self.open_for = time;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.failures >= 1 && self.open_for >= Duration::from_millis(1) {
            return Ok(());
        }
        let message = "a breaker opens after 1 failure or more, for 1 ms or more";
        Err(Error::new(ErrorKind::Config, "breaker", message)
            .with("failures", self.failures)
            .with("open_for", format!("{:?}", self.open_for)))
    }
}

/// The state of a client's circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BreakerState {
    /// Acquires go to the store.
    Closed,
    /// Acquires fail at once.
    Open {
        /// When the breaker opened. A failed probe does not change this time.
        since: SystemTime,
    },
    /// A single acquire probes the store; all other acquires fail at once.
    HalfOpen {
        /// When the breaker opened.
        since: SystemTime,
    },
}

/// The breaker itself. An observer of its client, so it notices when a probe got into the queue: the store answered then.
pub(crate) struct Circuit {
    options: Breaker,
    clock: Arc<dyn Clock>,
    /// Notified when the state changes.
    observers: Observers,
    state: Mutex<Tally>,
}

struct Tally {
    /// Acquires in a row that found the store out of reach.
    failures: u32,
    /// Since when the breaker is not closed.
    opened: Option<OpenCircuit>,
    last: Option<Error>,
}

#[derive(Clone, Copy)]
struct OpenCircuit {
    since: Moment,
    wall: SystemTime,
    /// When the next probe may go; `None` while one is under way.
    probe_at: Option<Moment>,
}

impl Tally {
    fn shown(&self) -> BreakerState {
        match self.opened {
            None => BreakerState::Closed,
            Some(OpenCircuit { wall: since, probe_at: Some(_), .. }) => BreakerState::Open { since },
            Some(OpenCircuit { wall: since, .. }) => BreakerState::HalfOpen { since },
        }
    }
}

/// The permission to ask the store, for one acquire.
#[must_use]
pub(crate) struct Pass {
    circuit: Arc<Circuit>,
    pub(crate) is_probe: bool,
}

/// The finding of an acquire about the store.
enum Verdict {
    Answers,
    Away(Error),
    Unknown,
}

impl Circuit {
    /// The failed operation of a refused acquire.
    pub(crate) const OPERATION: &str = "breaker";

    pub(crate) fn new(options: Breaker, clock: Arc<dyn Clock>, observers: Observers) -> Self {
        let state = Mutex::new(Tally { failures: 0, opened: None, last: None });
        Self { options, clock, observers, state }
    }

    pub(crate) fn state(&self) -> BreakerState {
        self.state.lock().shown()
    }

    /// Changes the state, and reports the new one if there is one.
    fn change<T>(&self, change: impl FnOnce(&mut Tally) -> T) -> T {
        let mut state = self.state.lock();
        let before = state.shown();
        let changed = change(&mut state);
        let after = state.shown();
        drop(state);
        if before != after {
            if let BreakerState::Open { .. } = after {
                tracing::warn!("the circuit breaker is open: acquires fail at once");
            }
            self.observers.tell(Event::Breaker { state: after });
        }
        changed
    }

    /// Lets an acquire ask the store, or says that it must not.
    pub(crate) fn admit(self: &Arc<Self>) -> Result<Pass> {
        let now = self.clock.now();
        let is_probe = self.change(|state| {
            let Some(opened) = &mut state.opened else { return Ok(false) };
            if opened.probe_at.is_some_and(|at| now >= at) {
                opened.probe_at = None;
                return Ok(true);
            }
            let message = "the circuit breaker is open: the store was out of reach";
            let error = Error::new(ErrorKind::Unreachable, Self::OPERATION, message).retryable();
            let error = error.with("open_for", rounded(now.since(opened.since)));
            Err(match &state.last {
                Some(last) => error.with("cause", last),
                None => error,
            })
        })?;
        Ok(Pass { circuit: Arc::clone(self), is_probe })
    }

    fn judge(&self, is_probe: bool, verdict: Verdict) {
        let now = self.clock.now();
        self.change(|state| {
            let is_probe = is_probe && state.opened.is_some_and(|opened| opened.probe_at.is_none());
            match (verdict, &mut state.opened) {
                (Verdict::Answers, None) => state.failures = 0,
                (Verdict::Answers, Some(_)) if is_probe => *state = Tally { failures: 0, opened: None, last: None },
                (Verdict::Away(error), None) => {
                    state.failures = state.failures.saturating_add(1);
                    state.last = Some(error);
                    if state.failures >= self.options.failures {
                        let probe_at = Some(now.after(self.options.open_for));
                        state.opened = Some(OpenCircuit { since: now, wall: self.clock.wall(), probe_at });
                    }
                }
                (Verdict::Away(error), Some(opened)) if is_probe => {
                    opened.probe_at = Some(now.after(self.options.open_for));
                    state.last = Some(error);
                }
                // The next acquire is the probe.
                (Verdict::Unknown, Some(opened)) if is_probe => opened.probe_at = Some(now),
                _ => {}
            }
        });
    }
}

impl Observer for Circuit {
    fn observe(&self, event: &Event<'_>) {
        if matches!(event, Event::Waiting { .. }) {
            // Only a probe, or an acquire from before the breaker opened, reaches the store.
            self.judge(true, Verdict::Answers);
        }
    }
}

impl Pass {
    /// The acquire has ended, with this error or without one.
    pub(crate) fn ended(mut self, error: Option<&Error>) {
        let verdict = match error {
            None => Verdict::Answers,
            Some(error) if error.is_outage() => Verdict::Away(error.again()),
            Some(error) => match error.kind() {
                ErrorKind::Lost | ErrorKind::Closed | ErrorKind::Internal => Verdict::Unknown,
                // The wait was too short for an answer.
                ErrorKind::TimedOut if error.contention().is_none() => Verdict::Unknown,
                _ => Verdict::Answers,
            },
        };
        let is_probe = std::mem::take(&mut self.is_probe);
        self.circuit.judge(is_probe, verdict);
    }
}

impl Drop for Pass {
    /// A probe that its caller dropped has no result.
    fn drop(&mut self) {
        if self.is_probe {
            self.circuit.judge(true, Verdict::Unknown);
        }
    }
}

impl fmt::Debug for Circuit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Circuit").field("options", &self.options).field("state", &self.state()).finish_non_exhaustive()
    }
}
