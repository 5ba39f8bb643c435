//! The error of a call that consumed a guard.

use std::error::Error as StdError;
use std::fmt;

use crate::error::{Error, ErrorKind};

/// A failed release or downgrade, with the guard: the error of [`Guard::release_or_keep`](crate::Guard::release_or_keep) and
/// similar calls.
///
/// The conversion into an [`Error`], as by `?`, drops the guard, which releases the lock in the background.
#[derive(Debug)]
pub struct GuardError<G> {
    error: Error,
    guard: G,
}

impl<G> GuardError<G> {
    pub(crate) fn new(error: Error, guard: G) -> Self {
        Self { error, guard }
    }

    /// The error.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// The guard, as it was before the call.
    pub fn into_guard(self) -> G {
        self.guard
    }

    /// The same error with the guard inside another type.
    pub(crate) fn map<H>(self, wrap: impl FnOnce(G) -> H) -> GuardError<H> {
        GuardError { error: self.error, guard: wrap(self.guard) }
    }
}

impl<G> fmt::Display for GuardError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<G: fmt::Debug> StdError for GuardError<G> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

impl<G> From<GuardError<G>> for Error {
    fn from(failed: GuardError<G>) -> Self {
        failed.error
    }
}
