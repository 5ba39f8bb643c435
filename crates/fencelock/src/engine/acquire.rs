//! The only acquire loop, for layouts with and without a queue.

mod attempt;
mod failures;
mod late;
mod refusal;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;

use self::attempt::{Attempt, Stage};
use self::failures::Failures;
use super::Engine;
use super::hold::Hold;
use super::look::{Answer, LATEST};
use super::observe::Event;
use super::session::{Live, WaitSlot};
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Entered, Entry, Grant, Loss, RequestId, Standing};
use crate::time::{Moment, outcome_before};

/// The request of an acquire.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) name: Name,
    pub(crate) claim: Claim,
    pub(crate) wait: Wait,
    pub(crate) purpose: Option<Arc<str>>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_waiters: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A single try: waits for the answer for this long, and for the request deadline at most.
    No(Duration),
    For(Duration),
    Forever,
}

const WAIT_IS_OVER: &str = "the wait limit passed";
const NOT_ANSWERED: &str = "the time was up before the store answered this request: not answered yet";

/// The time before the end of a wait at which it looks up the holder, so that slow links can answer: half of the wait at most.
const LOOK_AHEAD: Duration = Duration::from_secs(1);

/// A running acquire. Dropped at any point, it leaves nothing in the store once clean-up has run. Rare steps are boxed, so that a wait stays small.
pub(crate) struct Acquire {
    engine: Arc<Engine>,
    wish: Wish,
    started: Moment,
    until: Moment,
    /// When to look up the holder: without an answer of the store, the cause of a wait's end is unknown.
    look_at: Moment,
    /// Whether the store has answered the request for the present place.
    is_answered: bool,
    look: Option<Answer>,
    failures: Failures,
    /// Rounds in a row that brought no lock although the store answered: the place went away, or the grant came too late to be used.
    in_vain: Failures,
    /// Observers have received the end of this acquire.
    is_reported: bool,
    /// The next poll of [`Acquire::run`] runs on the caller's thread, which must not block and may have no runtime: the poll completes with
    /// a grant, or is pending. Later polls run on the engine's runtime: a wait must not depend on the caller.
    pub(crate) is_inline: bool,
}

/// The outcome of an entry into the queue.
enum Round {
    Done(Arc<Hold>),
    /// The place went away while waiting: enter again, at the tail.
    Again(Loss),
    /// The grant came too late to be used, and was released.
    Late(Error),
}

impl Wish {
    /// Whether to stay in the queue when the lock is taken.
    fn queues(&self) -> bool {
        !matches!(self.wait, Wait::No(_) | Wait::For(Duration::ZERO))
    }
}

impl Acquire {
    pub(crate) fn new(engine: Arc<Engine>, wish: Wish) -> Self {
        let started = engine.clock.now();
        let until = match wish.wait {
            // A single request, which has its whole deadline.
            Wait::For(Duration::ZERO) => started.after(engine.timing.request_deadline),
            Wait::No(limit) => started.after(limit.min(engine.timing.request_deadline)),
            Wait::For(limit) => started.after(limit),
            Wait::Forever => Moment::NEVER,
        };
        let look_at = match wish.wait {
            Wait::For(limit) => until.before(LOOK_AHEAD.min(limit / 2)),
            _ => until,
        };
        let (failures, in_vain) = Default::default();
        let (is_answered, look, is_reported) = (false, None, false);
        let is_inline = engine.current().is_some_and(|live| live.session.answers_inline());
        Self { engine, wish, started, until, look_at, is_answered, look, failures, in_vain, is_reported, is_inline }
    }

    /// Acquires, or returns the cause of the failure.
    pub(crate) async fn run(mut self) -> Result<Arc<Hold>> {
        let acquired = self.rounds().await;
        match &acquired {
            Ok(hold) => self.tell_granted(hold),
            Err(error) => {
                self.is_reported = true;
                let waited = self.waited();
                self.engine.observers.tell(Event::Refused { name: &self.wish.name, error, waited });
            }
        }
        acquired
    }

    fn waited(&self) -> Duration {
        self.engine.clock.now().since(self.started)
    }

    fn tell_granted(&mut self, hold: &Hold) {
        self.is_reported = true;
        let waited = self.waited();
        self.engine.observers.tell(Event::Granted { name: &self.wish.name, token: hold.token(), waited });
        hold.report_grant();
    }

    /// If the first poll is the caller's, completes at the second one, so that the rest runs on the engine's runtime.
    async fn leave_callers_thread(&mut self) {
        poll_fn(|_| if std::mem::take(&mut self.is_inline) { Poll::Pending } else { Poll::Ready(()) }).await;
    }

    async fn rounds(&mut self) -> Result<Arc<Hold>> {
        loop {
            let Some(live) = self.session().await? else { continue };
            match self.round(live).await? {
                Round::Done(hold) => return Ok(hold),
                Round::Again(cause) => {
                    self.engine.observers.tell(Event::Requeued { name: &self.wish.name, cause });
                    Box::pin(self.retry_after_loss(cause)).await?;
                }
                Round::Late(error) => {
                    Box::pin(self.came_late(error)).await?;
                    self.engine.observers.tell(Event::Requeued { name: &self.wish.name, cause: Loss::Unconfirmed });
                }
            }
            // The store's answers for the place that went away do not count for the next place.
            (self.is_answered, self.look) = (false, None);
            if self.is_late() {
                return Err(Box::pin(self.timed_out(None)).await);
            }
        }
    }

    /// The session; `None` after a failure that is worth another try.
    async fn session(&mut self) -> Result<Option<Arc<Live>>> {
        if let Some(live) = self.engine.current() {
            return Ok(Some(live));
        }
        self.leave_callers_thread().await;
        let engine = Arc::clone(&self.engine);
        match outcome_before(&*engine.clock, self.until, Box::pin(engine.session())).await {
            Some(Ok(live)) => Ok(Some(live)),
            Some(Err(error)) => {
                Box::pin(self.failed(error, None)).await?;
                Ok(None)
            }
            None => Err(Box::pin(self.timed_out(None)).await),
        }
    }

    /// An entry into the queue: from its tail to the grant, or to the loss of the place.
    async fn round(&mut self, live: Arc<Live>) -> Result<Round> {
        let mut known_since = self.engine.clock.now();
        let mut attempt = Attempt::new(&self.engine, live, self.wish.name.clone());
        let mut slot: Option<Arc<WaitSlot>> = None;
        if let Some(over) = Box::pin(self.enter(&mut attempt)).await? {
            return Ok(Round::Again(over));
        }
        let is_usable = |grant| attempt.live.over().is_none() && !self.is_too_late(grant);
        if !attempt.standing().grant().is_some_and(is_usable) {
            self.leave_callers_thread().await;
        }
        loop {
            match attempt.standing() {
                Standing::Granted(_) if attempt.live.over().is_some() => return Ok(Round::Again(Loss::Unconfirmed)),
                Standing::Granted(grant) if self.is_too_late(grant) => {
                    let error = self.too_late(grant);
                    Box::pin(attempt.give_back(self.until)).await;
                    return Ok(Round::Late(error));
                }
                Standing::Granted(grant) => {
                    let hold = self.granted(&mut attempt, grant, known_since);
                    // News of the place's end may have arrived after the grant, while the place was still a waiter's.
                    if let Some(slot) = &slot {
                        slot.hand_on(&hold);
                    }
                    return Ok(Round::Done(hold));
                }
                Standing::Lost(cause) => {
                    // An earlier unanswered request may still make a place, which would be ahead of the next entry.
                    attempt.refused();
                    Box::pin(attempt.give_back(self.until)).await;
                    return Ok(Round::Again(cause));
                }
                Standing::Waiting(ahead) if slot.is_none() => {
                    self.may_wait(attempt.id.request, ahead).await?;
                    slot = Some(attempt.track());
                    self.engine.observers.tell(Event::Waiting { name: &self.wish.name, ahead });
                }
                Standing::Waiting(_) => {}
            }
            let Some(slot) = &slot else { continue };
            if let Some(over) = self.wait(&mut attempt, slot).await? {
                return Ok(Round::Again(over));
            }
            known_since = self.engine.clock.now();
        }
    }

    fn entry(&self, id: RequestId) -> Arc<Entry> {
        Arc::new(Entry {
            name: self.wish.name.clone(),
            claim: self.wish.claim,
            id,
            wait: self.wish.queues(),
            purpose: self.wish.purpose.clone(),
        })
    }

    /// Enters, with the same request id until the store has answered. `Some` when the session ended meanwhile.
    async fn enter(&mut self, attempt: &mut Attempt) -> Result<Option<Loss>> {
        let entry = self.entry(attempt.id.request);
        loop {
            let mut request = attempt.live.session.enter(Arc::clone(&entry));
            let mut inline = None;
            if self.is_inline {
                // A store that panics may have entered the queue.
                attempt.stage = Stage::Entering;
                inline = (&mut request).now_or_never();
                if inline.is_none() {
                    attempt.stage = Stage::Fresh;
                }
            }
            if !matches!(inline, Some(Ok(Entered::In(_)))) {
                self.leave_callers_thread().await;
            }
            let answer = match inline {
                Some(answer) => {
                    drop(request);
                    answer
                }
                None if self.is_overdue() => return Err(Box::pin(self.timed_out(None)).await),
                None => {
                    attempt.stage = Stage::Entering;
                    let engine = Arc::clone(&self.engine);
                    tokio::select! {
                        biased;
                        answer = engine.in_time("acquire", request) => answer,
                        () = engine.clock.sleep_until(self.until) => return Err(Box::pin(self.timed_out(None)).await),
                        cause = attempt.live.ended() => return Ok(Some(cause)),
                    }
                }
            };
            match answer {
                Ok(Entered::In(place)) => attempt.stage = Stage::Placed(place),
                Ok(Entered::Busy) => {
                    attempt.refused();
                    return Err(Box::pin(self.taken()).await);
                }
                Ok(Entered::Conflict(claim)) => {
                    attempt.refused();
                    return Err(Box::pin(self.conflict(claim)).await);
                }
                Err(error) if error.kind() == ErrorKind::Lost => {
                    return Ok(Some(self.engine.session_lost(&attempt.live)));
                }
                Err(error) => {
                    // Any error of a store, if the session has ended and is being closed.
                    if let Some(cause) = attempt.live.over() {
                        return Ok(Some(cause));
                    }
                    attempt.unanswered |= error.outcome() == Outcome::Unknown;
                    if !error.is_retryable() {
                        attempt.refused();
                    }
                    Box::pin(self.failed(error, None)).await?;
                    if let Some(cause) = attempt.live.over() {
                        return Ok(Some(cause));
                    }
                    continue;
                }
            }
            self.succeeded();
            return Ok(None);
        }
    }

    /// Waits for a change of the place. `Some` when the place went away with its session.
    async fn wait(&mut self, attempt: &mut Attempt, slot: &WaitSlot) -> Result<Option<Loss>> {
        let Stage::Placed(place) = &mut attempt.stage else { return Ok(Some(Loss::Removed)) };
        let end = if self.look.is_none() { self.look_at } else { self.until };
        let news = tokio::select! {
            biased;
            news = place.next(end) => news,
            // The end of the session arrives here as well.
            cause = slot.lost() => return Ok(Some(cause)),
            // A store that overruns its time must not delay the end of the wait.
            () = self.engine.clock.sleep_until(end) => Ok(place.standing()),
        };
        match news {
            Ok(Standing::Waiting(_)) if self.engine.clock.now() >= end => {
                // The engine's own timer has run out: the store sent nothing.
                self.forget_what_passed();
                self.look.get_or_insert_with(|| self.engine.look(&self.wish.name, Some(attempt.id.request)));
                if self.is_late() {
                    return Err(Box::pin(self.timed_out(Some(attempt.id.request))).await);
                }
            }
            Ok(standing) => {
                self.succeeded();
                let granted = matches!(standing, Standing::Granted(_));
                self.engine.observers.tell(Event::Woken { name: &self.wish.name, granted });
            }
            Err(error) if error.kind() == ErrorKind::Lost => return Ok(Some(self.engine.session_lost(&attempt.live))),
            Err(error) => {
                if let Some(cause) = attempt.live.over() {
                    return Ok(Some(cause));
                }
                self.forget_what_passed();
                Box::pin(self.failed(error, Some(attempt.id.request))).await?;
            }
        }
        Ok(None)
    }

    fn is_late(&self) -> bool {
        self.engine.clock.now() >= self.until
    }

    /// Whether the wait should have ended a while ago. Then no request is sent: many late waits would cause useless answers.
    fn is_overdue(&self) -> bool {
        self.wish.queues() && self.engine.clock.now() >= self.until.after(LATEST)
    }

    fn granted(&self, attempt: &mut Attempt, grant: Grant, known_since: Moment) -> Arc<Hold> {
        let deadline = self.wish.max_hold.map_or(Moment::NEVER, |most| known_since.after(most));
        let Stage::Placed(place) = std::mem::replace(&mut attempt.stage, Stage::Fresh) else {
            unreachable!("a grant is read off a place")
        };
        let (engine, live) = (Arc::clone(&self.engine), Arc::clone(&attempt.live));
        let hold = Hold::new(engine, live, place, self.wish.claim, grant, deadline);
        if attempt.waits_no_longer() {
            hold.waited();
        }
        hold
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if !self.is_reported {
            self.engine.observers.tell(Event::Abandoned { name: &self.wish.name, waited: self.waited() });
        }
    }
}
