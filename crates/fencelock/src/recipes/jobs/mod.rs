//! Jobs that run once in each slot, in the whole fleet: the nightly report that every host starts and one of them makes.
//!
//! A [`Job`] is a [`Mutex`] and the [note](crate::Guard::write_note) on it, which says which run was the last, for which [`Slot`], and how it
//! ended. Only the store's clock counts: a host whose clock is an hour off asks at another time, and does not run the job once more.

pub mod blocking;
mod record;
mod slot;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use self::record::JobRecord;
pub use self::record::{EarlierRun, JobRun, RunState};
pub use self::slot::Slot;
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::primitives::{Guard, Mutex};
use crate::store::Contender;

/// How long the client repeats the end of a run to a store that rejects it.
const TELLING: Duration = Duration::from_secs(30);
const TELL_AGAIN: Duration = Duration::from_millis(500);
/// The prefix of the locks whose notes list the jobs, and their number.
const LIST: &str = "fencelock-jobs-";
const LISTS: usize = 16;
/// How long the first runs of a job wait for its list.
const LISTING: Duration = Duration::from_secs(5);

/// A job, which runs at most once at a time, and once for each [`Slot`].
///
/// A run that fails is its slot's last one, too, unless [`Job::retries`] allows more. **A run that dies**, with its process, its host or
/// its connection, is followed by another run for the same slot at the next request. The job may have been done in part, or wholly, so make
/// it repeatable, and pass [`JobRun::token`] to its resources.
///
/// # Examples
/// ```
/// use fencelock::jobs::Slot;
///
/// # async fn send() -> fencelock::Result<u32> { Ok(7) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock::Result<()> {
/// # let client = fencelock::Client::connect("memory:").await?;
/// let report = client.job("report", Slot::daily("Europe/Berlin")?)?;
/// // On every host, as often as you like:
/// let sent = report.run(async |this| { println!("the report of {}", this.slot); send().await }).await?;
/// assert_eq!(sent, Some(7));
/// let again = report.run(async |_| send().await).await?;
/// assert_eq!(again, None, "it was sent today");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Job {
    lock: Mutex,
    slot: Slot,
    retries: u32,
    one_per_host: bool,
}

/// Whether a run is due, by the note.
enum Asked {
    /// The first run is due, after the second.
    Due(Box<JobRecord>, Option<JobRun>),
    /// The slot has had its run. The value is the job's last run.
    Done(JobRun),
}

/// The result of an attempt to begin.
#[derive(Debug)]
#[must_use = "a run that is dropped has died"]
pub enum Begun {
    /// A run has begun in this client.
    Run(Box<Run>),
    /// The slot has had its run. The value is the job's last run, with named slots perhaps another slot's.
    Already(JobRun),
}

/// The status of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobStatus {
    /// The last run. A run without end whose process no longer holds the lock is [`RunState::Died`].
    pub last: JobRun,
    /// Up to four earlier runs, the newest first: fewer where the record has no room.
    pub earlier: Vec<EarlierRun>,
    /// When the last run that succeeded ended.
    pub succeeded: Option<SystemTime>,
    /// The number of slots that have begun since, without a run; while a run is in progress, the present slot does not count. `None` for
    /// slots that were named, and where this release does not understand the schedule. [`Slot::MOST_MISSED`] at most.
    pub missed: Option<u64>,
    /// Whether the record is from the future of the store's clock, by more than a minute: the clock was ahead, and was set back. Such a run
    /// prevents runs of its own slot and of the slots in `earlier` only.
    pub is_ahead: bool,
    /// The store's time.
    pub now: SystemTime,
}

impl Client {
    /// The job `name`, which runs once in each `slot`. Its lock is the mutex of that name, and its record the note on it, which no other
    /// program may use otherwise.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`]; [`ErrorKind::Unsupported`] where [`Capability::notes`](crate::capability::Capability) is false.
    #[doc(alias("cron", "schedule"))]
    pub fn job(&self, name: impl AsRef<str>, slot: Slot) -> Result<Job> {
        let lock = crate::recipes::with_notes(self, name, "job")?;
        Ok(Job { lock, slot, retries: 0, one_per_host: false })
    }

    /// The status of the job `name`, with any slots; `None` if it never ran. Three requests at most.
    ///
    /// # Errors
    /// As [`Client::note`] and [`Client::contention`]; [`ErrorKind::Layout`] where the note is none of a job.
    pub async fn job_status(&self, name: impl AsRef<str>) -> Result<Option<JobStatus>> {
        let lock = self.mutex(name)?;
        let (Some((mut record, mut last)), mut now) = read_record(&lock).await? else { return Ok(None) };
        if last.state == RunState::Running {
            let holder = self.contention(lock.name()).await?.holder;
            let is_held = holder.and_then(|holder| holder.grant).is_some_and(|grant| grant.token == last.token);
            if !is_held {
                // The run's end may have been noted between the two requests.
                let before = last.token;
                let (Some(again), later) = read_record(&lock).await? else { return Ok(None) };
                ((record, last), now) = (again, later);
                if last.token == before {
                    last = died(last);
                }
            }
        }
        let slot = record.schedule.as_deref().and_then(|schedule| schedule.parse::<Slot>().ok());
        let missed_by = |slot: Slot| {
            let present = if last.state == RunState::Running { slot.at(now).ok()?.start? } else { now };
            slot.between(record.reaches(record.schedule.as_deref()), present).ok()
        };
        let (missed, is_ahead) = (slot.and_then(missed_by), record.is_ahead(now));
        let succeeded = last.succeeded().or(record.succeeded.map(SystemTime::from));
        Ok(Some(JobStatus { last, earlier: record.runs, succeeded, missed, is_ahead, now }))
    }

    /// The names of all jobs that ever ran in this store, in byte order, deleted records included. They are kept in notes on the locks
    /// `fencelock-jobs-0` to `15`. 16 requests.
    ///
    /// # Errors
    /// As [`Client::note`].
    pub async fn job_names(&self) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        for list in 0..LISTS {
            names.extend(listed(self, &format!("{LIST}{list}")).await?);
        }
        names.sort();
        Ok(names)
    }
}

impl Job {
    /// The number of further runs that a slot gets after a failed run; none by default. Another run always follows a run that died, and
    /// both count as attempts: with `retries(1)`, a run that fails after one that died is the last.
    #[must_use]
    pub fn retries(self, retries: u32) -> Self {
        Self { retries, ..self }
    }

    /// Lets one client of this host wait for each slot: a second client gets [`ErrorKind::QueueFull`], even for a later slot, until the
    /// waiter's run has begun. So a schedule that is faster than its job fills no queue. Other clients see the slot behind the purpose.
    /// Clients that hide their [owner](crate::ClientBuilder::opaque_owner) are not counted.
    #[must_use]
    pub fn one_waiter_per_host(self) -> Self {
        Self { one_per_host: true, ..self }
    }

    /// The purpose of the lock, visible to other clients: up to 512 bytes without control characters.
    #[must_use]
    pub fn purpose(self, purpose: impl AsRef<str>) -> Self {
        Self { lock: self.lock.purpose(purpose), ..self }
    }

    /// The limit of the waits of [`Job::begin`] and [`Job::run`] for a run in another client, until [`ErrorKind::TimedOut`]; without limit
    /// by default. With zero they do not wait.
    #[must_use]
    pub fn timeout(self, limit: Duration) -> Self {
        Self { lock: self.lock.timeout(limit), ..self }
    }

    /// The longest time of a run; a longer run counts as died. As [`Mutex::max_hold`].
    #[must_use]
    pub fn max_hold(self, most: Duration) -> Self {
        Self { lock: self.lock.max_hold(most), ..self }
    }

    /// Begins the run for the slot in which this is called, unless that slot has had its run. While a run is under way elsewhere, this
    /// waits, to take over if that run dies. The slot stays the one of the call, however long the wait is.
    ///
    /// Three requests, or a single one where the slot has had its run. The first run of all adds the job to [a list](Client::job_names), by
    /// five more.
    ///
    /// # Errors
    /// As [`Mutex::acquire`], [`Client::note`] and [`Guard::write_note`]; [`ErrorKind::Layout`] where the note on the lock is none of a job.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lock in the background. A run that was recorded already has died then.
    pub async fn begin(&self) -> Result<Begun> {
        self.begin_as(true).await
    }

    /// As [`Job::begin`], without waiting: a run that is under way elsewhere is an error.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while a run is under way, also that of an earlier slot; otherwise as [`Job::begin`].
    ///
    /// # Cancel safety
    /// As [`Job::begin`].
    pub async fn try_begin(&self) -> Result<Begun> {
        self.begin_as(false).await
    }

    /// As [`Job::begin`], for callers that hold the lock of the job's name already, by a mutex of the same client. The run's end releases
    /// it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a guard of another name; otherwise as [`Job::begin`].
    ///
    /// # Cancel safety
    /// As [`Job::begin`].
    pub async fn begin_under(&self, guard: Guard) -> Result<Begun> {
        if guard.name() != self.lock.name() {
            let message = "the guard holds another lock than that of the job";
            return Err(Error::new(ErrorKind::Config, "job", message).with("name", self.lock.name()));
        }
        self.begin_at(None, guard).await
    }

    async fn begin_as(&self, waits: bool) -> Result<Begun> {
        let (run, last) = match self.ask(None).await? {
            Asked::Done(last) => return Ok(Begun::Already(last)),
            Asked::Due(run, last) => (run, last),
        };
        let guard =
            if waits { self.to_wait_for(&run, last).await?.acquire().await? } else { self.lock.try_acquire().await? };
        self.begin_at(Some(run.began.into()), guard).await
    }

    /// The lock for a client that waits to begin `run` after `last`.
    async fn to_wait_for(&self, run: &JobRecord, last: Option<JobRun>) -> Result<Mutex> {
        if !self.one_per_host {
            return Ok(self.lock.clone());
        }
        let (client, mark) = (self.lock.client(), |slot: &str| format!("(slot {slot})"));
        let (wanted, under_way) = (mark(&run.slot), last.filter(|_| !self.slot.is_named()).map(|run| mark(&run.slot)));
        let is_enough = |other: &Contender| {
            let host = other.owner.as_ref().map_or("", |owner| &owner.host);
            let purpose = other.purpose.as_deref().unwrap_or_default();
            let is_later = under_way.as_ref().is_some_and(|run| purpose.contains("(slot ") && !purpose.ends_with(run));
            let waits_here = other.grant.is_none() && !host.is_empty() && host == client.owner().host;
            waits_here && (is_later || purpose.ends_with(&wanted))
        };
        if client.queue(self.lock.name()).await?.contenders.iter().any(is_enough) {
            let message = "another client of this host waits for a run of this job already";
            let error = Error::new(ErrorKind::QueueFull, "job", message).with("name", self.lock.name());
            return Err(error.with("slot", &run.slot));
        }
        Ok(self.lock.marked(&wanted))
    }

    /// Begins the run under `guard` for the slot of `asked`, or the present one.
    async fn begin_at(&self, asked: Option<SystemTime>, guard: Guard) -> Result<Begun> {
        match self.ask(asked).await? {
            Asked::Due(mut record, last) => {
                let this = record.run(self.lock.client().owner(), guard.token(), record.began.into());
                guard.write_note(record.text(self.lock.name()), None).await?;
                // Tries twice: the list may have been unreachable.
                if record.runs.len() < 2
                    && let Err(error) = self.list().await
                {
                    tracing::warn!(name = %self.lock.name(), %error, "the job is not in the store's list of jobs");
                }
                Ok(Begun::Run(Box::new(Run { guard, record, this, previous: last })))
            }
            Asked::Done(last) => {
                let _ = guard.release().await;
                Ok(Begun::Already(last))
            }
        }
    }

    /// Runs `body` for the present slot, with the details of the run; `None` if the slot has had its run, even a failed one
    /// ([`Client::job_status`] tells). [Waits](Job::begin) while one is under way elsewhere.
    ///
    /// A body that returns an error has failed; [`Run::fail`] would keep a text of it. When the lock is lost, it is dropped at its next
    /// await, and has died.
    ///
    /// # Errors
    /// What the body returned; otherwise as [`Job::begin`] and [`Run::succeed`], turned into `E`. [`ErrorKind::Lost`] where the lock
    /// was lost while it ran.
    ///
    /// # Cancel safety
    /// Dropping the future drops `body`, which has died, and releases the lock in the background.
    pub async fn run<T, E, F, Fut>(&self, body: F) -> Result<Option<T>, E>
    where
        F: FnOnce(JobRun) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let run = match self.begin().await? {
            Begun::Run(run) => run,
            Begun::Already(_) => return Ok(None),
        };
        let ended = tokio::select! {
            biased;
            _ = run.guard.lost() => {
                let message = "the lock was lost while the job ran, which is given up";
                return Err(Error::new(ErrorKind::Lost, "job", message).with("name", self.lock.name()).into());
            }
            ended = body(run.this.clone()) => ended,
        };
        match ended {
            Ok(value) => {
                run.succeed().await?;
                Ok(Some(value))
            }
            Err(failed) => {
                // The first error is reported.
                let _ = run.fail("").await;
                Err(failed)
            }
        }
    }

    /// Reads the note, and decides for the slot of `asked`, or the present one.
    async fn ask(&self, asked: Option<SystemTime>) -> Result<Asked> {
        let (last, now) = read_record(&self.lock).await?;
        let first = JobRecord::first(&self.slot, asked.unwrap_or(now), now)?;
        let Some((last, run)) = last else { return Ok(Asked::Due(first, None)) };
        if asked.is_none() && last.is_ahead(now) {
            let (name, began) = (self.lock.name(), last.began);
            tracing::warn!(%name, %began, "the record of the last run is from the future: the store's clock was ahead");
        }
        Ok(match first.after(&last, &self.slot, self.retries)? {
            Some(mut next) => {
                let run = died(run);
                next.remember(&last, &run);
                Asked::Due(next, Some(run))
            }
            None => Asked::Done(run),
        })
    }

    /// Adds the job to the store's list of jobs.
    async fn list(&self) -> Result<()> {
        let (client, name) = (self.lock.client(), self.lock.name());
        let lock = client.mutex(list_of(name))?.purpose("the list of jobs");
        if listed(client, lock.name().as_str()).await?.contains(name) {
            return Ok(());
        }
        let guard = lock.acquire_within(LISTING).await?;
        let mut names = listed(client, lock.name().as_str()).await?;
        names.push(name.clone());
        let names: Vec<_> = names.iter().map(Name::as_str).collect();
        guard.write_note(serde_json::to_vec(&names).unwrap_or_default(), None).await?;
        guard.release().await
    }
}

/// The last run by the note on the lock, and the store's time.
async fn read_record(lock: &Mutex) -> Result<(Option<(JobRecord, JobRun)>, SystemTime)> {
    let read = lock.client().note(lock.name()).await?;
    let Some(note) = &read.note else { return Ok((None, read.now)) };
    let record = JobRecord::of(note, lock.name())?;
    let run = record.run(&note.owner, note.token, note.written);
    Ok((Some((record, run)), read.now))
}

/// The names in one list of jobs.
async fn listed(client: &Client, list: &str) -> Result<Vec<Name>> {
    let Some(note) = client.note(list).await?.note else { return Ok(Vec::new()) };
    let strange = "the note on the lock is no list of jobs: something else uses the name";
    let strange = |error| Error::new(ErrorKind::Layout, "job", strange).with("name", list).caused_by(error);
    serde_json::from_slice::<Vec<String>>(&note.value).map_err(strange)?.into_iter().map(Name::new).collect()
}

/// The list with the job `name`.
fn list_of(name: &Name) -> String {
    let sum: usize = name.as_str().bytes().map(usize::from).sum();
    format!("{LIST}{}", sum % LISTS)
}

/// Marks a run as dead that had not ended when another client acquired the lock.
fn died(mut run: JobRun) -> JobRun {
    if run.state == RunState::Running {
        run.state = RunState::Died;
    }
    run
}

/// A run that has begun and holds the lock of its job. Record its end with [`Run::succeed`] or [`Run::fail`]; a dropped run has died.
#[derive(Debug)]
#[must_use = "a run that is dropped has died"]
pub struct Run {
    guard: Guard,
    record: Box<JobRecord>,
    this: JobRun,
    previous: Option<JobRun>,
}

impl Run {
    /// The details of this run: slot, token, number of the attempt, missed slots.
    #[must_use]
    pub fn this(&self) -> &JobRun {
        &self.this
    }

    /// The run before, of any slot; `None` for the first ever.
    #[must_use]
    pub fn previous(&self) -> Option<&JobRun> {
        self.previous.as_ref()
    }

    /// The guard of the job's lock: [`Guard::lost`], [`Guard::check`], [`Guard::token`].
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Ends the run with success: the slot has had its run. Releases the lock.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] where the lock was lost before that was noted: another run for the same slot may have begun. If the store is
    /// unreachable, the client retries for 30 s at most, as long as the lock is valid; after an error whose [outcome](Error::outcome) is
    /// unknown the slot may have had its run or not.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether it is noted.
    pub async fn succeed(self) -> Result<()> {
        self.end(RunState::Succeeded, "").await
    }

    /// As [`Run::succeed`], with a detail for other readers: up to 256 characters are kept.
    ///
    /// # Errors and cancel safety
    /// As [`Run::succeed`].
    pub async fn succeed_with(self, detail: impl AsRef<str>) -> Result<()> {
        self.end(RunState::Succeeded, detail.as_ref()).await
    }

    /// Ends the run as failed, with a `detail` for other readers: up to 256 characters are kept. Releases the lock; [`Job::retries`]
    /// decides about another run for the slot.
    ///
    /// # Errors and cancel safety
    /// As [`Run::succeed`].
    pub async fn fail(self, detail: impl AsRef<str>) -> Result<()> {
        self.end(RunState::Failed, detail.as_ref()).await
    }

    async fn end(mut self, state: RunState, detail: &str) -> Result<()> {
        const LONGEST: usize = 256;
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        self.record.state = state;
        self.record.detail =
            Some(detail.chars().take(LONGEST).map(clean).collect()).filter(|text: &String| !text.is_empty());
        let text = self.record.text(self.guard.name());
        let engine = Arc::clone(self.guard.engine());
        let end = engine.clock.now().after(TELLING);
        while let Err(error) = self.guard.write_note(&text, None).await {
            if !error.is_retryable() || engine.clock.now() >= end {
                return Err(error);
            }
            engine.sleep_until(engine.clock.now().after(TELL_AGAIN)).await;
        }
        // An unconfirmed release is retried in the background, and changes nothing about the run.
        let _ = self.guard.release().await;
        Ok(())
    }
}
