//! What the note of a job says: a small text of JSON, which others may read.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::slot::{Period, Slot};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::store::{Note, Owner};
use crate::token::FencingToken;

/// The version of the text.
const VERSION: u32 = 1;

/// A run of a job, as its note tells.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobRun {
    /// The slot that it was for.
    pub slot: String,
    /// How it stands, or how it ended.
    pub state: RunState,
    /// What was said of its end: an exit code, a reason.
    pub detail: Option<String>,
    /// Who ran it.
    pub owner: Owner,
    /// The token that it ran under; `None` where the store has none.
    pub token: Option<FencingToken>,
    /// When it began, by the store's clock.
    pub began: SystemTime,
    /// How long it took, by the store's clock; `None` while it runs, and of one that died.
    pub took: Option<Duration>,
    /// The number of this run among those for its slot: 1 for the first.
    pub attempt: u32,
    /// How many slots before its own had no run, since the run before.
    pub missed: u64,
    /// The schedule that it ran by, as text; `None` for a slot that was named.
    pub schedule: Option<String>,
}

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum RunState {
    /// It has begun, and nothing was said of its end. Whether its process still holds the lock, [`Client::job_status`](crate::Client::job_status) tells.
    Running,
    /// It ended well.
    Succeeded,
    /// It ended, and not well.
    Failed,
    /// It began, and gave up or lost the lock without saying how it ended.
    Died,
}

/// The text of a note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    job: u32,
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
    /// Slots that were named and had their run before, the last one last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) past: Vec<String>,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// This run.
    Due(Box<Record>),
    /// Nothing: the slot has had its run.
    Done,
}

impl Record {
    /// The record in `note`.
    pub(super) fn of(note: &Note, name: &Name) -> Result<Self> {
        /// What every version has.
        #[derive(Deserialize)]
        struct Any {
            job: u32,
        }
        let strange = |message: &'static str| Error::new(ErrorKind::Layout, "job", message).with("name", name);
        match serde_json::from_slice(&note.value) {
            Ok(Any { job: VERSION }) => {}
            Ok(_) => return Err(strange("the note on the lock is that of a job of a later release")),
            Err(_) => return Err(strange("the note on the lock is none of a job: something else uses the name")),
        }
        let damaged = |error| strange("the note on the lock is damaged").caused_by(error);
        serde_json::from_slice(&note.value).map_err(damaged)
    }

    /// The note's text. What is remembered of the past is as much as fits.
    pub(super) fn text(&self) -> Vec<u8> {
        let mut record = self.clone();
        loop {
            // Nothing in it can fail to be written.
            let text = serde_json::to_vec(&record).unwrap_or_default();
            if text.len() <= Note::MAX_BYTES || record.past.is_empty() {
                return text;
            }
            record.past.remove(0);
        }
    }

    /// What it tells of a run, of `owner` under `token`, and written at `written` at last.
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

    /// As [`Record::run`], with what `note` knows besides.
    pub(super) fn run_in(&self, note: &Note) -> JobRun {
        self.run(&note.owner, note.token, note.written)
    }

    /// The moment from which on slots begin that it knows nothing of.
    pub(super) fn reaches(&self) -> SystemTime {
        self.slot_start.map_or(self.began, |start| start.max(self.began)).into()
    }

    /// Whether it, or one before it, was a run for `period`. A schedule that was changed since does not matter: what began within the
    /// period was for it.
    fn is_for(&self, period: &Period) -> bool {
        period.start.map_or(self.slot == period.text, |start| self.reaches() >= start)
    }
}

/// What is to be done at `now` where `last` is what the note says, and nobody else holds the lock.
pub(super) fn decide(slot: &Slot, retries: u32, last: Option<&Record>, now: SystemTime) -> Result<Verdict> {
    let period = slot.at(now)?;
    let mut next = Record {
        job: VERSION,
        slot: period.text.clone(),
        slot_start: period.start.map(Timestamp::try_from).transpose().map_err(no_time)?,
        schedule: slot.schedule(),
        state: RunState::Running,
        detail: None,
        began: Timestamp::try_from(now).map_err(no_time)?,
        attempt: 1,
        missed: 0,
        past: Vec::new(),
    };
    let Some(last) = last else { return Ok(Verdict::Due(Box::new(next))) };
    next.past.clone_from(&last.past);
    let is_over = match last.state {
        RunState::Succeeded => true,
        RunState::Failed => last.attempt > retries,
        RunState::Running | RunState::Died => false,
    };
    if last.is_for(&period) {
        if is_over {
            return Ok(Verdict::Done);
        }
        next.attempt = last.attempt.saturating_add(1);
        next.missed = last.missed;
        // The slot stays the one that was begun, also where the schedule has changed since.
        (next.slot, next.slot_start) = (last.slot.clone(), last.slot_start);
    } else if slot.is_named() && last.past.contains(&period.text) {
        return Ok(Verdict::Done);
    } else {
        // A named run that died is not over, whatever ran since.
        if last.schedule.is_none() && is_over {
            next.past.push(last.slot.clone());
        }
        if let Some(start) = period.start {
            next.missed = slot.between(last.reaches(), start)?;
        }
    }
    Ok(Verdict::Due(Box::new(next)))
}

fn no_time(error: jiff::Error) -> Error {
    Error::new(ErrorKind::Config, "job", "the store's time is none of the calendar").caused_by(error)
}
