//! The link from one client to the store, and the faults scripted for the link.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::state::StoreState;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::served::Places;
use crate::store::RequestId;
use crate::sync::Mutex;
use crate::time::{Clock, Moment};

/// The store, which all links share.
pub(super) struct SharedStore {
    state: Mutex<StoreState>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) is_virtual: bool,
    /// Rung when a trap has caught a request.
    caught: Notify,
}

impl SharedStore {
    pub(super) fn new(clock: Arc<dyn Clock>, is_virtual: bool) -> Arc<Self> {
        let state = Mutex::new(StoreState::new(Arc::clone(&clock)));
        Arc::new(Self { state, clock, is_virtual, caught: Notify::new() })
    }

    /// Looks at the present state. The sessions that it concerns are notified once the lock is given back, since a task that they wake may
    /// look, too.
    pub(super) fn with<R>(&self, look: impl FnOnce(&mut StoreState, Moment) -> R) -> R {
        // A panic under the lock harms no other client: each step leaves a usable state.
        let mut state = self.state.lock();
        let now = self.clock.now();
        state.sweep(now);
        let answer = look(&mut state, now);
        let news = std::mem::take(&mut state.news);
        drop(state);
        for (link, places, news) in news {
            if let Some(link) = link.upgrade() {
                link.tell(places, news);
            }
        }
        answer
    }
}

/// A notification for a session.
pub(super) type News = Box<dyn FnOnce(&Places) + Send>;
/// The effect of a request once it arrives.
pub(super) type Effect = Box<dyn FnOnce(&mut StoreState, Moment) + Send>;

/// A kind of request for which a fault can be scripted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Opening a session.
    Open,
    /// Joining a queue.
    Enter,
    /// Undoing an `enter` that was not answered.
    Withdraw,
    /// Keeping the session alive.
    Renew,
    /// Making a granted claim lighter.
    Lighten,
    /// Asking for the waiters behind a grant.
    Watch,
    /// Giving up a place.
    Leave,
    /// Reading the outline of a queue, as for an error.
    Contention,
    /// Writing a note on a lock.
    WriteNote,
    /// Any other request: closing the session, reading queues, names, notes and breaks, breaking a grant.
    Other,
}

/// The session of a request and, for an `enter`, its id: a withdrawal or the session's end refuses the request.
pub(super) type Tag = Option<(u64, Option<RequestId>)>;

/// The link from one client to the store.
pub(super) struct Link {
    pub(super) shared: Arc<SharedStore>,
    /// Whether any fault is scripted. Without a fault, the link costs one load.
    is_scripted: AtomicBool,
    faults: Mutex<Faults>,
    /// Rings when the client's partition ends.
    healed: Notify,
}

#[derive(Default)]
pub(super) struct Faults {
    pub(super) cut: bool,
    pub(super) crashed: bool,
    pub(super) renewal_delay: Duration,
    pub(super) scripts: Vec<(Operation, Scripted)>,
    /// The notifications that the client's sessions get once it is healed.
    unheard: Vec<(Arc<Places>, News)>,
}

/// The fate of the next request of one kind.
#[derive(Clone, Copy)]
pub(super) enum Scripted {
    LoseReply,
    Hold(u64),
}

impl Link {
    pub(super) fn new(shared: Arc<SharedStore>) -> Arc<Self> {
        let (is_scripted, faults, healed) = (AtomicBool::new(false), Mutex::default(), Notify::new());
        Arc::new(Self { shared, is_scripted, faults, healed })
    }

    /// Scripts faults, or takes them back.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Faults) -> R) -> R {
        let mut faults = self.faults.lock();
        let changed = change(&mut faults);
        let is_cut = faults.cut || faults.crashed;
        let is_scripted = is_cut || !faults.renewal_delay.is_zero() || !faults.scripts.is_empty();
        self.is_scripted.store(is_scripted, Ordering::SeqCst);
        if !is_cut {
            let unheard = std::mem::take(&mut faults.unheard);
            drop(faults);
            unheard.into_iter().for_each(|(places, news)| news(&places));
            self.healed.notify_waiters();
        }
        changed
    }

    /// Holds back the next request of this kind.
    pub(super) fn hold(&self, operation: Operation) -> DelayedRequest {
        let trap = self.shared.with(|state, _| state.set_trap());
        self.change(|faults| faults.scripts.push((operation, Scripted::Hold(trap))));
        DelayedRequest { shared: Arc::clone(&self.shared), trap }
    }

    /// Whether a request may have to wait, or fail.
    pub(super) fn is_scripted(&self) -> bool {
        self.is_scripted.load(Ordering::SeqCst)
    }

    /// Whether the client is cut off from the store.
    pub(super) fn is_cut(&self) -> bool {
        let faults = self.faults.lock();
        faults.cut || faults.crashed
    }

    /// Notifies a session of the client, once it is not cut off.
    fn tell(&self, places: Arc<Places>, news: News) {
        if self.is_scripted() {
            let mut faults = self.faults.lock();
            if faults.cut || faults.crashed {
                return faults.unheard.push((places, news));
            }
        }
        news(&places);
    }

    /// Sends one request: applies it to the store, unless a fault is scripted for it.
    pub(super) async fn send<T: Send + 'static>(
        &self,
        operation: Operation,
        tag: Tag,
        apply: impl FnOnce(&mut StoreState, Moment) -> T + Send + 'static,
    ) -> Result<T> {
        if !self.is_scripted() {
            return Ok(self.shared.with(apply));
        }
        Box::pin(self.send_badly(operation, tag, apply)).await
    }

    async fn send_badly<T: Send + 'static>(
        &self,
        operation: Operation,
        tag: Tag,
        apply: impl FnOnce(&mut StoreState, Moment) -> T + Send + 'static,
    ) -> Result<T> {
        self.until_healed().await;
        let delay = self.faults.lock().renewal_delay;
        if operation == Operation::Renew && !delay.is_zero() {
            let clock = &self.shared.clock;
            clock.sleep_until(clock.now().after(delay)).await;
            self.until_healed().await;
        }
        let script = self.change(|faults| {
            let index = faults.scripts.iter().position(|(of, _)| *of == operation)?;
            Some(faults.scripts.remove(index).1)
        });
        match script {
            None => Ok(self.shared.with(apply)),
            Some(Scripted::LoseReply) => {
                drop(self.shared.with(apply));
                Err(unanswered(operation))
            }
            Some(Scripted::Hold(trap)) => {
                let (answer, answered) = oneshot::channel();
                let effect = move |state: &mut StoreState, now: Moment| drop(answer.send(apply(state, now)));
                self.shared.with(|state, _| state.catch(trap, tag, Box::new(effect)));
                self.shared.caught.notify_waiters();
                // The request is lost when the trap is gone, or when it was withdrawn meanwhile.
                answered.await.map_err(|_| unanswered(operation))
            }
        }
    }

    async fn until_healed(&self) {
        loop {
            let healed = self.healed.notified();
            if !self.is_cut() {
                return;
            }
            healed.await;
        }
    }
}

pub(super) fn unanswered(operation: Operation) -> Error {
    let message = "the answer was lost";
    Error::new(ErrorKind::Unreachable, "memory", message)
        .with("request", format!("{operation:?}"))
        .retryable()
        .outcome_unknown()
}

/// A request that is held back, or a trap that waits for one.
pub(super) struct HeldRequest {
    pub(super) trap: u64,
    pub(super) tag: Tag,
    pub(super) effect: Option<Effect>,
}

/// A request that [`MemoryStore::delay_next`](super::MemoryStore::delay_next) holds back.
///
/// Dropping this loses the request for good, as if the connection had broken.
#[must_use = "dropping it loses the request"]
pub struct DelayedRequest {
    shared: Arc<SharedStore>,
    trap: u64,
}

impl DelayedRequest {
    /// Completes once the request is on its way and held back.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn caught(&self) {
        loop {
            let caught = self.shared.caught.notified();
            if !self.shared.with(|state, _| state.is_open(self.trap)) {
                return;
            }
            caught.await;
        }
    }

    /// Lets the request arrive now, and returns whether the request took effect: not if it was withdrawn, its place was left or its session
    /// ended meanwhile, or no request had been caught yet.
    pub fn release(self) -> bool {
        self.shared.with(|state, now| state.take_trap(self.trap).map(|effect| effect(state, now)).is_some())
    }
}

impl Drop for DelayedRequest {
    fn drop(&mut self) {
        let lost = self.shared.with(|state, _| state.take_trap(self.trap));
        // Dropped outside the lock: the request may own anything that the caller gave it.
        drop(lost);
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

impl fmt::Debug for DelayedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DelayedRequest({})", self.trap)
    }
}
