//! Sessions are opened by the engine, once for all who wait for one, and again when one is lost.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use futures_util::future::Shared;
use tokio::sync::oneshot;

use super::Engine;
use super::io;
use super::observe::Event;
use super::session::{Keeper, Live};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{self, Loss, Opened};

/// A session that is being opened by a task of the engine: it goes on whoever stops waiting for it.
pub(super) type SharedOpening = Shared<BoxFuture<'static, Result<Arc<Live>, Arc<Error>>>>;

impl Engine {
    /// The session; has one opened when there is none. All who come while one is being opened share the outcome.
    pub(crate) async fn session(self: &Arc<Self>) -> Result<Arc<Live>> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let opening = {
            let mut under_way = self.under_way();
            if self.is_closed() {
                return Err(closed());
            }
            if let Some(live) = self.current() {
                return Ok(live);
            }
            match under_way.as_ref().filter(|opening| opening.peek().is_none()) {
                Some(opening) => opening.clone(),
                None => under_way.insert(self.start_opening()).clone(),
            }
        };
        opening.await.map_err(|error| error.again())
    }

    fn under_way(&self) -> MutexGuard<'_, Option<SharedOpening>> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_opening(self: &Arc<Self>) -> SharedOpening {
        let (done, outcome) = oneshot::channel();
        let engine = Arc::clone(self);
        self.spawner.spawn(async move {
            let opened = tokio::select! {
                biased;
                () = engine.closed.cancelled() => Err(closed()),
                opened = engine.open_session() => opened,
            };
            *engine.under_way() = None;
            // Nobody may be waiting any more.
            let _ = done.send(opened);
        });
        let is_closed = self.closed.clone();
        let given_up = move |_| Err(if is_closed.is_cancelled() { closed() } else { io::stopped() });
        async move { outcome.await.unwrap_or_else(given_up).map_err(Arc::new) }.boxed().shared()
    }

    /// Completes when no session is being opened; after [`Engine::closed`], no other will be.
    pub(super) async fn opening_ended(&self) {
        let under_way = self.under_way().take();
        if let Some(opening) = under_way {
            let _ = opening.await;
        }
    }

    async fn open_session(self: &Arc<Self>) -> Result<Arc<Live>> {
        self.forget(Loss::Unconfirmed);
        let opened = self.in_time("open session", self.store.open(self.to_open_with())).await?;
        self.check_granted(&opened)?;
        let (live, events) = Live::new(opened, Arc::clone(&self.clock), self.timing);
        let keeper = Keeper::new(Arc::clone(&live), self.observers.clone(), self.retry);
        self.spawner.spawn(keeper.run(events));
        if live.over().is_some() {
            let _ = self.in_time("close session", live.session().close()).await;
            let message = "the new session was over at once: the store was slow, or the runtime that renews it is gone";
            return Err(Error::new(ErrorKind::Unreachable, "open session", message).retryable());
        }
        self.close_when_over(&live);
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&live));
        self.observers.tell(Event::SessionOpened);
        Ok(live)
    }

    fn to_open_with(&self) -> store::Opening {
        store::Opening {
            owner: self.owner.clone(),
            ttl: self.timing.ttl,
            request_deadline: self.timing.request_deadline,
            clock: Arc::clone(&self.clock),
            tasks: self.spawner.tasks(),
        }
    }

    /// A session whose certainty would run out before its renewals are due is worth nothing.
    fn check_granted(self: &Arc<Self>, opened: &Opened) -> Result<()> {
        let needed =
            |granted| self.store.capability().pace.needed(granted, self.timing.renew_interval, self.timing.margin);
        let Some(granted) = opened.ttl.filter(|granted| *granted < needed(*granted)) else { return Ok(()) };
        let (engine, session) = (Arc::clone(self), Arc::clone(&opened.session));
        self.clean_up(async move {
            let _ = engine.in_time("close session", session.close()).await;
        });
        let message = "the store granted a shorter ttl than the renew intervals and the margin take";
        Err(Error::new(ErrorKind::Config, "open session", message)
            .with("granted", format!("{granted:?}"))
            .with("asked", format!("{:?}", self.timing.ttl))
            .with("needed", format!("{:?}", needed(granted))))
    }

    /// Once `live` is over, closes it in the store as well, so that what is left there goes early, and opens another.
    fn close_when_over(self: &Arc<Self>, live: &Arc<Live>) {
        let (engine, live) = (Arc::downgrade(self), Arc::clone(live));
        self.spawner.spawn(async move {
            if live.ended().await == Loss::Closed {
                return; // Whoever closes the client closes its session, and waits for it.
            }
            let Some(engine) = engine.upgrade() else { return };
            let open_another = Arc::clone(&engine);
            engine.spawner.spawn(async move { open_another.open_again().await });
            let _ = engine.close_session(&live).await;
        });
    }

    /// Tries until there is a session, or the client is closed: with the pauses of the retry policy, and once per ttl when
    /// that has failed for as long as an acquire would try.
    async fn open_again(self: &Arc<Self>) {
        let patient_until = self.clock.now().after(self.retry.give_up_after);
        let mut failures = 1;
        loop {
            let pause = match self.clock.now() < patient_until {
                true => self.retry.pause(failures),
                false => self.timing.ttl,
            };
            tokio::select! {
                () = self.closed.cancelled() => return,
                () = self.clock.sleep_until(self.clock.now().after(pause)) => {}
            }
            match self.session().await {
                Ok(_) => return,
                Err(error) => tracing::debug!(%error, "no session could be opened in the background"),
            }
            failures += 1;
        }
    }

    /// Opens the first session. With a limit, what failed for a passing reason is tried again until then.
    pub(crate) async fn connect(self: &Arc<Self>, limit: Option<Duration>) -> Result<()> {
        let Some(limit) = limit.filter(|limit| !limit.is_zero()) else {
            return self.session().await.map(drop);
        };
        let until = self.clock.now().after(limit);
        let (mut failures, mut last) = (0, None);
        while self.clock.now() < until {
            let opened = tokio::select! {
                biased;
                opened = self.session() => opened,
                () = self.clock.sleep_until(until) => break,
            };
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
            Error::new(ErrorKind::Unreachable, "connect", message).outcome_unknown().retryable()
        };
        Err(last.unwrap_or_else(silent).with("connect_timeout", format!("{limit:?}")))
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "session", "the client was closed")
}
