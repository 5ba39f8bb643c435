//! Why an acquire ends without the lock: others have it, or the store was not heard of.

use super::super::look::LATEST;
use super::super::session::Live;
use super::{Acquire, QUIET, WAIT_IS_OVER, Wait};
use crate::error::{Error, ErrorKind, Result};
use crate::queue::Claim;
use crate::store::{Ahead, Contention, RequestId};
use crate::time::Moment;

impl Acquire {
    /// Refuses to wait behind more waiters than was allowed. A store may count some who have left when somebody joins, so
    /// nobody is refused before the queue was looked at.
    pub(super) async fn may_wait(&self, mine: RequestId, ahead: Option<Ahead>) -> Result<()> {
        let (Some(limit), Some(ahead)) = (self.wish.max_waiters, ahead) else { return Ok(()) };
        if ahead.waiters < limit {
            return Ok(());
        }
        let looked = Box::pin(self.looked(Some(mine))).await;
        let seen = looked.as_ref().ok().and_then(Contention::waiters_ahead);
        let waiters = seen.map_or(ahead.waiters, |seen| seen.min(ahead.waiters));
        if waiters < limit {
            return Ok(());
        }
        let error = self.contended(ErrorKind::QueueFull, "too many wait already", looked);
        Err(error.with("waiting", waiters).with("max_waiters", limit))
    }

    /// Why the time is over: others had the lock, if the store answered and nothing says that it does not any more.
    pub(super) async fn timed_out(&mut self, mine: Option<RequestId>) -> Error {
        let (last, late) = (self.failures.take_last(), self.late_grants.take_last());
        let Some(live) = self.engine.current().filter(|live| !live.is_suspect()) else {
            return self.outage(last.or_else(|| self.engine.why_no_session()).or(late));
        };
        let Some(heard) = self.heard.filter(|_| last.is_none()) else { return self.outage(last.or(late)) };
        match (self.behind_others(&live, heard, mine).await, late) {
            // The lock was had before the others had it: too late.
            (error, Some(late)) if error.is_contention() => error.caused_by(late),
            (error, _) => error,
        }
    }

    /// Others have the lock, unless a look at the queue says that the store is away.
    async fn behind_others(&mut self, live: &Live, heard: Moment, mine: Option<RequestId>) -> Error {
        let look = self.look.take().unwrap_or_else(|| self.engine.look(&self.wish.name, mine));
        let told = self.engine.told(look, self.until).await;
        match told {
            Some(Err(error)) if error.kind() == ErrorKind::Unreachable => self.outage(Some(error)),
            None if self.is_quiet(live, heard, self.until) => self.outage(None),
            None => self.contended(ErrorKind::TimedOut, WAIT_IS_OVER, Ok(Contention::unknown(self.wish.name.clone()))),
            Some(looked) => self.contended(ErrorKind::TimedOut, WAIT_IS_OVER, looked),
        }
    }

    /// Whether nobody on the session has heard of the store for a while, when a look that ended then was not answered.
    fn is_quiet(&self, live: &Live, heard: Moment, until: Moment) -> bool {
        // Late timers are not the store's silence.
        let over = self.engine.clock.now().min(until.after(LATEST));
        over.since(heard.max(live.heard())) > QUIET
    }

    /// Why the time is over before a request was sent: others of this process were in the way, and one look for all of them
    /// tells whether the store answers, unless others of the session know.
    pub(super) async fn never_asked(&mut self) -> Error {
        let (look, until) = (self.engine.look(&self.wish.name, None), self.engine.clock.now());
        let told = self.engine.told(look, until).await;
        let live = self.engine.current().filter(|live| !live.is_suspect());
        match (told, live) {
            _ if self.failures.last().is_some() => self.timed_out(None).await,
            (Some(Ok(looked)), _) => self.contended(ErrorKind::TimedOut, WAIT_IS_OVER, Ok(looked)),
            (None, Some(live)) if !self.is_quiet(&live, live.heard(), until) => {
                self.contended(ErrorKind::TimedOut, WAIT_IS_OVER, Ok(Contention::unknown(self.wish.name.clone())))
            }
            _ => self.timed_out(None).await,
        }
    }

    /// The store was not heard of, or could do nothing: nobody knows whether the lock is taken, so nobody asks who holds it.
    pub(super) fn outage(&self, last: Option<Error>) -> Error {
        let is_lost = |last: &Error| last.kind() == ErrorKind::Lost;
        let (message, last) = match (self.wish.queues(), last) {
            // As one that is told in the pause between two tries; of another kind only as the cause of the silence.
            (false, Some(last)) if last.kind() == ErrorKind::Unreachable => return last.with("name", &self.wish.name),
            (false, last) => ("the store did not answer within the request deadline", last),
            (true, Some(last)) if is_lost(&last) => {
                ("the session was lost, and the store did not answer before the wait limit passed", Some(last))
            }
            (true, Some(last)) => ("the store could not be used before the wait limit passed", Some(last)),
            (true, None) => ("the store did not answer before the wait limit passed", None),
        };
        let error = Error::new(ErrorKind::Unreachable, "acquire", message).with("name", &self.wish.name).retryable();
        match last {
            Some(last) => error.caused_by(last),
            None => error,
        }
    }

    /// Somebody is ahead, and we do not queue.
    pub(super) async fn taken(&self) -> Error {
        match self.wish.wait {
            Wait::No => self.refused(ErrorKind::Busy, "the lock is taken", None).await,
            _ => self.refused(ErrorKind::TimedOut, WAIT_IS_OVER, None).await,
        }
    }

    async fn refused(&self, kind: ErrorKind, message: &'static str, mine: Option<RequestId>) -> Error {
        self.contended(kind, message, self.looked(mine).await)
    }

    /// Who is in the queue, as far as the store tells in time.
    async fn looked(&self, mine: Option<RequestId>) -> Result<Contention> {
        let look = self.engine.look(&self.wish.name, mine);
        let unknown = || Ok(Contention::unknown(self.wish.name.clone()));
        // Who does not queue is done with the answer that refused it.
        let until = if self.wish.queues() { self.until } else { self.engine.clock.now() };
        self.engine.told(look, until).await.unwrap_or_else(unknown)
    }

    fn contended(&self, kind: ErrorKind, message: &'static str, looked: Result<Contention>) -> Error {
        let contention = looked.unwrap_or_else(|_| Contention::unknown(self.wish.name.clone()));
        Error::new(kind, "acquire", message).with("name", &self.wish.name).contended(contention)
    }

    pub(super) async fn conflict(&self, theirs: Claim) -> Error {
        let message = "the name is in use as another kind of lock, or with another capacity";
        self.refused(ErrorKind::Conflict, message, None).await.with("theirs", theirs).with("ours", self.wish.claim)
    }
}
