//! A held lock, for code that blocks.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{answers, block_on, may_block};
use crate::engine::hold::GuardState;
use crate::error::{ErrorKind, Result};
use crate::kind::{Exclusive, Permits, Reading, Writing};
use crate::name::Name;
use crate::primitives::GuardError;
use crate::token::FencingToken;

/// The answers of a guard, by the guard underneath.
macro_rules! guard_answers {
    ($inner:tt) => {
        answers! { "Guard" in $inner;
            has name() -> &Name;
            has is_degraded() -> bool;
            has token() -> Option<FencingToken>;
            has state() -> GuardState;
            has remaining() -> Duration;
            has break_reason() -> Option<&str>;
            has refusal() -> Option<String>;
            has lost_token() -> CancellationToken;
            checks require_token() -> FencingToken;
            checks check() -> ();
        }
    };
}
pub(super) use guard_answers;

/// A [`crate::Guard`] for code that blocks. Dropping it releases the lock in the background.
#[must_use = "a guard that is dropped releases its lock"]
#[derive(Debug)]
pub struct Guard<K = Exclusive>(pub(super) crate::Guard<K>);

/// A [`crate::ReadGuard`] for code that blocks.
pub type ReadGuard = Guard<Reading>;

/// A [`crate::WriteGuard`] for code that blocks.
pub type WriteGuard = Guard<Writing>;

/// A [`crate::PermitGuard`] for code that blocks.
pub type PermitGuard = Guard<Permits>;

impl WriteGuard {
    /// Turns this writer into a reader, in the same place.
    ///
    /// # Errors
    /// As [`crate::WriteGuard::downgrade`].
    pub fn downgrade(self) -> Result<ReadGuard> {
        Ok(self.downgrade_or_keep()?)
    }

    /// As [`WriteGuard::downgrade`], and the error has the guard.
    ///
    /// # Errors
    /// As [`crate::WriteGuard::downgrade_or_keep`].
    pub fn downgrade_or_keep(self) -> Result<ReadGuard, GuardError<ReadGuard>> {
        match may_block() {
            Ok(()) => block_on(self.0.downgrade_or_keep()).map(Guard).map_err(|failed| failed.map(Guard)),
            Err(error) => Err(GuardError::new(error, Guard(self.0.become_kind()))),
        }
    }
}

impl<K> Guard<K> {
    /// Runs `body` under this guard and releases it. Blocking code cannot be stopped when the lock is lost: `body` asks [`Guard::check`]
    /// itself. A release that fails is retried in the background.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when the lock was lost before `body` ended.
    pub fn run<T>(self, body: impl FnOnce(&Self) -> T) -> Result<T> {
        let output = body(&self);
        self.check()?;
        match self.release() {
            Err(error) if error.kind() == ErrorKind::Lost => Err(error),
            _ => Ok(output),
        }
    }

    guard_answers!(0);

    /// Another guard of the same hold.
    ///
    /// # Errors
    /// As [`crate::Guard::reenter`].
    pub fn reenter(&self) -> Result<Self> {
        self.0.reenter().map(Self)
    }

    /// Ends this guard; the last guard of a hold releases the lock.
    ///
    /// # Errors
    /// As [`crate::Guard::release`].
    pub fn release(self) -> Result<()> {
        Ok(self.release_or_keep()?)
    }

    /// As [`Guard::release`], and the error has the guard.
    ///
    /// # Errors
    /// As [`crate::Guard::release_or_keep`].
    pub fn release_or_keep(self) -> Result<(), GuardError<Self>> {
        match may_block() {
            Ok(()) => block_on(self.0.release_or_keep()).map_err(|failed| failed.map(Self)),
            Err(error) => Err(GuardError::new(error, self)),
        }
    }
}
