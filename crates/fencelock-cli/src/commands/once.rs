//! `fencelock run --once-per`: the command is a job, which runs once in each slot in the whole fleet.

use std::time::Duration;

use clap::Args;
use fencelock::jobs::{Begun, Job, JobRun, Run, RunState, Slot};
use fencelock::{Client, Name};
use tokio::time::timeout;

use super::report::EndReport;
use super::supervise::Ending;
use crate::arguments;
use crate::output::{Outcome, chain, code, say};
use crate::signals::Signals;
use crate::times;

/// How long a report of a run's end may take once we are asked to end.
const BRIEF: Duration = Duration::from_millis(300);
/// How long fencelock waits, after its command has ended, for a signal that was sent to both. After a success, which is common, the
/// wait is `TOLD_AT_ONCE`.
const TOLD_TOO: Duration = Duration::from_millis(100);
const TOLD_AT_ONCE: Duration = Duration::from_millis(10);

pub(super) const SLOT_VARIABLE: &str = "FENCELOCK_SLOT";

/// In which slots the command runs once, if in any.
#[derive(Debug, Default, Args)]
pub(super) struct Once {
    /// Run the command once in each of these slots, on one of all hosts, by the store's clock: 5m, 6h, 1d, hourly, daily,
    /// daily@Europe/Berlin, or a text of cron as in "0 3 * * 1-5@Europe/Berlin". A store must be named, and keep notes.
    #[arg(long, value_name = "SLOT", value_parser = arguments::slot, group = "job",
          conflicts_with_all = ["shared", "exclusive", "permits", "hold_at_least"])]
    once_per: Option<Slot>,
    /// Run the command once for this slot, which any text names: a date, a release.
    #[arg(long, value_name = "TEXT", value_parser = arguments::named_slot, group = "job",
          conflicts_with_all = ["shared", "exclusive", "permits", "hold_at_least"])]
    slot: Option<Slot>,
    /// Run the command again, when a later call asks for the same slot, up to N times after it has failed.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "job")]
    retries: u32,
}

impl Once {
    pub(super) fn job(&self, client: &Client, name: &Name) -> fencelock::Result<Option<Job>> {
        // The process that starts us has a clock of its own.
        let slot = self.once_per.clone().map(Slot::tolerant).or_else(|| self.slot.clone());
        slot.map(|slot| Ok(client.job(name, slot)?.retries(self.retries).one_waiter_per_host())).transpose()
    }

    pub(super) fn is_asked_for(&self) -> bool {
        self.once_per.is_some() || self.slot.is_some()
    }
}

pub(super) async fn begin(job: &Job, at_once: bool) -> fencelock::Result<Begun> {
    if at_once { job.try_begin().await } else { job.begin().await }
}

/// Prints that the slot of `name` has had its run.
pub(super) fn say_that_it_ran(name: &Name, last: &JobRun) {
    // With named slots, the last run may be of another slot.
    let ended = match last.state {
        RunState::Failed => "it failed",
        RunState::Succeeded => "it ended well",
        _ => "its end is not noted",
    };
    let detail = last.detail.as_ref().map_or_else(String::new, |detail| format!(" ({detail})"));
    let began = times::to_second(last.began);
    let (slot, who) = (&last.slot, &last.owner);
    say(format_args!(
        "{name} has had its run; the last one was for the slot {slot}: {who} began it at {began}, and {ended}{detail}"
    ));
}

/// Records the end of `run`: a success with 0, else a failure. A command that was asked to end, could not begin, lost its lock or
/// outlived `--max-hold` has died, with any code: another client may run it. `report` says whether the lock's end stopped the command.
pub(super) async fn note_the_end(run: Box<Run>, ended: &Outcome<Ending>, report: &EndReport, signals: &mut Signals) {
    let has_succeeded = matches!(ended, Ok(Ending::Code(0)));
    // systemd may end the command a moment before fencelock.
    let _ = timeout(if has_succeeded { TOLD_AT_ONCE } else { TOLD_TOO }, signals.asked_to_end()).await;
    if signals.must_end_or_hung_up() || report.has_reported() || run.guard().check().is_err() {
        return;
    }
    let failed = match ended {
        Ok(Ending::Code(code::NOT_FOUND | code::NOT_EXECUTABLE)) | Err(_) => return,
        Ok(Ending::Code(0)) => None,
        Ok(Ending::Code(code)) => Some(format!("exit code {code}")),
        Ok(Ending::Signal(signal)) => Some(signal.to_string()),
    };
    let noting = async {
        match &failed {
            None => run.succeed().await,
            Some(detail) => run.fail(detail).await,
        }
    };
    let mut noting = std::pin::pin!(noting);
    let noted = tokio::select! {
        biased;
        noted = &mut noting => Some(noted),
        _ = signals.asked_to_end() => timeout(BRIEF, noting).await.ok(),
    };
    match noted {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            say(format_args!("the end of the run is not noted, and others may run it again: {}", chain(&error)))
        }
        None => say("the end of the run is not noted, and others may run it again: we received a signal to end"),
    }
}
