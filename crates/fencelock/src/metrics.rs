//! An observer that feeds the facade `metrics`: counts, times and numbers of a client's locks, by class of lock.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant};

use metrics::{Label, SharedString, counter, gauge, histogram};

use crate::breaker::{BreakerState, Circuit};
use crate::engine::observe::{Event, Observer};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::pattern::NamePattern;
use crate::sync::Mutex;

/// The class of names that match no pattern.
const OTHER: &str = "other";
/// The class of names beyond the limit.
const OVERFLOW: &str = "overflow";

/// An observer that feeds the facade [`metrics`](https://docs.rs/metrics): any recorder that the program installs has the figures.
///
/// Times are in seconds. Labels take few values: a lock appears under its *class*, the first pattern of [`Metrics::class`] that its name
/// matches, or else `other`. A `Metrics` may observe several clients; clients to distinguish get one each, with a [`Metrics::label`].
///
/// | metric | kind | labels | meaning |
/// |---|---|---|---|
/// | `fencelock_acquires_total` | counter | `class`, `outcome` | acquires that ended: `granted`, `abandoned` (dropped by the caller), `breaker_open` (not asked for), or the kind of the error (`busy`, `timed_out`, `unreachable`, …) |
/// | `fencelock_wait_seconds` | histogram | `class` | from the call to the grant, to the end of the wait limit, or to the drop |
/// | `fencelock_hold_seconds` | histogram | `class` | from a grant to its release or loss |
/// | `fencelock_hand_over_seconds` | histogram | `class` | from a release to the grant of the next waiter, both of this process; a hold of another process in between counts |
/// | `fencelock_holders`, `fencelock_waiters` | gauge | `class` | of this process, now |
/// | `fencelock_renewal_margin_seconds` | histogram | | the validity left when a renewal was confirmed |
/// | `fencelock_suspect_total` | counter | | how often renewals were overdue |
/// | `fencelock_sessions_opened_total`, `fencelock_sessions_lost_total` | counter | | sessions |
/// | `fencelock_lost_total` | counter | `class`, `cause` | locks that were lost: `broken`, `unconfirmed`, `expired`, … |
/// | `fencelock_degraded_total` | counter | `class`, `to` | grants outside of their store: by another one, or by `nothing` |
/// | `fencelock_breaker_state` | gauge | | 0 closed, 1 half-open, 2 open; not there before it first opened |
/// | `fencelock_store_errors_total` | counter | `kind` | requests that failed, those that were tried again included |
/// | `fencelock_clean_up_failures_total` | counter | `class` | releases and clean-ups that failed; they are tried again |
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use fencelock::observe::Metrics;
/// use fencelock::Client;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
/// let metrics = Metrics::new().class("orders/*")?.class("reports/**")?;
/// let client = Client::builder().observer(Arc::new(metrics)).connect("memory:").await?;
/// # client.close().await?;
/// # Ok(()) }
/// ```
#[derive(Default)]
pub struct Metrics {
    patterns: Vec<NamePattern>,
    labels: Vec<Label>,
    /// How many names are classes of their own; 0 by default.
    most_names: usize,
    names: Mutex<HashSet<Name>>,
    /// The names that a task of this process waits for: as many as waiters at most.
    awaited: Mutex<HashMap<Name, Awaited>>,
}

/// A name with waiters in this process.
#[derive(Default)]
struct Awaited {
    waiters: usize,
    released: Option<Instant>,
}

impl Metrics {
    /// Metrics with a single class, `other`, for all locks. [`Metrics::class`] adds classes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a class for the names that match `pattern` (a [`NamePattern`]), with the pattern as its label. The first matching pattern
    /// counts.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a pattern that is not valid.
    pub fn class(mut self, pattern: impl AsRef<str>) -> Result<Self> {
        self.patterns.push(NamePattern::new(pattern)?);
        Ok(self)
    }

    /// Makes a class of each name that matches no pattern: of the first `most` such names, and `overflow` for all further names. Every
    /// reader of the metrics sees the names.
    #[must_use]
    pub fn raw_names(mut self, most: usize) -> Self {
        self.most_names = most;
        self
    }

    /// Adds a label to every figure.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push(Label::new(key.into(), value.into()));
        self
    }

    fn class_of(&self, name: &Name) -> SharedString {
        if let Some(pattern) = self.patterns.iter().find(|pattern| pattern.matches(name)) {
            return pattern.as_str().to_owned().into();
        }
        if self.most_names == 0 {
            return OTHER.into();
        }
        let mut names = self.names.lock();
        if names.contains(name) || (names.len() < self.most_names && names.insert(name.clone())) {
            return name.as_str().to_owned().into();
        }
        OVERFLOW.into()
    }

    fn labels(&self, more: impl IntoIterator<Item = (&'static str, SharedString)>) -> Vec<Label> {
        let more = more.into_iter().map(|(key, value)| Label::new(key, value));
        self.labels.iter().cloned().chain(more).collect()
    }

    fn class_label(&self, name: &Name) -> Vec<Label> {
        self.labels([("class", self.class_of(name))])
    }

    fn ended(&self, name: &Name, outcome: impl Into<SharedString>, waited: Option<Duration>) {
        let class = self.class_of(name);
        counter!("fencelock_acquires_total", self.labels([("class", class.clone()), ("outcome", outcome.into())]))
            .increment(1);
        if let Some(waited) = waited {
            histogram!("fencelock_wait_seconds", self.labels([("class", class)])).record(waited);
        }
    }

    fn refused(&self, name: &Name, error: &Error, waited: Duration) {
        let kind = error.kind();
        if error.operation() == Circuit::OPERATION {
            return self.ended(name, "breaker_open", None);
        }
        self.ended(name, label_of(kind), (kind == ErrorKind::TimedOut).then_some(waited));
        if !error.is_contention() && !matches!(kind, ErrorKind::Config | ErrorKind::InvalidName | ErrorKind::Closed) {
            self.failed(error);
        }
    }

    fn failed(&self, error: &Error) {
        let labels = self.labels([("kind", label_of(error.kind()))]);
        counter!("fencelock_store_errors_total", labels).increment(1);
    }

    fn waits(&self, name: &Name) {
        self.awaited.lock().entry(name.clone()).or_default().waiters += 1;
        gauge!("fencelock_waiters", self.class_label(name)).increment(1);
    }

    fn waits_no_longer(&self, name: &Name) {
        let mut awaited = self.awaited.lock();
        if let Some(entry) = awaited.get_mut(name) {
            entry.waiters = entry.waiters.saturating_sub(1);
            if entry.waiters == 0 {
                awaited.remove(name);
            }
        }
        drop(awaited);
        gauge!("fencelock_waiters", self.class_label(name)).decrement(1);
    }

    /// Begins the time in which the waiters of this process may be granted.
    fn releases(&self, name: &Name) {
        if let Some(entry) = self.awaited.lock().get_mut(name) {
            entry.released = Some(Instant::now());
        }
    }

    fn is_let_in(&self, name: &Name) {
        let released = self.awaited.lock().get_mut(name).and_then(|entry| entry.released.take());
        if let Some(released) = released {
            histogram!("fencelock_hand_over_seconds", self.class_label(name)).record(released.elapsed());
        }
    }

    fn held(&self, name: &Name, held: Duration) {
        let labels = self.class_label(name);
        gauge!("fencelock_holders", labels.clone()).decrement(1);
        histogram!("fencelock_hold_seconds", labels).record(held);
    }

    fn count(&self, metric: &'static str) {
        counter!(metric, self.labels([])).increment(1);
    }
}

impl Observer for Metrics {
    fn observe(&self, event: &Event<'_>) {
        match *event {
            Event::SessionOpened => self.count("fencelock_sessions_opened_total"),
            Event::SessionLost { .. } => self.count("fencelock_sessions_lost_total"),
            Event::Suspect => self.count("fencelock_suspect_total"),
            Event::Renewed { left } if left < Duration::MAX => {
                histogram!("fencelock_renewal_margin_seconds", self.labels([])).record(left);
            }
            Event::Waiting { name, .. } => self.waits(name),
            Event::WaitEnded { name } => self.waits_no_longer(name),
            Event::Woken { name, granted: true } => self.is_let_in(name),
            Event::Granted { name, waited, .. } => {
                self.ended(name, "granted", Some(waited));
                gauge!("fencelock_holders", self.class_label(name)).increment(1);
            }
            Event::Refused { name, error, waited } => self.refused(name, error, waited),
            Event::Abandoned { name, waited } => self.ended(name, "abandoned", Some(waited)),
            Event::Releasing { name } => self.releases(name),
            Event::Degraded { name, store } => {
                let class = self.class_of(name);
                let to = SharedString::const_str(store.unwrap_or("nothing"));
                counter!("fencelock_degraded_total", self.labels([("class", class.clone()), ("to", to)])).increment(1);
                if store.is_none() {
                    gauge!("fencelock_holders", self.labels([("class", class)])).increment(1);
                }
            }
            Event::Breaker { state } => gauge!("fencelock_breaker_state", self.labels([])).set(match state {
                BreakerState::Closed => 0.0,
                BreakerState::HalfOpen { .. } => 1.0,
                BreakerState::Open { .. } => 2.0,
            }),
            Event::Released { name, held } => self.held(name, held),
            Event::Lost { name, cause, held } => {
                self.held(name, held);
                let labels = self.labels([("class", self.class_of(name)), ("cause", label_of(cause))]);
                counter!("fencelock_lost_total", labels).increment(1);
            }
            Event::Retried { error, .. } | Event::RenewalFailed { error } => self.failed(error),
            Event::ReleaseFailed { name, error } => {
                counter!("fencelock_clean_up_failures_total", self.class_label(name)).increment(1);
                self.failed(error);
            }
            Event::Renewed { .. }
            | Event::Confirmed
            | Event::Woken { granted: false, .. }
            | Event::Requeued { .. }
            | Event::Downgraded { .. }
            | Event::Reentered { .. } => {}
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("patterns", &self.patterns).finish_non_exhaustive()
    }
}

/// The name of a variant as a label: `timed_out` for `TimedOut`.
fn label_of(variant: impl fmt::Debug) -> SharedString {
    let mut label = String::new();
    for c in format!("{variant:?}").chars() {
        label.extend((c.is_uppercase() && !label.is_empty()).then_some('_'));
        label.push(c.to_ascii_lowercase());
    }
    label.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Loss;

    #[test]
    fn a_star_of_a_class_is_one_part_of_a_name_as_in_a_route() {
        let metrics = Metrics::new().class("orders/*").unwrap().class("orders/**").unwrap();
        let class_of = |name| metrics.class_of(&Name::new(name).unwrap()).into_owned();
        assert_eq!(class_of("orders/7"), "orders/*");
        assert_eq!(class_of("orders/7/lines"), "orders/**");
        assert_eq!((class_of("orders"), class_of("reports/7")), (OTHER.to_owned(), OTHER.to_owned()));
        let error = Metrics::new().class("order-*").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("a whole part"), "{error}");
    }

    #[test]
    fn a_million_names_are_as_many_classes_as_were_allowed_and_two() {
        let metrics = Metrics::new().class("orders/*").unwrap().raw_names(100);
        let mut classes = HashSet::new();
        for number in 0..1_000_000 {
            let name = Name::new(format!("{}/{number}", ["orders", "jobs"][number % 2])).unwrap();
            classes.insert(metrics.class_of(&name).into_owned());
        }
        assert_eq!(classes.len(), 102);
        assert!(classes.contains("orders/*") && classes.contains(OVERFLOW) && classes.contains("jobs/1"));
        assert_eq!(Metrics::new().class_of(&Name::new("a").unwrap()).as_ref(), OTHER);
    }

    #[test]
    fn the_label_of_a_variant_is_its_name_in_lower_case() {
        let labels = [ErrorKind::InvalidName, ErrorKind::Busy].map(|kind| label_of(kind).into_owned());
        assert_eq!(labels, ["invalid_name", "busy"]);
        let labels = [Loss::PerhapsRestarted, Loss::HeldTooLong].map(|loss| label_of(loss).into_owned());
        assert_eq!(labels, ["perhaps_restarted", "held_too_long"]);
    }
}
