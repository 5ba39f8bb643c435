//! A command while its lock is held: signals go to it, and it is stopped before the lock can lapse.

use std::future::pending;
use std::time::{Duration, Instant};

use fencelock::{AnyGuard, Clock as _, Loss, Moment, SystemClock, Timing};
use nix::sys::signal::Signal;

use crate::job::{Happening, Job, exit_code};
use crate::say::{Outcome, code, say};
use crate::signals::Signals;

/// How often the remaining certainty is looked at, at least.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// When a command is stopped, and how much time it gets to end by itself then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    grace: Duration,
    max_hold: Option<Duration>,
    /// With this much certainty left, the command must be told to end.
    reserve: Duration,
}

impl Limits {
    pub(super) fn new(grace: Duration, max_hold: Option<Duration>, timing: Timing) -> Self {
        // A renewal in time leaves certainty for another one, also where a store's proof of life is older than the renewal
        // that brings it (the library refuses times that do not); half of that is never touched by one that is only slow.
        Self { grace, max_hold, reserve: grace.min(timing.renew_interval / 2) }
    }
}

/// Why the command must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The lock is gone.
    Lost(Loss),
    /// No renewal came through, and the lock will be gone soon.
    Lapsing,
    /// `--max-hold` is over.
    HeldTooLong,
}

/// A command that was told to end.
#[derive(Debug, Clone, Copy)]
struct Stopping {
    kill_at: Instant,
    /// The lock was still held then: the command must be gone before that changes.
    holding: bool,
    killed: bool,
}

/// A command and the lock it runs under.
pub(super) struct Held<'a> {
    guard: &'a AnyGuard,
    job: Job,
    limits: Limits,
    max_hold_over: Moment,
    stopping: Option<Stopping>,
}

impl<'a> Held<'a> {
    pub(super) fn new(guard: &'a AnyGuard, job: Job, limits: Limits) -> Self {
        let max_hold_over = limits.max_hold.map_or(Moment::NEVER, |most| SystemClock.now().after(most));
        Self { guard, job, limits, max_hold_over, stopping: None }
    }

    /// Serves the command until it ends; says with which code to exit.
    pub(super) async fn serve(mut self, signals: &mut Signals) -> Outcome<u8> {
        loop {
            let stopping = self.stopping;
            tokio::select! {
                biased;
                happening = self.job.next() => match happening {
                    Happening::Ended => return self.ended().await,
                    Happening::Stopped(_) if stopping.is_some() => self.job.signal(Signal::SIGCONT),
                    Happening::Stopped(by) => self.job.stopped(by),
                },
                signal = signals.next() => match signal {
                    Signal::SIGCONT => self.job.continued(),
                    signal => self.job.signal(signal),
                },
                cause = must_end(self.guard, self.limits.reserve, self.max_hold_over), if stopping.is_none() => {
                    self.stop(cause);
                }
                () = kill_time(self.guard, stopping) => self.kill(),
            }
        }
    }

    fn stop(&mut self, cause: Cause) {
        let name = self.guard.name();
        match cause {
            Cause::Lost(loss) => {
                let reason = self.guard.break_reason().map_or_else(String::new, |reason| format!(": {reason}"));
                say(format_args!("the lock {name} was lost, the command is stopped: {loss}{reason}"));
            }
            Cause::Lapsing => {
                say(format_args!("the lock {name} cannot be renewed, the command is stopped before it lapses"));
            }
            Cause::HeldTooLong => say(format_args!("the lock {name} was held for --max-hold, the command is stopped")),
        }
        self.job.signal(Signal::SIGTERM);
        // One that is suspended could not end.
        self.job.signal(Signal::SIGCONT);
        let holding = !matches!(cause, Cause::Lost(_));
        self.stopping = Some(Stopping { kill_at: Instant::now() + self.limits.grace, holding, killed: false });
    }

    fn kill(&mut self) {
        self.job.signal(Signal::SIGKILL);
        if let Some(stopping) = &mut self.stopping {
            stopping.killed = true;
        }
    }

    async fn ended(mut self) -> Outcome<u8> {
        let status = self.job.reap()?;
        let Some(stopping) = self.stopping else { return Ok(exit_code(status)) };
        self.job.emptied(stopping.kill_at).await;
        Ok(code::LOST)
    }
}

/// Completes once the command must end.
async fn must_end(guard: &AnyGuard, reserve: Duration, max_hold_over: Moment) -> Cause {
    tokio::select! {
        biased;
        loss = guard.lost() => Cause::Lost(loss),
        () = lapsing(guard, reserve) => Cause::Lapsing,
        () = SystemClock.sleep_until(max_hold_over) => Cause::HeldTooLong,
    }
}

/// Completes when no more than `reserve` of the certainty is left.
async fn lapsing(guard: &AnyGuard, reserve: Duration) {
    loop {
        let Some(remaining) = guard.remaining() else { return pending().await };
        let spare = remaining.saturating_sub(reserve);
        if spare.is_zero() {
            return;
        }
        tokio::time::sleep(spare.min(LOOK_AGAIN)).await;
    }
}

/// Completes when a command that was told to end has had its time: the grace, or less if the lock goes first.
async fn kill_time(guard: &AnyGuard, stopping: Option<Stopping>) {
    match stopping {
        Some(Stopping { kill_at, holding, killed: false }) => tokio::select! {
            () = tokio::time::sleep_until(kill_at.into()) => {}
            _ = guard.lost(), if holding => {}
        },
        _ => pending().await,
    }
}
