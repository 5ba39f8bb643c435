//! The errors: a single type, which says whether a request was certainly not applied.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::store::Contention;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A URL, an option or a claim is not valid; the message says what is allowed.
    Config,
    /// A name is not valid.
    InvalidName,
    /// The store cannot do this; [`Capability`](crate::capability::Capability) shows that in advance.
    Unsupported,
    /// `try_acquire`: another client is ahead. [`Error::contention`] names it, if the store did within 100 ms.
    Busy,
    /// The wait limit passed before the lock was free. [`Error::contention`] names the holder, if the store did by 100 ms after the limit;
    /// `None` follows a wait too short for any answer. A wait that ends in an outage is [`ErrorKind::Unreachable`].
    TimedOut,
    /// More contenders wait already than `max_waiters` allows.
    QueueFull,
    /// Another client queues under the same name with another kind of lock or another capacity.
    Conflict,
    /// The lock or its session was lost.
    Lost,
    /// The store cannot be reached, did not answer within the request deadline, or grants too late for its grants to be used.
    Unreachable,
    /// The store refused: permissions, credentials, read-only.
    Denied,
    /// The store has no room: disk, memory, descriptors, quota.
    Exhausted,
    /// This release does not understand the content of the store.
    Layout,
    /// The client was closed, or the guard was released.
    Closed,
    /// The store did something it must not do, or this crate has a bug.
    Internal,
}

/// Whether a request that failed can have taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The request was certainly not applied.
    NotApplied,
    /// The request may have been applied; only a look at the store can tell.
    Unknown,
}

/// An error: its kind, whether a retry can help, whether the request can have taken effect, and where it happened.
///
/// Its text is for people, and has the cause where one is known. The status of a service over HTTP:
/// ```
/// # fn status(error: &fencelock::Error) -> u16 {
/// match error.kind() {
///     _ if error.is_contention() => 409,    // others hold the lock: Busy, TimedOut, QueueFull
///     _ if error.is_outage() => 503,        // the holder is unknown
///     fencelock::ErrorKind::Lost => 503,    // neither: it was granted, and lost while the work ran
///     fencelock::ErrorKind::InvalidName => 400,
///     _ => 500,
/// }
/// # }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    outcome: Outcome,
    retryable: bool,
    operation: &'static str,
    message: Cow<'static, str>,
    context: Vec<(&'static str, String)>,
    contention: Option<Contention>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind` in `operation`: certainly not applied, and not worth a retry, unless said otherwise.
    #[must_use]
    pub fn new(kind: ErrorKind, operation: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            outcome: Outcome::NotApplied,
            retryable: false,
            operation,
            message: message.into(),
            context: Vec::new(),
            contention: None,
            source: None,
        }))
    }

    /// Adds a fact that helps to find the cause, and never a secret. Adding a fact twice has no effect.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        let fact = (key, value.to_string());
        if !self.0.context.contains(&fact) {
            self.0.context.push(fact);
        }
        self
    }

    /// Marks the error as retryable: the same request may succeed later.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.0.retryable = true;
        self
    }

    /// Marks the outcome as [unknown](Outcome::Unknown): the request may have taken effect.
    #[must_use]
    pub fn outcome_unknown(mut self) -> Self {
        self.0.outcome = Outcome::Unknown;
        self
    }

    /// Sets the cause, as [`source`](std::error::Error::source) returns it.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// A copy of the error, for a second caller that waited for the same answer. The source becomes text.
    pub(crate) fn again(&self) -> Self {
        let Inner { kind, outcome, retryable, operation, ref message, ref context, ref contention, ref source } =
            *self.0;
        Self(Box::new(Inner {
            kind,
            outcome,
            retryable,
            operation,
            message: message.clone(),
            context: context.clone(),
            contention: contention.clone(),
            source: source.as_ref().map(|source| source.to_string().into()),
        }))
    }

    pub(crate) fn contended(mut self, contention: Contention) -> Self {
        self.0.contention = Some(contention);
        self
    }

    /// The kind of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the request can have taken effect.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// Whether a retry may help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// Whether other contenders were in the way, or the wait was too short for an answer: busy, timed out, or too many that wait.
    #[must_use]
    pub fn is_contention(&self) -> bool {
        matches!(self.kind(), ErrorKind::Busy | ErrorKind::TimedOut | ErrorKind::QueueFull)
    }

    /// Whether the store was out of reach: down, cut off, or too slow for the request deadline, by the rule of [`OnOutage`](crate::OnOutage).
    #[must_use]
    pub fn is_outage(&self) -> bool {
        self.kind() == ErrorKind::Unreachable
    }

    /// The operation that failed.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The error and its cause, without the operation and the facts called `named`, for a sentence that says these itself.
    pub(crate) fn said_without(&self, named: &str) -> String {
        let mut said = self.0.message.to_string();
        for (key, value) in self.0.context.iter().filter(|(key, _)| *key != named) {
            said = if *key == "cause" { format!("{said}: {value}") } else { format!("{said}; {key} {value}") };
        }
        said
    }

    /// The facts given with [`Error::with`].
    pub fn context(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.context.iter().map(|(key, value)| (*key, value.as_str()))
    }

    /// The contenders ahead, for [`ErrorKind::Busy`], [`ErrorKind::TimedOut`] and [`ErrorKind::QueueFull`]; `None` if the store had not answered.
    #[must_use]
    pub fn contention(&self) -> Option<&Contention> {
        self.0.contention.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.operation, self.0.message)?;
        if let Some(contention) = &self.0.contention {
            write!(f, ": {contention}")?;
        }
        for (index, (key, value)) in self.0.context.iter().enumerate() {
            write!(f, "{}{key} {value}", if index == 0 { " (" } else { ", " })?;
        }
        if self.0.context.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({:?}): {self}", self.0.kind, self.0.outcome)?;
        match &self.0.source {
            Some(source) => write!(f, ", caused by {source}"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// `duration` for people, to the millisecond where it has some: the lateness of a timer says nothing.
pub(crate) fn rounded(duration: Duration) -> String {
    const STEP: Duration = Duration::from_millis(1);
    let millis = u64::try_from(duration.saturating_add(STEP / 2).as_millis());
    match millis {
        Ok(millis @ 10..) => format!("{:?}", Duration::from_millis(millis)),
        _ => format!("{duration:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_to_the_millisecond() {
        for (nanos, shown) in [
            (2_999_999_999, "3s"),
            (1_333_333_333, "1.333s"),
            (10_000_000_000, "10s"),
            (999_999_999, "1s"),
            (250_000_000, "250ms"),
            (1_500_000, "1.5ms"),
            (0, "0ns"),
        ] {
            assert_eq!(rounded(Duration::from_nanos(nanos)), shown);
        }
        assert!(rounded(Duration::MAX).ends_with('s'));
    }
}
