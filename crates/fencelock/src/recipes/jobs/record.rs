//! The record in the note of a job: a small JSON text, which other programs may read.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::slot::{Period, Slot, timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::store::{Note, Owner};
use crate::token::FencingToken;

/// The version of the text.
const VERSION: u64 = 1;
/// How far a record may be ahead of the store's clock: more than a slot may begin early.
const AHEAD: Duration = Duration::from_secs(60);

/// A run of a job, from its note.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobRun {
    /// The slot of the run.
    pub slot: String,
    /// The state or the end of the run.
    pub state: RunState,
    /// The text of the run's end: an exit code, a reason.
    pub detail: Option<String>,
    /// The client that ran the job.
    pub owner: Owner,
    /// The token of the run; `None` where the store has no tokens.
    pub token: Option<FencingToken>,
    /// When the run began, by the store's clock.
    pub began: SystemTime,
    /// How long the run took, by the store's clock; `None` for a run that is under way or has died.
    pub took: Option<Duration>,
    /// The number of this run among the runs for its slot: 1 for the first.
    pub attempt: u32,
    /// The number of slots without a run between the run before and this one.
    pub missed: u64,
    /// The schedule of the run, as text; `None` for a named slot.
    pub schedule: Option<String>,
}

impl JobRun {
    /// When the run ended well, if it did.
    pub(super) fn succeeded(&self) -> Option<SystemTime> {
        self.took.filter(|_| self.state == RunState::Succeeded).map(|took| self.began + took)
    }
}

/// The summary of a run before the last one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EarlierRun {
    /// The slot of the run.
    pub slot: String,
    /// How the run ended.
    pub state: RunState,
    /// The text of the run's end: an exit code, a reason.
    pub detail: Option<String>,
    /// The host that ran the job; empty for a hidden host.
    pub host: String,
    /// When the run began, by the store's clock, as RFC 3339.
    pub began: String,
    /// How long the run took in milliseconds, by the store's clock; `None` for a run that died.
    pub took_ms: Option<u64>,
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum RunState {
    /// The run has begun, and no end was recorded. [`Client::job_status`](crate::Client::job_status) checks whether its process still holds the lock.
    Running,
    /// The run succeeded.
    Succeeded,
    /// The run failed.
    Failed,
    /// The run began, and released or lost the lock without recording an end.
    Died,
}

/// The text of a note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JobRecord {
    job: u64,
    pub(super) slot: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) slot_start: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) schedule: Option<String>,
    pub(super) state: RunState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<String>,
    pub(super) began: Timestamp,
    pub(super) attempt: u32,
    pub(super) missed: u64,
    /// Earlier named slots that had their run, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) past: Vec<String>,
    /// When the last success before this run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) succeeded: Option<Timestamp>,
    /// Earlier runs, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) runs: Vec<EarlierRun>,
}

impl JobRecord {
    /// The record in `note`.
    pub(super) fn of(note: &Note, name: &Name) -> Result<Self> {
        let strange = |message: &'static str| Error::new(ErrorKind::Layout, "job", message).with("name", name);
        let text = serde_json::from_slice::<serde_json::Value>(&note.value).unwrap_or_default();
        match text["job"].as_u64() {
            Some(VERSION) => serde_json::from_value(text)
                .map_err(|error| strange("the note on the lock is damaged").caused_by(error)),
            Some(_) => Err(strange("the note on the lock is that of a job of a later release")),
            None => Err(strange("the note on the lock is none of a job: something else uses the name")),
        }
    }

    /// The note's text. If there is no room for everything, the oldest runs are dropped, and then the oldest named slots, with a warning.
    pub(super) fn text(&mut self, name: &Name) -> Vec<u8> {
        loop {
            // All its fields can be serialised.
            let text = serde_json::to_vec(self).unwrap_or_default();
            if text.len() <= Note::MAX_BYTES || (self.runs.is_empty() && self.past.is_empty()) {
                return text;
            }
            if self.runs.pop().is_some() {
                continue;
            }
            let slot = self.past.remove(0);
            tracing::warn!(%name, slot, "the record has no room for this slot any more, which runs again if a client asks for it");
        }
    }

    /// The run in the record, of `owner` under `token`, last written at `written`.
    pub(super) fn run(&self, owner: &Owner, token: Option<FencingToken>, written: SystemTime) -> JobRun {
        let began = self.began.into();
        let has_ended = matches!(self.state, RunState::Succeeded | RunState::Failed);
        JobRun {
            slot: self.slot.clone(),
            state: self.state,
            detail: self.detail.clone(),
            owner: owner.clone(),
            token,
            began,
            took: has_ended.then(|| written.duration_since(began).unwrap_or_default()),
            attempt: self.attempt,
            missed: self.missed,
            schedule: self.schedule.clone(),
        }
    }

    /// Remembers `last`, the run before this one.
    pub(super) fn remember(&mut self, last: &Self, run: &JobRun) {
        const MOST: usize = 4;
        self.succeeded = run.succeeded().and_then(|end| timestamp(end).ok()).or(last.succeeded);
        let before = EarlierRun {
            slot: run.slot.clone(),
            state: run.state,
            detail: run.detail.clone(),
            host: run.owner.host.clone(),
            began: last.began.to_string(),
            took_ms: run.took.and_then(|took| took.as_millis().try_into().ok()),
        };
        self.runs = [before].into_iter().chain(last.runs.iter().cloned()).take(MOST).collect();
    }

    /// Whether the record is later than the store's clock, which had been ahead. Clocks of servers that replace each other may differ a little.
    pub(super) fn is_ahead(&self, now: SystemTime) -> bool {
        self.reaches(None) > now + AHEAD
    }

    /// The moment up to which the run covers slots of `schedule`: the start of the run's own slot, even if the run waited and began later. A
    /// run by another schedule covers each slot within which it began.
    pub(super) fn reaches(&self, schedule: Option<&str>) -> SystemTime {
        let own = self.slot_start.filter(|_| self.schedule.as_deref() == schedule);
        own.or(self.slot_start.max(Some(self.began))).unwrap_or(self.began).into()
    }

    /// The first run of a job, for the slot of `slot` at `asked`. The run begins `now`.
    pub(super) fn first(slot: &Slot, asked: SystemTime, now: SystemTime) -> Result<Box<Self>> {
        let Period { text, start } = slot.at(asked)?;
        Ok(Box::new(Self {
            job: VERSION,
            slot: text,
            slot_start: start.map(timestamp).transpose()?,
            schedule: slot.schedule(),
            state: RunState::Running,
            detail: None,
            began: timestamp(now)?,
            attempt: 1,
            missed: 0,
            past: Vec::new(),
            succeeded: None,
            runs: Vec::new(),
        }))
    }

    /// The run for this slot after `last`, while no other client holds the lock. `None` if the slot has had its run.
    pub(super) fn after(mut self: Box<Self>, last: &Self, slot: &Slot, retries: u32) -> Result<Option<Box<Self>>> {
        self.past.clone_from(&last.past);
        let has_ended = match last.state {
            RunState::Succeeded => true,
            RunState::Failed => last.attempt > retries,
            RunState::Running | RunState::Died => false,
        };
        let (reaches, start) = (last.reaches(self.schedule.as_deref()), self.slot_start.map(SystemTime::from));
        // A record from the future may be of a run that is not needed now. A run of the same slot is not repeated.
        let is_covered = start.map_or(self.slot == last.slot, |start| {
            reaches >= start && (self.slot == last.slot || !last.is_ahead(self.began.into()))
        });
        if is_covered {
            self.attempt = last.attempt.saturating_add(1);
            self.missed = last.missed;
            // The slot stays the one that was begun, also where the schedule has changed since.
            (self.slot, self.slot_start) = (last.slot.clone(), last.slot_start);
            self.schedule.clone_from(&last.schedule);
            return Ok(Some(self).filter(|_| !has_ended));
        }
        // The clock went back since a later slot had its run: the record of that run remembers this slot's.
        let is_own = |run: &&EarlierRun| {
            let began = run.began.parse::<Timestamp>().ok().map(SystemTime::from);
            run.slot == self.slot && start.zip(began).is_some_and(|(start, began)| began + AHEAD >= start)
        };
        let own = last.runs.iter().filter(is_own);
        let has_failed = own.clone().count() > retries as usize && own.clone().any(|run| run.state == RunState::Failed);
        let has_had_its_run = has_failed || own.clone().any(|run| run.state == RunState::Succeeded);
        if has_had_its_run || slot.is_named() && last.past.contains(&self.slot) {
            return Ok(None);
        }
        // A named run that died has not ended, even after later runs.
        if last.schedule.is_none() && has_ended {
            self.past.push(last.slot.clone());
        }
        if let Some(start) = start {
            self.missed = slot.between(reaches, start)?;
        }
        Ok(Some(self))
    }
}
