//! Causes of an acquire that ends without the lock: other holders, an unreachable store, or a limit too short for an answer.

use super::super::look::LATEST;
use super::{Acquire, NOT_ANSWERED, WAIT_IS_OVER, Wait};
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::queue::Claim;
use crate::store::{Ahead, Contention, RequestId};
use crate::time::Moment;

impl Acquire {
    /// Refuses to wait behind more waiters than was allowed. A look comes first: the store may count waiters that have left.
    pub(super) async fn may_wait(&self, mine: RequestId, ahead: Option<Ahead>) -> Result<()> {
        let (Some(limit), Some(ahead)) = (self.wish.max_waiters, ahead) else { return Ok(()) };
        if ahead.waiters < limit {
            return Ok(());
        }
        let looked = Box::pin(self.looked(Some(mine))).await;
        let seen = looked.as_ref().and_then(Contention::waiters_ahead);
        let waiters = seen.map_or(ahead.waiters, |seen| seen.min(ahead.waiters));
        if waiters < limit {
            return Ok(());
        }
        let error = self.contended(ErrorKind::QueueFull, "too many wait already", looked);
        Err(error.with("waiting", waiters).with("max_waiters", limit))
    }

    /// Why the time is up, by the rule that [`OnOutage`](crate::OnOutage) states: the store's refusal, its silence, or the limit.
    pub(super) async fn timed_out(&mut self, mine: Option<RequestId>) -> Error {
        let (mut last, mut in_vain) = (self.failures.take_last(), self.in_vain.take_last());
        if last.is_none() && !self.is_answered {
            last = in_vain.take();
        }
        if last.is_none() && self.engine.current().is_none() {
            last = self.engine.why_no_session();
        }
        if let Some(last) = last.take_if(|last| is_refusal(last) || !self.wish.queues() && last.is_contention()) {
            return if last.is_outage() { self.outage(Some(last)) } else { last.with("name", &self.wish.name) };
        }
        let cause = last.or(in_vain);
        // A store that is silent, or has not answered this client since the wait began, would not answer a look either.
        let has_answered = self.is_answered || self.engine.contact.last_answer() > self.started;
        let answers = has_answered && !self.is_silent_since(Moment::NEVER);
        let looked = if answers { self.last_look(mine).await } else { None };
        let is_answered = self.is_answered || cause.as_ref().is_some_and(Error::is_contention);
        match looked {
            None if self.is_silent() => self.outage(cause),
            None if !answers || !is_answered && cause.is_some() => self.unanswered(cause),
            looked => {
                let message = if is_answered { WAIT_IS_OVER } else { NOT_ANSWERED };
                caused(self.contended(ErrorKind::TimedOut, message, looked), cause)
            }
        }
    }

    /// The answer to the single look at the end of a wait.
    async fn last_look(&mut self, mine: Option<RequestId>) -> Option<Contention> {
        let look = self.look.take().unwrap_or_else(|| self.engine.look(&self.wish.name, mine));
        let until = if self.is_overdue() { self.engine.clock.now() } else { self.until };
        self.engine.answer_in_time(look, until).await
    }

    /// Whether the store, by the end of this wait, has sent this client no answer for a request deadline.
    pub(super) fn is_silent(&self) -> bool {
        self.is_silent_since(match self.is_answered {
            false => self.started,
            // The look has no answer either; if the whole process was paused, there was no time for an answer.
            true if self.is_overdue() => Moment::NEVER,
            true => Moment::ORIGIN,
        })
    }

    /// As above, if the wait's own request has no answer since `unanswered_since`.
    fn is_silent_since(&self, unanswered_since: Moment) -> bool {
        // Late timers are not the store's silence.
        let now = self.engine.clock.now().min(self.until.after(LATEST));
        now.since(self.engine.contact.silent_since(unanswered_since)) >= self.engine.timing.request_deadline
    }

    /// The error of a wait that was too short for an answer: the lock's state is unknown, and the store is not at fault.
    pub(super) fn unanswered(&self, cause: Option<Error>) -> Error {
        let error = Error::new(ErrorKind::TimedOut, "acquire", NOT_ANSWERED).with("name", &self.wish.name);
        caused(error.with("store", &self.engine.url).retryable(), cause)
    }

    /// The store was silent or refused, so that the holder is unknown.
    fn outage(&self, cause: Option<Error>) -> Error {
        let message = match cause {
            // A try returns this error alone; an error of another kind is only the cause of the silence.
            Some(last) if last.is_outage() && !self.wish.queues() => return last.with("name", &self.wish.name),
            Some(_) => "the store could not be used before the time was up",
            None => "the store did not answer before the time was up",
        };
        let error = Error::new(ErrorKind::Unreachable, "acquire", message).with("name", &self.wish.name);
        caused(error.with("store", &self.engine.url).retryable(), cause)
    }

    pub(super) async fn taken(&self) -> Error {
        match self.wish.wait {
            Wait::No(_) => self.refused(ErrorKind::Busy, "the lock is taken", None).await,
            _ => self.refused(ErrorKind::TimedOut, WAIT_IS_OVER, None).await,
        }
    }

    async fn refused(&self, kind: ErrorKind, message: &'static str, mine: Option<RequestId>) -> Error {
        self.contended(kind, message, self.looked(mine).await)
    }

    /// The queue, if the store answers in time.
    async fn looked(&self, mine: Option<RequestId>) -> Option<Contention> {
        let look = self.engine.look(&self.wish.name, mine);
        // A try ends with the answer that refused it.
        let until = if self.wish.queues() { self.until } else { self.engine.clock.now() };
        self.engine.answer_in_time(look, until).await
    }

    fn contended(&self, kind: ErrorKind, message: &'static str, looked: Option<Contention>) -> Error {
        let contention = looked.unwrap_or_else(|| Contention::unknown(self.wish.name.clone()));
        Error::new(kind, "acquire", message).with("name", &self.wish.name).contended(contention)
    }

    pub(super) async fn conflict(&self, theirs: Claim) -> Error {
        let message = "the name is in use as another kind of lock, or with another capacity";
        self.refused(ErrorKind::Conflict, message, None).await.with("theirs", theirs).with("ours", self.wish.claim)
    }
}

/// Whether the store, or the network, refused. Other errors mean that no answer came, or that another request was in the way.
fn is_refusal(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Unreachable => error.outcome() == Outcome::NotApplied,
        kind => !matches!(kind, ErrorKind::Lost | ErrorKind::Busy),
    }
}

fn caused(error: Error, cause: Option<Error>) -> Error {
    match cause {
        Some(cause) => error.caused_by(cause),
        None => error,
    }
}
