//! The way from one client to the store, and the faults scripted for it.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::oneshot;

use super::held::Held;
use super::state::StoreState;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::waking_lock::WakingLock;
use crate::store::RequestId;
use crate::time::{Clock, Moment};

/// The store itself, which all links lead to.
pub(super) struct Shared {
    state: WakingLock<StoreState>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) is_virtual: bool,
    traps: AtomicU64,
}

impl Shared {
    pub(super) fn new(clock: Arc<dyn Clock>, is_virtual: bool) -> Arc<Self> {
        let state = WakingLock::new(StoreState::new(Arc::clone(&clock)));
        Arc::new(Self { state, clock, is_virtual, traps: AtomicU64::new(0) })
    }

    /// Looks at the state as it is now, and wakes whom that concerns once the lock is given back.
    pub(super) fn with<R>(&self, look: impl FnOnce(&mut StoreState, Moment) -> R) -> R {
        let mut state = self.state.lock();
        let now = self.clock.now();
        state.sweep(now);
        look(&mut state, now)
    }
}

/// One kind of request, to script a fault for.
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
    /// Ending the session.
    Close,
    /// Making a granted claim lighter.
    Lighten,
    /// Giving up a place.
    Leave,
    /// Reading one queue.
    Queue,
    /// Reading one queue in short, as for an error.
    Contention,
    /// Listing names.
    Names,
    /// Breaking a grant.
    Break,
    /// Reading what was broken.
    Breaks,
}

/// The session a request belongs to and, of an `enter`, its id.
pub(super) type Tag = Option<(u64, Option<RequestId>)>;

/// The way from one client to the store.
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    /// Whether any fault is scripted; without one the way costs one load.
    scripted: AtomicBool,
    faults: Mutex<Faults>,
}

#[derive(Default)]
struct Faults {
    cut: bool,
    crashed: bool,
    renewal_delay: Duration,
    scripts: Vec<(Operation, Script)>,
    parked: Vec<Waker>,
    sessions: Vec<u64>,
}

/// What happens to the next request of one kind.
#[derive(Clone, Copy)]
enum Script {
    LoseReply,
    Hold(u64),
}

impl Link {
    pub(super) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { shared, scripted: AtomicBool::new(false), faults: Mutex::default() })
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Faults)) {
        let parked = {
            let mut faults = self.faults();
            change(&mut faults);
            let scripted =
                faults.cut || faults.crashed || !faults.renewal_delay.is_zero() || !faults.scripts.is_empty();
            self.scripted.store(scripted, Ordering::SeqCst);
            if faults.cut || faults.crashed { Vec::new() } else { std::mem::take(&mut faults.parked) }
        };
        parked.into_iter().for_each(Waker::wake);
    }

    pub(super) fn cut(&self, cut: bool) {
        self.change(|faults| faults.cut = cut);
    }

    pub(super) fn crash(&self) {
        self.change(|faults| faults.crashed = true);
    }

    pub(super) fn slow_renewals(&self, delay: Duration) {
        self.change(|faults| faults.renewal_delay = delay);
    }

    pub(super) fn lose_reply(&self, operation: Operation) {
        self.change(|faults| faults.scripts.push((operation, Script::LoseReply)));
    }

    /// Holds back the next request of this kind; the trap's number.
    pub(super) fn hold(&self, operation: Operation) -> u64 {
        let trap = self.shared.traps.fetch_add(1, Ordering::Relaxed);
        self.shared.with(|state, _| state.held.push(Held::trap(trap)));
        self.change(|faults| faults.scripts.push((operation, Script::Hold(trap))));
        trap
    }

    pub(super) fn opened(&self, session: u64) {
        self.faults().sessions.push(session);
    }

    pub(super) fn closed(&self, session: u64) {
        self.faults().sessions.retain(|open| *open != session);
    }

    pub(super) fn sessions(&self) -> Vec<u64> {
        self.faults().sessions.clone()
    }

    /// Whether the client hears nothing of the store.
    pub(super) fn is_cut(&self) -> bool {
        let faults = self.faults();
        faults.cut || faults.crashed
    }

    /// Whether the client can talk to the store; wakes it when it can again.
    pub(super) fn is_open(&self, cx: &Context<'_>) -> bool {
        if !self.scripted.load(Ordering::SeqCst) {
            return true;
        }
        let mut faults = self.faults();
        let closed = faults.cut || faults.crashed;
        if closed && !faults.parked.iter().any(|waker| waker.will_wake(cx.waker())) {
            faults.parked.push(cx.waker().clone());
        }
        !closed
    }

    /// Sends one request: applies it to the store, unless a fault is scripted for it.
    pub(super) async fn send<T: Send + 'static>(
        &self,
        operation: Operation,
        tag: Tag,
        apply: impl FnOnce(&mut StoreState, Moment) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if !self.scripted.load(Ordering::SeqCst) {
            return self.shared.with(apply);
        }
        Box::pin(self.send_badly(operation, tag, apply)).await
    }

    /// The same for a caller that cannot wait; `None`, and nothing is done, while any fault is scripted.
    pub(super) fn send_now<R>(&self, apply: impl FnOnce(&mut StoreState, Moment) -> R) -> Option<R> {
        (!self.scripted.load(Ordering::SeqCst)).then(|| self.shared.with(apply))
    }

    async fn send_badly<T: Send + 'static>(
        &self,
        operation: Operation,
        tag: Tag,
        apply: impl FnOnce(&mut StoreState, Moment) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.open_again().await;
        let delay = self.faults().renewal_delay;
        if operation == Operation::Renew && !delay.is_zero() {
            let clock = &self.shared.clock;
            clock.sleep_until(clock.now().after(delay)).await;
            self.open_again().await;
        }
        match self.script(operation) {
            None => self.shared.with(apply),
            Some(Script::LoseReply) => {
                drop(self.shared.with(apply));
                Err(unanswered(operation))
            }
            Some(Script::Hold(trap)) => self.wait_for(trap, operation, tag, apply).await,
        }
    }

    async fn open_again(&self) {
        poll_fn(|cx| if self.is_open(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn script(&self, operation: Operation) -> Option<Script> {
        let mut script = None;
        self.change(|faults| {
            let index = faults.scripts.iter().position(|(of, _)| *of == operation);
            script = index.map(|index| faults.scripts.remove(index).1);
        });
        script
    }

    async fn wait_for<T: Send + 'static>(
        &self,
        trap: u64,
        operation: Operation,
        tag: Tag,
        apply: impl FnOnce(&mut StoreState, Moment) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let effect = Box::new(move |state: &mut StoreState, now: Moment| drop(answer.send(apply(state, now))));
        self.shared.with(|state, _| {
            let caught = state.held.iter_mut().find(|held| held.trap == trap).and_then(|held| held.catch(tag, effect));
            state.wakes.extend(caught);
        });
        // The request is lost when the trap is gone, or when it was withdrawn meanwhile.
        answered.await.unwrap_or_else(|_| Err(unanswered(operation)))
    }
}

fn unanswered(operation: Operation) -> Error {
    let operation = match operation {
        Operation::Open => "open",
        Operation::Enter => "enter",
        Operation::Withdraw => "cancel",
        Operation::Renew => "renew",
        Operation::Close => "close",
        Operation::Lighten => "downgrade",
        Operation::Leave => "leave",
        Operation::Queue => "queue",
        Operation::Contention => "contention",
        Operation::Names => "names",
        Operation::Break => "break",
        Operation::Breaks => "breaks",
    };
    Error::new(ErrorKind::Unreachable, operation, "the answer was lost").retryable().outcome_unknown()
}
