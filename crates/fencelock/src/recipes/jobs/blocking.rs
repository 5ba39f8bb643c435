//! Jobs for code that blocks: see [`crate::blocking`].

use std::sync::Arc;
use std::time::Duration;

use super::{Begun, JobRun, JobStatus, Slot};
use crate::blocking::{Client, wait};
use crate::error::{Error, Result};

/// A [`crate::jobs::Job`] for code that blocks.
///
/// ```
/// use fencelock::jobs::Slot;
///
/// let client = fencelock::blocking::Client::connect("memory:")?;
/// let report = client.job("report", Slot::daily("Europe/Berlin")?)?;
/// assert_eq!(report.run(|_| Ok::<_, fencelock::Error>(7))?, Some(7));
/// assert_eq!(report.run(|_| Ok::<_, fencelock::Error>(8))?, None, "it was sent today");
/// # Ok::<(), fencelock::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Job(super::Job);

impl Job {
    /// As [`crate::jobs::Job::retries`].
    #[must_use]
    pub fn retries(self, retries: u32) -> Self {
        Self(self.0.retries(retries))
    }

    /// As [`crate::jobs::Job::purpose`].
    #[must_use]
    pub fn purpose(self, purpose: impl AsRef<str>) -> Self {
        Self(self.0.purpose(purpose))
    }

    /// How long [`Job::run`] waits at most for a run that is under way elsewhere; without limit by default.
    #[must_use]
    pub fn timeout(self, limit: Duration) -> Self {
        Self(self.0.timeout(limit))
    }

    /// As [`crate::jobs::Job::max_hold`].
    #[must_use]
    pub fn max_hold(self, most: Duration) -> Self {
        Self(self.0.max_hold(most))
    }

    /// Runs `body` for the present slot, as [`crate::jobs::Job::run`]. Blocking code cannot be stopped when the lock is lost: the result is
    /// an error then, and another run for the slot may have begun.
    ///
    /// # Errors
    /// The same.
    pub fn run<T, E: From<Error>>(&self, body: impl FnOnce(&JobRun) -> Result<T, E>) -> Result<Option<T>, E> {
        let Begun::Run(run) = wait(self.0.begin())? else { return Ok(None) };
        let (engine, done) = (Arc::clone(run.guard().engine()), body(run.this()));
        let is_done = done.is_ok();
        // Where timers are, of which the caller's thread may have none.
        let tell = async move { if is_done { run.succeed().await } else { run.fail("").await } };
        let told = wait(engine.spawner.run(tell));
        // What went wrong first is what is told.
        let value = done?;
        told?;
        Ok(Some(value))
    }
}

impl Client {
    /// As [`crate::Client::job`].
    ///
    /// # Errors
    /// The same.
    pub fn job(&self, name: impl AsRef<str>, slot: Slot) -> Result<Job> {
        crate::Client::from(self.clone()).job(name, slot).map(Job)
    }

    /// As [`crate::Client::job_status`].
    ///
    /// # Errors
    /// The same.
    pub fn job_status(&self, name: impl AsRef<str>) -> Result<Option<JobStatus>> {
        wait(crate::Client::from(self.clone()).job_status(name))
    }
}
