//! The engine of a client, with all its loops and background work.

pub(crate) mod acquire;
mod contact;
pub(crate) mod hold;
pub(crate) mod io;
mod keeper;
mod look;
mod nowhere;
pub(crate) mod observe;
mod opening;
pub(crate) mod options;
pub(crate) mod pending;
mod session;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use self::contact::Contact;
use self::io::Spawner;
use self::look::Looks;
use self::observe::{Event, Observers};
use self::opening::Openings;
use self::options::{Retry, Timing};
use self::pending::Pending;
use self::session::Live;
use crate::error::{Error, ErrorKind, Result, rounded};
use crate::store::{Capability, Loss, Order, Owner, RequestId, Store};
use crate::sync::Mutex;
use crate::time::{Clock, Moment, outcome_before};

/// The state that all handles of a client share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    /// The store's URL, without secrets, for errors; the store's name where there is none.
    pub(crate) url: String,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timing: Timing,
    pub(crate) retry: Retry,
    pub(crate) owner: Owner,
    pub(crate) observers: Observers,
    pub(crate) spawner: Spawner,
    requests: AtomicU64,
    /// The session that began last.
    live: RwLock<Option<Arc<Live>>>,
    openings: Mutex<Openings>,
    /// The capability of the newest session; of the store, before it connects.
    capability: Mutex<Arc<Capability>>,
    looks: Looks,
    contact: Arc<Contact>,
    closed: CancellationToken,
    pending: Arc<Pending>,
}

impl Engine {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        timing: Timing,
        retry: Retry,
        owner: Owner,
        observers: Observers,
        spawner: Spawner,
    ) -> Self {
        Self {
            url: store.capability().store.to_owned(),
            live: RwLock::default(),
            openings: Mutex::default(),
            capability: Mutex::new(Arc::new(store.capability().clone())),
            store,
            clock,
            timing,
            retry,
            owner,
            observers,
            spawner,
            requests: AtomicU64::new(0),
            looks: Looks::default(),
            contact: Arc::default(),
            closed: CancellationToken::new(),
            pending: Arc::new(Pending::default()),
        }
    }

    pub(crate) fn next_request(&self) -> RequestId {
        RequestId { client: self.owner.client, number: self.requests.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    pub(crate) fn capability(&self) -> Arc<Capability> {
        Arc::clone(&self.capability.lock())
    }

    pub(crate) fn current(&self) -> Option<Arc<Live>> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner).clone();
        live.filter(|live| live.over().is_none())
    }

    /// Whether a permanent error prevents every session.
    pub(crate) fn is_refused(&self) -> bool {
        self.why_no_session().is_some_and(|error| !error.is_retryable())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Returns why `live` has ended, after a request failed because of that.
    fn session_lost(&self, live: &Live) -> Loss {
        let loss = live.why_over();
        self.end(live, loss);
        loss
    }

    fn end(&self, live: &Live, loss: Loss) {
        if live.end(loss) {
            self.observers.tell(Event::SessionLost { cause: loss });
        }
    }

    /// Ends the present session, if there is one, and notifies its places at once.
    fn forget(&self, loss: Loss) -> Option<Arc<Live>> {
        let live = self.live.write().unwrap_or_else(PoisonError::into_inner).take()?;
        self.end(&live, loss);
        Some(live)
    }

    /// Closes `live` in the store; retries for as long as it could live there, unless no retry can help.
    async fn close_session(&self, live: &Live) -> Result<()> {
        let _counted = self.pending.ticket();
        let give_up = self.clock.now().after(self.timing.ttl);
        let mut failures = 0;
        loop {
            match self.in_time("close session", live.session.close()).await {
                Ok(()) => return Ok(()),
                Err(error) if !error.is_retryable() || self.clock.now() >= give_up => return Err(error),
                Err(error) => tracing::debug!(%error, "closing the session failed"),
            }
            failures += 1;
            self.pause_after(failures).await;
        }
    }

    pub(crate) async fn close(self: &Arc<Self>) -> Result<()> {
        self.closed.cancel();
        let closed = self.close_current().await;
        self.pending.wait_for_others(0).await;
        closed
    }

    async fn close_current(&self) -> Result<()> {
        self.opening_ended().await;
        let is_certain = self.current().is_some();
        let Some(live) = self.forget(Loss::Closed) else { return Ok(()) };
        match self.close_session(&live).await {
            // The places of a session that had ended before were notified then, and cannot end twice.
            Err(error) if !is_certain => tracing::debug!(%error, "a session that was over is not closed in the store"),
            closed => return closed,
        }
        Ok(())
    }

    /// Called when the last handle is gone: starts what [`Engine::close`] does, and waits for nothing.
    pub(crate) fn abandon(self: &Arc<Self>) {
        if self.is_closed() || self.spawner.is_elsewhere() {
            return;
        }
        self.closed.cancel();
        let engine = Arc::clone(self);
        self.clean_up(async move {
            // Unreleased places expire with the session.
            let limit = engine.clock.now().after(engine.timing.ttl);
            let _ = outcome_before(&*engine.clock, limit, engine.pending.wait_for_others(1)).await;
            let _ = engine.close_current().await;
        });
    }

    pub(crate) fn clean_up(&self, work: impl Future<Output = ()> + Send + 'static) {
        if self.spawner.is_elsewhere() {
            return;
        }
        let counted = self.pending.ticket();
        self.spawner.spawn(async move {
            work.await;
            drop(counted);
        });
    }

    /// Runs `work` on the engine's runtime, and waits for it. Dropping the returned future does not stop `work`, which counts as a clean-up.
    pub(crate) async fn run_to_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let counted = self.pending.ticket();
        let counted_work = async move {
            let done = work.await;
            drop(counted);
            done
        };
        self.spawner.run_to_end(counted_work).await
    }

    /// Notes an answer of the store. In a layout without a queue, immediate answers are the client's own.
    fn was_answered(&self, at_once: bool) {
        if !at_once || self.store.capability().order != Order::None {
            self.contact.answered(self.clock.now());
        }
    }

    /// `request`, or an error once the request deadline has passed.
    pub(crate) async fn in_time<T>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let (sent, mut request) = (self.clock.now(), pin!(request));
        let at_once = request.as_mut().now_or_never();
        let is_at_once = at_once.is_some();
        let answer = async { if let Some(answer) = at_once { answer } else { request.await } };
        let answer = outcome_before(&*self.clock, sent.after(self.timing.request_deadline), answer).await;
        let answer = answer.unwrap_or_else(|| {
            let message = "the store did not answer within the request deadline";
            let error = Error::new(ErrorKind::Unreachable, operation, message);
            let error = error.with("request_deadline", rounded(self.timing.request_deadline)).with("store", &self.url);
            Err(error.outcome_unknown().retryable())
        });
        match &answer {
            Err(error) if error.is_outage() => self.contact.failed(sent),
            // The client may find these errors without the store.
            Err(error) if matches!(error.kind(), ErrorKind::Lost | ErrorKind::Closed | ErrorKind::Config) => {}
            _ => self.was_answered(is_at_once),
        }
        answer
    }

    /// Sleeps on the engine's runtime: the caller's executor may have no timers. A client whose runtime has ended sleeps for ever.
    pub(crate) async fn sleep_until(&self, at: Moment) {
        let clock = Arc::clone(&self.clock);
        let slept = async move {
            clock.sleep_until(at).await;
            Ok(())
        };
        if at == Moment::NEVER || self.spawner.run_apart(slept).await.is_err() {
            std::future::pending().await
        }
    }

    pub(crate) async fn pause_after(&self, failures: u32) {
        self.clock.sleep_until(self.clock.now().after(self.retry.pause(failures))).await;
    }
}
