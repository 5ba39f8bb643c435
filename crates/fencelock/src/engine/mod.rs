//! The only loops, the only background work: one engine per client.

pub(crate) mod acquire;
pub(crate) mod clock;
pub(crate) mod hold;
pub(crate) mod io;
mod look;
pub(crate) mod observe;
mod opening;
pub(crate) mod options;
mod pending;
mod session;

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use self::clock::Clock;
use self::io::Spawner;
use self::look::Looks;
use self::observe::{Event, Observers};
use self::options::{Retry, Timing};
use self::pending::Pending;
use self::session::{Keeper, Live};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Loss, Opened, Owner, RequestId, Store};

/// The longest that the drop of the last handle waits for clean-up under way.
const LAST_DROP_LIMIT: Duration = Duration::from_secs(1);

/// How often no session could be opened, and why the last time.
#[derive(Debug, Default)]
struct FailedOpenings {
    count: u64,
    last: Option<Error>,
}

/// What all handles of one client share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timing: Timing,
    pub(crate) retry: Retry,
    pub(crate) owner: Owner,
    pub(crate) observers: Observers,
    pub(crate) spawner: Spawner,
    requests: AtomicU64,
    live: RwLock<Option<Arc<Live>>>,
    opening: tokio::sync::Mutex<()>,
    failed_openings: Mutex<FailedOpenings>,
    looks: Looks,
    closed: AtomicBool,
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
            store,
            clock,
            timing,
            retry,
            owner,
            observers,
            spawner,
            requests: AtomicU64::new(0),
            live: RwLock::new(None),
            opening: tokio::sync::Mutex::new(()),
            failed_openings: Mutex::default(),
            looks: Looks::default(),
            closed: AtomicBool::new(false),
            pending: Arc::new(Pending::default()),
        }
    }

    /// A request id that was never used before.
    pub(crate) fn next_request(&self) -> RequestId {
        RequestId { client: self.owner.client, number: self.requests.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    /// The session, if one is open and certain.
    pub(crate) fn current(&self) -> Option<Arc<Live>> {
        let live = self.live.read().unwrap_or_else(PoisonError::into_inner).clone();
        live.filter(|live| live.over().is_none())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The session; opens one when there is none. Those who come while somebody opens one share the outcome.
    pub(crate) async fn session(self: &Arc<Self>) -> Result<Arc<Live>> {
        if let Some(live) = self.current() {
            return Ok(live);
        }
        let failed_before = self.failed_openings().count;
        let _one_at_a_time = self.opening.lock().await;
        if self.is_closed() {
            return Err(Error::new(ErrorKind::Closed, "session", "the client was closed"));
        }
        if let Some(live) = self.current() {
            return Ok(live);
        }
        if let FailedOpenings { count, last: Some(error) } = &*self.failed_openings()
            && *count > failed_before
        {
            return Err(error.again());
        }
        let opened = self.open_session().await;
        if let Err(error) = &opened {
            let mut failed = self.failed_openings();
            *failed = FailedOpenings { count: failed.count + 1, last: Some(error.again()) };
        }
        opened
    }

    fn failed_openings(&self) -> MutexGuard<'_, FailedOpenings> {
        self.failed_openings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open_session(self: &Arc<Self>) -> Result<Arc<Live>> {
        self.forget(Loss::Unconfirmed);
        let opened = self
            .in_time("open session", self.store.open(&self.owner, self.timing.ttl, Arc::clone(&self.clock)))
            .await?;
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

    /// The store said that `live` is over.
    pub(crate) fn session_lost(&self, live: &Live, loss: Loss) {
        if live.end(loss) {
            self.observers.tell(Event::SessionLost(loss));
        }
    }

    /// Ends the present session, if there is one; its places are told at once.
    fn forget(&self, loss: Loss) -> Option<Arc<Live>> {
        let live = self.live.write().unwrap_or_else(PoisonError::into_inner).take()?;
        self.session_lost(&live, loss);
        Some(live)
    }

    /// Once `live` is over, closes it in the store as well, so that what is left there goes early.
    fn close_when_over(self: &Arc<Self>, live: &Arc<Live>) {
        let (engine, live) = (Arc::downgrade(self), Arc::clone(live));
        self.spawner.spawn(async move {
            if live.ended().await == Loss::Closed {
                return; // Whoever closes the client closes its session, and waits for it.
            }
            if let Some(engine) = engine.upgrade() {
                let _ = engine.close_session(&live).await;
            }
        });
    }

    /// Closes `live` in the store; tries for as long as it could live there, unless no try can help.
    async fn close_session(&self, live: &Live) -> Result<()> {
        let _counted = self.pending.ticket();
        let give_up = self.clock.now().after(self.timing.ttl);
        let mut failures = 0;
        loop {
            match self.in_time("close session", live.session().close()).await {
                Ok(()) => return Ok(()),
                Err(error) if !error.is_retryable() || self.clock.now() >= give_up => return Err(error),
                Err(error) => tracing::debug!(%error, "closing the session failed"),
            }
            failures += 1;
            self.pause_after(failures).await;
        }
    }

    /// Releases everything, and ends the session.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<()> {
        self.closed.store(true, Ordering::Release);
        let closed = self.close_current().await;
        self.pending.wait().await;
        closed
    }

    async fn close_current(&self) -> Result<()> {
        let _one_at_a_time = self.opening.lock().await;
        let is_certain = self.current().is_some();
        let Some(live) = self.forget(Loss::Closed) else { return Ok(()) };
        match self.close_session(&live).await {
            // What hung on a session that was over before was told then; it cannot end twice.
            Err(error) if !is_certain => tracing::debug!(%error, "a session that was over is not closed in the store"),
            closed => return closed,
        }
        Ok(())
    }

    /// Called when the last handle is gone: starts what [`Engine::close`] does, and on our own thread waits for it a
    /// bounded time.
    pub(crate) fn abandon(self: &Arc<Self>) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            let engine = Arc::clone(self);
            self.clean_up(async move {
                // What cannot be released by then goes with the session.
                let limit = engine.clock.now().after(engine.timing.ttl);
                tokio::select! {
                    biased;
                    () = engine.pending.wait_for_others(1) => {}
                    () = engine.clock.sleep_until(limit) => {}
                }
                let _ = engine.close_current().await;
            });
        }
        if self.spawner.has_own_thread() && !io::on_own_thread() {
            self.pending.wait_blocking(LAST_DROP_LIMIT);
        }
    }

    /// Runs `work` in the background, counted.
    pub(crate) fn clean_up(&self, work: impl Future<Output = ()> + Send + 'static) {
        let counted = self.pending.ticket();
        self.spawner.spawn(async move {
            work.await;
            drop(counted);
        });
    }

    /// Runs `work` where requests belong, and waits for it. Dropping the returned future does not stop `work`, which is
    /// counted like a clean-up.
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

    /// `request`, or an error once the request deadline has passed.
    pub(crate) async fn in_time<T>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let deadline = self.clock.now().after(self.timing.request_deadline);
        tokio::select! {
            biased;
            answer = request => answer,
            () = self.clock.sleep_until(deadline) => Err(Error::new(
                ErrorKind::Unreachable,
                operation,
                "the store did not answer within the request deadline",
            )
            .with("request_deadline", format!("{:?}", self.timing.request_deadline))
            .outcome_unknown()
            .retryable()),
        }
    }

    pub(crate) async fn pause_after(&self, failures: u32) {
        self.clock.sleep_until(self.clock.now().after(self.retry.pause(failures))).await;
    }
}
