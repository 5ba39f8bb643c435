//! The engine opens sessions, once for all waiting callers, and again after a loss.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use futures_util::future::Shared;
use tokio::sync::oneshot;

use super::Engine;
use super::io;
use super::keeper::Keeper;
use super::observe::Event;
use super::session::Live;
use crate::error::{Error, ErrorKind, Result, rounded};
use crate::kit::pause::spread;
use crate::store::{self, Loss, Opened};
use crate::time::{Moment, outcome_before};

/// A session that a task of the engine opens, even after its callers have stopped waiting.
pub(super) type SharedOpening = Shared<BoxFuture<'static, Result<Arc<Live>, Arc<Error>>>>;

/// The opening in progress, and the earliest time of another one: many callers send a failing store no more requests than a single one.
#[derive(Debug, Default)]
pub(super) struct Openings {
    under_way: Option<SharedOpening>,
    /// Openings in a row, with the present one, that brought no lock and no session that lived for a renew interval.
    in_vain: u32,
    not_before: Option<Moment>,
    /// The time of the last opening if it succeeded, and whether a lock was held since.
    opened: Option<(Moment, Arc<AtomicBool>)>,
    failed: Option<Arc<Error>>,
}

impl Engine {
    /// Returns the session; opens one when there is none. All callers during an opening share its outcome.
    pub(crate) async fn session(self: &Arc<Self>) -> Result<Arc<Live>> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let opening = {
            let mut openings = self.openings.lock();
            if self.is_closed() {
                return Err(closed());
            }
            if let Some(live) = self.current() {
                return Ok(live);
            }
            match openings.under_way.as_ref().filter(|opening| opening.peek().is_none()) {
                Some(opening) => opening.clone(),
                None => {
                    let not_before = self.next_opening(&mut openings);
                    openings.under_way.insert(self.start_opening(not_before)).clone()
                }
            }
        };
        opening.await.map_err(|error| error.again())
    }

    pub(super) fn why_no_session(&self) -> Option<Error> {
        self.openings.lock().failed.as_ref().map(|error| error.again())
    }

    /// Counts another opening, and says when it may begin.
    fn next_opening(&self, openings: &mut Openings) -> Moment {
        let now = self.clock.now();
        if let Some((since, used)) = &openings.opened
            && (used.load(Ordering::Relaxed) || now.since(*since) >= self.timing.renew_interval)
        {
            *openings = Openings::default();
        }
        openings.in_vain = openings.in_vain.saturating_add(1);
        // A store that panics reports no end.
        let after_this = now.after(self.retry.opening_pause(openings.in_vain));
        let not_before = openings.not_before.replace(after_this).unwrap_or(now);
        if now.since(not_before) >= self.timing.ttl * 2 {
            // Failures from before a quiet time say nothing about the store's present state.
            openings.failed = None;
            self.contact.answered(Moment::ORIGIN);
        }
        not_before
    }

    fn opening_ended_with(&self, openings: &mut Openings, opened: &Result<Arc<Live>, Arc<Error>>) {
        let now = self.clock.now();
        openings.under_way = None;
        // The first session that is lost early is followed by another at once.
        let failures = if opened.is_ok() { openings.in_vain.saturating_sub(1) } else { openings.in_vain };
        openings.not_before = (failures > 0).then(|| now.after(self.retry.opening_pause(failures)));
        openings.opened = opened.as_ref().ok().map(|live| (now, Arc::clone(&live.used)));
        openings.failed = opened.as_ref().err().map(Arc::clone);
    }

    /// Starts the task that opens a session, and sleeps until then first.
    fn start_opening(self: &Arc<Self>, not_before: Moment) -> SharedOpening {
        let (done, outcome) = oneshot::channel();
        let engine = Arc::clone(self);
        self.spawner.spawn(async move {
            let opened = tokio::select! {
                biased;
                () = engine.closed.cancelled() => Err(closed()),
                opened = async {
                    engine.clock.sleep_until(not_before).await;
                    engine.open_session().await
                } => opened,
            };
            let opened = opened.map_err(Arc::new);
            engine.opening_ended_with(&mut engine.openings.lock(), &opened);
            // All waiting callers may be gone.
            let _ = done.send(opened);
        });
        let is_closed = self.closed.clone();
        let given_up = move |_| Err(Arc::new(if is_closed.is_cancelled() { closed() } else { io::stopped() }));
        outcome.map(|opened| opened.unwrap_or_else(given_up)).boxed().shared()
    }

    /// Completes when no session is being opened; after [`Engine::closed`], no other will be.
    pub(super) async fn opening_ended(&self) {
        let under_way = self.openings.lock().under_way.take();
        if let Some(opening) = under_way {
            let _ = opening.await;
        }
    }

    async fn open_session(self: &Arc<Self>) -> Result<Arc<Live>> {
        self.forget(Loss::Unconfirmed);
        let opening = store::Opening {
            owner: self.owner.clone(),
            ttl: self.timing.ttl,
            request_deadline: self.timing.request_deadline,
            clock: Arc::clone(&self.clock),
            tasks: self.spawner.tasks(),
        };
        let opened = self.in_time("open session", self.store.open(opening)).await?;
        self.check_granted(&opened)?;
        let capability = opened.capability.clone();
        *self.capability.lock() = capability.unwrap_or_else(|| Arc::new(self.store.capability().clone()));
        let live = Live::new(&opened, Arc::clone(&self.clock), self.timing, Arc::clone(&self.contact));
        let granted = (opened.confirmed, opened.ttl);
        let keeper = Keeper::new(Arc::clone(&live), granted, self.observers.clone(), self.retry);
        self.spawner.spawn(keeper.run(opened.events));
        if live.over().is_some() {
            let _ = self.in_time("close session", live.session.close()).await;
            let message = "the new session was over at once: the store was slow, or the runtime that renews it is gone";
            return Err(Error::new(ErrorKind::Unreachable, "open session", message).retryable());
        }
        self.close_when_over(&live);
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&live));
        self.observers.tell(Event::SessionOpened);
        Ok(live)
    }

    /// Refuses a session whose validity would end before its renewals are due.
    fn check_granted(self: &Arc<Self>, opened: &Opened) -> Result<()> {
        let needed =
            |granted| self.store.capability().pace.needed(granted, self.timing.renew_interval, self.timing.margin);
        let Some(granted) = opened.ttl.filter(|granted| *granted < needed(*granted)) else { return Ok(()) };
        let (engine, session) = (Arc::clone(self), Arc::clone(&opened.session));
        self.clean_up(async move {
            let _ = engine.in_time("close session", session.close()).await;
        });
        let message = "the store granted a shorter ttl than the renew intervals and the safety margin take";
        Err(Error::new(ErrorKind::Config, "open session", message)
            .with("granted", rounded(granted))
            .with("asked", rounded(self.timing.ttl))
            .with("needed", rounded(needed(granted))))
    }

    /// Once `live` has ended, closes it in the store as well, so that its remains are removed early, and opens another session.
    fn close_when_over(self: &Arc<Self>, live: &Arc<Live>) {
        let (engine, live) = (Arc::downgrade(self), Arc::clone(live));
        self.spawner.spawn(async move {
            if live.ended().await == Loss::Closed {
                return; // The task that closes the client closes its session, and waits for it.
            }
            let Some(engine) = engine.upgrade() else { return };
            let open_another = Arc::clone(&engine);
            engine.spawner.spawn(async move { open_another.open_again().await });
            let _ = engine.close_session(&live).await;
        });
    }

    /// Opens a session, with the pauses of the retry policy, and once per ttl after the time that an acquire would try.
    async fn open_again(self: &Arc<Self>) {
        let patient_until = self.clock.now().after(self.retry.give_up_after);
        let mut failures = 1;
        loop {
            let pause = match self.clock.now() < patient_until {
                true => self.retry.pause(failures),
                // Clients that lost a store together must not return to it together.
                false => spread(self.timing.ttl),
            };
            let pause = self.clock.sleep_until(self.clock.now().after(pause));
            if self.closed.run_until_cancelled(pause).await.is_none() {
                return;
            }
            match self.session().await {
                Ok(_) => return,
                Err(error) => tracing::debug!(%error, "no session could be opened in the background"),
            }
            failures += 1;
        }
    }

    /// Opens the session. With a limit, passing failures are retried until then.
    pub(crate) async fn connect(self: &Arc<Self>, limit: Option<Duration>) -> Result<()> {
        let Some(limit) = limit.filter(|limit| !limit.is_zero()) else {
            return self.session().await.map(drop);
        };
        let until = self.clock.now().after(limit);
        let (mut failures, mut last) = (0, None);
        while self.clock.now() < until {
            let Some(opened) = outcome_before(&*self.clock, until, self.session()).await else { break };
            match opened {
                Ok(_) => return Ok(()),
                Err(error) if !error.is_retryable() => return Err(error),
                Err(error) => last = Some(error),
            }
            failures += 1;
            let again = self.clock.now().after(self.retry.pause(failures)).min(until);
            self.clock.sleep_until(again).await;
        }
        let silent = || {
            let message = "the store did not answer within the connect timeout";
            let error = Error::new(ErrorKind::Unreachable, "connect", message).with("store", &self.url);
            error.outcome_unknown().retryable()
        };
        Err(last.unwrap_or_else(silent).with("connect_timeout", rounded(limit)))
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "session", "the client was closed")
}
