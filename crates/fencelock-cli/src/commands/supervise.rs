//! A command while its lock is held: signals go to it, and it is stopped before the lock can lapse.

use std::future::pending;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use fencelock::recipes::MultiGuard;
use fencelock::time::{Clock as _, Moment, SystemClock};
use fencelock::{GuardState, Timing};
use nix::sys::signal::Signal;

use super::report::{Cause, EndReport};
use super::several::{is_one, locks_of};
use crate::job::{Happening, Job, can_be_suspended, exit_code, keyboard_signal};
use crate::output::{Outcome, code, say};
use crate::signals::Signals;

/// How often the remaining certainty is looked at, at least.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How often a group is checked for remaining processes.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// After how many checks all processes of the machine are looked at, to see whether the group's are dead.
const LOOK_EVERY: u32 = 10;

/// How long the processes of a killed group may take to end.
const DYING: Duration = Duration::from_secs(2);

/// After a command got the terminal, it is checked this many times, each time after twice the pause before.
const NUDGES: u32 = 7;
const FIRST_NUDGE: Duration = Duration::from_millis(20);

/// When a command is stopped, and how much time it gets to end by itself then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    grace: Duration,
    grace_after_loss: Duration,
    max_hold: Option<Duration>,
    /// With this much certainty left, the command must be asked to end.
    reserve: Duration,
    /// How often the guardian gets a report.
    report: Duration,
}

impl Limits {
    pub(super) fn new(grace: Duration, grace_after_loss: Duration, max_hold: Option<Duration>, timing: Timing) -> Self {
        // A renewal in time leaves certainty for another renewal, also where a store's proof of life is older than the
        // renewal (the library refuses other times). A slow renewal never uses half of the interval.
        let report = timing.renew_interval / 2;
        Self { grace, grace_after_loss, max_hold, reserve: grace.min(report), report: report.min(LOOK_AGAIN) }
    }

    /// Whether the lock of `guard` is lost, or will be soon because no renewal comes through.
    pub(super) fn are_reached_by(&self, guard: &MultiGuard) -> bool {
        guard.remaining() <= self.reserve
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Code(u8),
    Signal(Signal),
}

impl Ending {
    fn of(status: ExitStatus) -> Self {
        keyboard_signal(status).map_or_else(|| Self::Code(exit_code(status)), Self::Signal)
    }
}

#[derive(Debug, Clone, Copy)]
struct Stopping {
    kill_at: Moment,
    /// The lock is still held: the command must be gone before that changes.
    holding: bool,
    killed: bool,
}

enum Event {
    Job(Happening),
    Signal(Signal),
    Stop(Cause),
    Kill,
    Nudge,
    Look,
}

pub(super) struct Supervised<'a> {
    guard: &'a MultiGuard,
    end: &'a mut EndReport,
    job: Job,
    limits: Limits,
    max_hold_over: Moment,
    stopping: Option<Stopping>,
    /// The end of the lock's certainty at the last check.
    certain_until: Moment,
    /// How many more checks of the command follow after it got the terminal.
    nudges: u32,
    reported_stop: bool,
}

impl<'a> Supervised<'a> {
    /// Serves `job` under `guard`, whose lock was certain until `certain_until` when the job was started.
    pub(super) fn new(
        guard: &'a MultiGuard,
        end: &'a mut EndReport,
        job: Job,
        limits: Limits,
        certain_until: Moment,
    ) -> Self {
        let now = SystemClock.now();
        let max_hold_over = limits.max_hold.map_or(Moment::NEVER, |most| now.after(most));
        Self { guard, end, job, limits, max_hold_over, stopping: None, certain_until, nudges: 0, reported_stop: false }
    }

    /// Serves the command until it ends; says how to end in turn.
    pub(super) async fn serve(mut self, signals: &mut Signals) -> Outcome<Ending> {
        self.look();
        // The command does not begin when the lock was lost meanwhile.
        self.job.begin();
        loop {
            let event = self.next(signals).await;
            if matches!(event, Event::Job(Happening::Ended)) {
                return self.ended().await;
            }
            // Before anything is passed on: after a pause of ours the command may be the second holder.
            self.look();
            match event {
                Event::Job(Happening::Unguarded) => self.job.guard_again(),
                Event::Job(Happening::Stopped(_)) if self.stopping.is_some() => self.job.go_on(),
                Event::Job(Happening::Stopped(by)) => self.stopped(by),
                Event::Signal(signal) => self.take(signal, signals).await,
                Event::Stop(cause) if self.stopping.is_none() => self.stop(cause),
                Event::Kill => self.kill(),
                Event::Nudge => self.nudge(),
                Event::Job(Happening::Ended) | Event::Stop(_) | Event::Look => {}
            }
            self.job.let_run_until(self.may_run_until());
        }
    }

    async fn next(&mut self, signals: &mut Signals) -> Event {
        let (guard, stopping) = (self.guard, self.stopping);
        tokio::select! {
            biased;
            cause = must_end(guard, self.limits.reserve, self.max_hold_over), if stopping.is_none() => Event::Stop(cause),
            happening = self.job.next() => Event::Job(happening),
            signal = signals.next() => Event::Signal(signal),
            () = kill_time(stopping) => Event::Kill,
            _ = guard.lost(), if stopping.is_some_and(|stopping| stopping.holding) => Event::Look,
            () = nudge_time(self.nudges) => Event::Nudge,
            () = tokio::time::sleep(self.limits.report), if self.job.is_bound() => Event::Look,
        }
    }

    /// Looks at the lock: the guardian receives how long it is certain, and a command whose lock is gone is stopped at once.
    fn look(&mut self) {
        if let GuardState::Lost(loss) = self.guard.state() {
            let killed_then = self.lost_at().after(self.limits.grace_after_loss);
            match &mut self.stopping {
                None => self.stop(Cause::Lost(loss)),
                Some(stopping) if stopping.holding => {
                    stopping.holding = false;
                    stopping.kill_at = stopping.kill_at.min(killed_then);
                    self.end.tell(self.guard, Cause::Lost(loss), "the command was already asked to end");
                }
                Some(_) => {}
            }
        } else {
            self.certain_until = certain_until(self.guard);
        }
        self.job.let_run_until(self.may_run_until());
    }

    fn lost_at(&self) -> Moment {
        self.certain_until.min(SystemClock.now())
    }

    /// The moment until which the guardian lets the command run without an order: a little earlier than the kill by
    /// fencelock itself.
    fn may_run_until(&self) -> Moment {
        match self.stopping {
            Some(stopping) if stopping.holding => stopping.kill_at.min(self.certain_until),
            Some(stopping) => stopping.kill_at,
            None => self.certain_until.before(self.limits.reserve / 2),
        }
    }

    async fn take(&mut self, signal: Signal, signals: &Signals) {
        match signal {
            Signal::SIGCONT => self.job.go_on(),
            Signal::SIGCHLD => self.job.reap_strangers(),
            Signal::SIGTTIN | Signal::SIGTTOU if self.job.gives_back_the_terminal() => signals.refuse(signal),
            Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU => self.suspend(signal, signals).await,
            signal => self.job.relay(signal),
        }
    }

    /// Handles a request to stop: first the whole command stops, then this process. The command continues only if the
    /// lock is still held then.
    async fn suspend(&mut self, by: Signal, signals: &Signals) {
        if self.stopping.is_some() || !can_be_suspended() || !self.job.pause().await {
            return signals.refuse(by);
        }
        signals.stop(by);
        self.look();
        if self.stopping.is_none() {
            self.job.go_on();
        }
    }

    fn stopped(&mut self, by: Signal) {
        if !self.job.stopped(by) {
            self.nudges = NUDGES;
        } else if !self.reported_stop {
            self.reported_stop = true;
            say(format_args!("the command was stopped by {by}, and {} held meanwhile", stays(self.guard)));
        }
    }

    fn nudge(&mut self) {
        self.nudges -= 1;
        self.job.nudge();
    }

    fn stop(&mut self, cause: Cause) {
        let holding = !matches!(cause, Cause::Lost(_));
        let kill_at = if holding {
            SystemClock.now().after(self.limits.grace)
        } else {
            self.lost_at().after(self.limits.grace_after_loss)
        };
        self.stopping = Some(Stopping { kill_at, holding, killed: false });
        // Looked at after the loss: the loss may be of this moment.
        if kill_at <= SystemClock.now() {
            // A command that runs concurrently with the next holder is not asked.
            self.kill();
        } else {
            // Also continues a suspended command, which could not end otherwise.
            self.job.relay(Signal::SIGTERM);
        }
        self.end.tell(self.guard, cause, "the command is stopped");
    }

    fn kill(&mut self) {
        self.job.signal(Signal::SIGKILL);
        if let Some(stopping) = &mut self.stopping {
            stopping.killed = true;
        }
    }

    async fn ended(mut self) -> Outcome<Ending> {
        if self.stopping.is_some() {
            self.job.reap()?;
            self.emptied().await;
            return Ok(Ending::Code(code::LOST));
        }
        self.job.dismiss_the_guardian();
        let status = self.job.reap()?;
        let killed = status.signal() == Some(Signal::SIGKILL as i32);
        // The guardian killed the command before this process did.
        let was_late = killed && self.limits.are_reached_by(self.guard);
        Ok(if was_late { Ending::Code(code::LOST) } else { Ending::of(status) })
    }

    /// Waits until the group of a command that was asked to end is empty; the rest is killed when its time has passed, or when
    /// the lock is lost, is killed.
    async fn emptied(&mut self) {
        let mut killed = None;
        for asked in 0_u32.. {
            if !self.job.has_survivors() {
                return;
            }
            self.look();
            let now = SystemClock.now();
            let is_over = self.stopping.is_none_or(|stopping| stopping.kill_at <= now);
            match killed {
                // A dead process does no more work, even if a busy parent has not reaped it. The look is expensive.
                _ if (killed.is_some() || asked % LOOK_EVERY == 1) && self.job.are_all_dead() => return,
                None if is_over => {
                    self.kill();
                    killed = Some(now);
                }
                Some(since) if now.since(since) > DYING => return self.job.say_that_it_cannot_be_ended(),
                _ => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
    }
}

fn stays(guard: &MultiGuard) -> String {
    format!("{} {}", locks_of(guard), if is_one(guard) { "is" } else { "are" })
}

pub(super) fn certain_until(guard: &MultiGuard) -> Moment {
    SystemClock.now().after(guard.remaining())
}

async fn must_end(guard: &MultiGuard, reserve: Duration, max_hold_over: Moment) -> Cause {
    tokio::select! {
        biased;
        loss = guard.lost() => Cause::Lost(loss),
        () = lapsing(guard, reserve) => Cause::Lapsing,
        () = SystemClock.sleep_until(max_hold_over) => Cause::HeldTooLong,
    }
}

/// Completes when no more than `reserve` of the certainty is left.
async fn lapsing(guard: &MultiGuard, reserve: Duration) {
    loop {
        let remaining = guard.remaining();
        if remaining == Duration::MAX {
            return pending().await;
        }
        let spare = remaining.saturating_sub(reserve);
        if spare.is_zero() {
            return;
        }
        tokio::time::sleep(spare.min(LOOK_AGAIN)).await;
    }
}

/// Completes when a command that was asked to end has had its time.
async fn kill_time(stopping: Option<Stopping>) {
    match stopping {
        Some(Stopping { kill_at, killed: false, .. }) => SystemClock.sleep_until(kill_at).await,
        _ => pending().await,
    }
}

/// Completes when a command that got the terminal must be checked, which happens `left` times.
async fn nudge_time(left: u32) {
    match left {
        0 => pending().await,
        left => tokio::time::sleep(FIRST_NUDGE * 2_u32.pow(NUDGES.saturating_sub(left))).await,
    }
}
