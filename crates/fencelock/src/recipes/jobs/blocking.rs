//! Jobs for code that blocks: see [`crate::blocking`].

use std::time::Duration;

use super::{Begun, JobRun, JobStatus, Slot};
use crate::blocking::{Client, options, recipe, wait, waits};
use crate::error::{Error, Result};
use crate::name::Name;

recipe! {
    /// ```
    /// use fencelock::jobs::Slot;
    ///
    /// let client = fencelock::blocking::Client::connect("memory:")?;
    /// let report = client.job("report", Slot::daily("Europe/Berlin")?)?;
    /// assert_eq!(report.run(|_| Ok::<_, fencelock::Error>(7))?, Some(7));
    /// assert_eq!(report.run(|_| Ok::<_, fencelock::Error>(8))?, None, "it was sent today");
    /// # Ok::<(), fencelock::Error>(())
    /// ```
    "jobs::Job" Job(super::Job);
    job(name: impl AsRef<str>, slot: Slot);
    with retries(retries: u32);
    with purpose(purpose: impl AsRef<str>);
    with timeout(limit: Duration);
    with max_hold(most: Duration);
}

impl Job {
    /// Runs `body` for the present slot, as [`crate::jobs::Job::run`]. Blocking code cannot be stopped when the lock is lost: the result is
    /// an error then, and another run for the slot may have begun.
    ///
    /// # Errors
    /// The same.
    pub fn run<T, E: From<Error>>(&self, body: impl FnOnce(&JobRun) -> Result<T, E>) -> Result<Option<T>, E> {
        let Begun::Run(run) = wait(self.0.begin())? else { return Ok(None) };
        let done = body(run.this());
        let ended = if done.is_ok() { wait(run.succeed()) } else { wait(run.fail("")) };
        // The first error is reported.
        let value = done?;
        ended?;
        Ok(Some(value))
    }
}

impl Client {
    waits! { "Client";
        job_status(name: impl AsRef<str>) -> Option<JobStatus>, |status| status;
        job_names() -> Vec<Name>, |names| names;
    }
}
