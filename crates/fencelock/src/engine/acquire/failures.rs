//! Passing failures are retried, with pauses, until they have lasted for too long.

use std::time::Duration;

use super::super::observe::Event;
use super::Acquire;
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::store::{Loss, RequestId};
use crate::time::Moment;

/// The failures since the last success; most acquires have none.
#[derive(Default)]
pub(super) struct Failures(Option<Box<Streak>>);

struct Streak {
    count: u32,
    first: Moment,
    latest: Moment,
    last: Option<Error>,
}

impl Failures {
    /// Counts another failure. Returns their number, and the time of the first one.
    pub(super) fn another(&mut self, now: Moment) -> (u32, Moment) {
        let begin = || Box::new(Streak { count: 0, first: now, latest: now, last: None });
        let streak = self.0.get_or_insert_with(begin);
        (streak.count, streak.latest) = (streak.count.saturating_add(1), now);
        (streak.count, streak.first)
    }

    /// Begins a new streak if the latest failure is longer ago than `quiet`.
    pub(super) fn forget_after(&mut self, quiet: Duration, now: Moment) {
        if self.0.as_ref().is_some_and(|streak| now.since(streak.latest) > quiet) {
            *self = Self::default();
        }
    }

    fn first(&self) -> Option<Moment> {
        self.0.as_ref().map(|streak| streak.first)
    }

    pub(super) fn take_last(&mut self) -> Option<Error> {
        self.0.as_mut()?.last.take()
    }

    pub(super) fn was(&mut self, error: Option<Error>) {
        if let Some(streak) = &mut self.0 {
            streak.last = error;
        }
    }
}

impl Acquire {
    /// A place went away, alone or with its session. The acquire enters again: at once, after repeated losses with pauses, and not for ever.
    pub(super) async fn retry_after_loss(&mut self, cause: Loss) -> Result<()> {
        let was_removed = cause == Loss::Removed;
        let message = match was_removed {
            true => "its place was taken out of the queue before it had the lock",
            false => "the session was over before it had the lock",
        };
        let error = Error::new(ErrorKind::Lost, "acquire", message).with("cause", cause).retryable();
        let now = self.engine.clock.now();
        // A place that lived for a while begins a new streak: such losses are rarer than pauses.
        self.in_vain.forget_after(self.engine.retry.longest_pause * 2, now);
        let (count, since) = self.streak().another(now);
        let error = if count > 1 { self.pause_after((count - 1, since), error).await? } else { error };
        // A place that was removed on purpose is no fault of the store.
        self.streak().was((!was_removed).then_some(error));
        Ok(())
    }

    /// The failures among which a lost place is counted.
    fn streak(&mut self) -> &mut Failures {
        if self.is_answered { &mut self.in_vain } else { &mut self.failures }
    }

    pub(super) fn succeeded(&mut self) {
        // A store that answers on the caller's thread has no timed request.
        self.engine.was_answered(true);
        self.is_answered = true;
        self.failures = Failures::default();
    }

    /// Ends the failures of a quiet waiter if another request of the client had an answer since the first failure.
    pub(super) fn forget_what_passed(&mut self) {
        if self.failures.first().is_some_and(|first| self.engine.contact.last_answer() > first) {
            self.failures = Failures::default();
        }
    }

    /// Counts a failure and pauses before another try; fails when another try cannot help, or the time has passed. `mine` is the place that waits.
    pub(super) async fn failed(&mut self, error: Error, mine: Option<RequestId>) -> Result<()> {
        let failed = self.failures.another(self.engine.clock.now());
        let error = self.pause_after(failed, error).await?;
        self.failures.was(Some(error));
        if self.is_late() { Err(self.timed_out(mine).await) } else { Ok(()) }
    }

    /// Pauses after `count` failures since `first`, until the limit at most, and returns the last error; fails if a retry no longer helps.
    pub(super) async fn pause_after(&self, (count, first): (u32, Moment), error: Error) -> Result<Error> {
        let now = self.engine.clock.now();
        let is_spent = now.since(first) >= self.engine.retry.give_up_after;
        if is_spent || !error.is_retryable() || self.engine.is_closed() {
            let is_lost = is_spent && error.is_outage() && error.outcome() == Outcome::Unknown;
            let is_unanswered = is_lost && !self.is_silent();
            return Err(if is_unanswered { self.unanswered(Some(error)) } else { error.with("name", &self.wish.name) });
        }
        if now < self.until {
            self.engine.observers.tell(Event::Retried { name: &self.wish.name, error: &error });
            let again = now.after(self.engine.retry.pause(count)).min(self.until);
            self.engine.clock.sleep_until(again).await;
        }
        Ok(error)
    }
}
