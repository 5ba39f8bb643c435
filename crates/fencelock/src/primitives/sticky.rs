//! Sticky locks: a released lock stays with its client for a while, unless another client waits.
//!
//! The sections of a client take turns. A section passes its place to a hold of the client's own, from which the next section takes it. For
//! each grant, a task waits for other clients that want it, and for the end of the keeping.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use super::Guard;
use super::lock::Lock;
use crate::engine::Engine;
use crate::engine::acquire::Wait;
use crate::engine::hold::{Hold, Retain};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::Waiters;
use crate::sync::Mutex;
use crate::time::Moment;

/// How long before the end of its wait a task leaves the turns of its client for the store's queue: at most half of the wait.
const LEAVE_TURNS: Duration = Duration::from_secs(1);

/// The most sections of a client under a grant for which it waited. Then the client releases the lock even if no waiter was
/// reported: reports may be late. Otherwise a client could by chance get more of a shared lock than another.
const MOST_SECTIONS: u64 = 256;

/// The sticky locks of one client, by name.
#[derive(Default)]
pub(crate) struct StickyLocks(Mutex<HashMap<Name, Weak<Sticky>>>);

impl StickyLocks {
    pub(super) fn of(self: &Arc<Self>, name: &Name, keep: Duration) -> Arc<Sticky> {
        let mut locks = self.0.lock();
        let sticky = locks.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
            let sticky = Arc::new(Sticky {
                name: name.clone(),
                locks: Arc::downgrade(self),
                keep: AtomicU64::new(0),
                turn: Arc::new(Semaphore::new(1)),
                outage: Arc::default(),
                state: Mutex::default(),
            });
            locks.insert(name.clone(), Arc::downgrade(&sticky));
            sticky
        });
        sticky.keep.store(u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        sticky
    }
}

/// The sticky lock of one name and client. Lives as long as its handles, its sections, and a kept place.
pub(crate) struct Sticky {
    name: Name,
    locks: Weak<StickyLocks>,
    /// How long to keep the lock, in nanoseconds.
    keep: AtomicU64,
    /// The turn of the section that holds the lock or asks for it.
    turn: Arc<Semaphore>,
    /// The section in turn met an outage. The other tasks then send requests of their own; otherwise they would fail in turn.
    outage: Arc<Notify>,
    state: Mutex<KeptGrant>,
}

#[derive(Default)]
struct KeptGrant {
    /// The number of grants so far.
    grants: u64,
    /// The present grant, while it may be kept: no waiter is known.
    current: Option<u64>,
    /// The number of sections that this grant may still have.
    sections: u64,
    /// Between two sections: the kept place, and the end of the keeping.
    kept: Option<(Arc<Hold>, Moment)>,
    watch: Option<AbortHandle>,
}

impl Sticky {
    fn keep(&self) -> Duration {
        Duration::from_nanos(self.keep.load(Ordering::Relaxed))
    }

    /// Waits for the turn; `None` when it is time to join the store's queue.
    async fn turn(&self, engine: &Engine, wait: Wait, started: Moment) -> Option<OwnedSemaphorePermit> {
        let (turn, outage) = (Arc::clone(&self.turn), Arc::clone(&self.outage).notified_owned());
        if let Ok(turn) = Arc::clone(&turn).try_acquire_owned() {
            return Some(turn);
        }
        let until = match wait {
            Wait::No(_) | Wait::For(Duration::ZERO) => return None,
            Wait::For(limit) => started.after(limit - LEAVE_TURNS.min(limit / 2)),
            Wait::Forever => Moment::NEVER,
        };
        let clock = Arc::clone(&engine.clock);
        let waits = async move {
            tokio::select! {
                biased;
                turn = turn.acquire_owned() => Ok(turn.ok()),
                () = outage => Ok(None),
                () = clock.sleep_until(until) => Ok(None),
            }
        };
        // On a task of the engine, a wait with a limit ends in time even without polls of its caller, and keeps no turn.
        let turn = if until == Moment::NEVER { waits.await } else { engine.spawner.run_apart(waits).await };
        turn.ok().flatten()
    }

    /// A hold of the kept place, if there is one and the lock is certainly held; and the number of the grant.
    fn take(&self, deadline: Moment) -> Option<(Arc<Hold>, u64)> {
        let (kept, grant) = {
            let mut state = self.state.lock();
            let grant = state.current?;
            (state.kept.take()?.0, grant)
        };
        let next = kept.pass_on(deadline);
        if next.is_none() {
            self.ends(grant);
            kept.leave_in_background();
        }
        next.map(|hold| (hold, grant))
    }

    /// The store granted `hold` to a section. From now on the hold may be kept.
    fn begin(self: &Arc<Self>, hold: &Arc<Hold>, turn: OwnedSemaphorePermit) {
        let engine = hold.engine();
        let mut state = self.state.lock();
        state.grants += 1;
        let grant = state.grants;
        state.current = Some(grant);
        state.sections = if hold.has_waited() { MOST_SECTIONS } else { u64::MAX };
        drop(state);
        let keeping = Keeping { sticky: Arc::clone(self), grant };
        let watch = engine.spawner.spawn(watch(keeping, Arc::clone(engine), hold.waited_for())).abort_handle();
        let before = self.state.lock().watch.replace(watch);
        before.into_iter().for_each(|watch| watch.abort());
        hold.retained_by(Box::new(Section { sticky: Arc::clone(self), grant, turn: Mutex::new(Some(turn)) }));
    }

    /// Ends a section of this grant; returns whether the place may be kept.
    fn may_keep(&self, grant: u64) -> bool {
        let mut state = self.state.lock();
        state.sections = state.sections.saturating_sub(1);
        state.current == Some(grant) && state.sections > 0
    }

    /// Keeps the place for the client's next section, or releases it if a waiter arrived meanwhile.
    fn put(&self, grant: u64, kept: Arc<Hold>) {
        let until = kept.engine().clock.now().after(self.keep());
        let mut state = self.state.lock();
        if state.current == Some(grant) {
            state.kept = Some((kept, until));
            return;
        }
        drop(state);
        kept.leave_in_background();
    }

    /// Stops keeping the grant, and releases a kept place.
    fn give_up(&self, grant: u64) {
        let mut state = self.state.lock();
        if state.current == Some(grant) {
            state.current = None;
            let kept = state.kept.take();
            drop(state);
            kept.into_iter().for_each(|(kept, _)| kept.leave_in_background());
        }
    }

    /// The grant has ended, or will be released; no task needs to watch it.
    fn ends(&self, grant: u64) {
        let mut state = self.state.lock();
        if state.current == Some(grant) {
            state.current = None;
            let watch = state.watch.take();
            drop(state);
            watch.into_iter().for_each(|watch| watch.abort());
        }
    }

    /// When to check again for the end of the keeping; `None` when the grant has ended.
    fn due(&self, grant: u64, now: Moment) -> Option<Moment> {
        let until = {
            let state = self.state.lock();
            if state.current != Some(grant) {
                return None;
            }
            state.kept.as_ref().map_or_else(|| now.after(self.keep()), |(_, until)| *until)
        };
        if now < until {
            return Some(until);
        }
        self.give_up(grant);
        None
    }
}

impl Drop for Sticky {
    fn drop(&mut self) {
        let Some(locks) = self.locks.upgrade() else { return };
        let mut locks = locks.0.lock();
        // Another lock of the name may have been made since.
        if locks.get(&self.name).is_some_and(|known| known.strong_count() == 0) {
            locks.remove(&self.name);
        }
    }
}

impl fmt::Debug for Sticky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sticky").field("name", &self.name).field("keep", &self.keep()).finish_non_exhaustive()
    }
}

/// A grant that may be kept as long as a task watches it. Without a runtime no task does.
struct Keeping {
    sticky: Arc<Sticky>,
    grant: u64,
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.sticky.give_up(self.grant);
    }
}

/// Ends when another client waits for the grant, or when it was kept long enough.
async fn watch(keeping: Keeping, engine: Arc<Engine>, waited_for: impl Future<Output = bool>) {
    let Keeping { sticky, grant } = &keeping;
    tokio::pin!(waited_for);
    let mut at = engine.clock.now().after(sticky.keep());
    loop {
        tokio::select! {
            biased;
            _ = &mut waited_for => return,
            () = engine.clock.sleep_until(at) => match sticky.due(*grant, engine.clock.now()) {
                Some(next) => at = next,
                None => return,
            },
        }
    }
}

/// A running section of a sticky lock.
struct Section {
    sticky: Arc<Sticky>,
    grant: u64,
    turn: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Retain for Section {
    fn retain(&self, hold: &Arc<Hold>) -> bool {
        let Some(turn) = self.turn.lock().take() else { return false };
        let kept = self.sticky.may_keep(self.grant).then(|| hold.pass_on(Moment::NEVER)).flatten();
        let is_kept = kept.is_some();
        match kept {
            Some(kept) => self.sticky.put(self.grant, kept),
            None => self.sticky.ends(self.grant),
        }
        drop(turn);
        is_kept
    }

    fn lost(&self) {
        let turn = self.turn.lock().take();
        if turn.is_some() {
            self.sticky.ends(self.grant);
        }
    }
}

impl Lock {
    /// Acquires from the client itself if it keeps the lock, or else from the store.
    pub(super) async fn acquire_sticky<K: 'static>(
        &self,
        sticky: &Arc<Sticky>,
        claim: Claim,
        wait: Wait,
    ) -> Result<Guard<K>> {
        let engine = self.client.engine();
        if matches!(engine.store.capability().waiters, Waiters::Unseen) {
            let message = "waiters of this layout leave no trace, so that a sticky lock would never be given to them; the store's default layout shows them";
            return Err(Error::new(ErrorKind::Unsupported, "acquire", message).with("name", &self.wish.name));
        }
        tokio::task::coop::consume_budget().await;
        engine.spawner.check_place()?;
        let started = engine.clock.now();
        let turn = sticky.turn(engine, wait, started).await;
        let waited = engine.clock.now().since(started);
        let Some(turn) = turn else { return self.for_the_store(sticky).in_store(claim, left(wait, waited)).await };
        let deadline = self.wish.max_hold.map_or(Moment::NEVER, |most| engine.clock.now().after(most));
        if let Some((hold, grant)) = sticky.take(deadline) {
            hold.retained_by(Box::new(Section { sticky: Arc::clone(sticky), grant, turn: Mutex::new(Some(turn)) }));
            hold.tell_granted(waited);
            return Guard::of_acquired(hold, &Arc::downgrade(self.client.lifeline())).map(Guard::in_span);
        }
        let acquired = self.for_the_store(sticky).in_store(claim, left(wait, waited)).await;
        if acquired.as_ref().is_err_and(Error::is_outage) {
            sticky.outage.notify_waiters();
        }
        let guard = acquired?;
        if let Some(hold) = guard.hold().upgrade() {
            sticky.begin(&hold, turn);
        }
        Ok(guard)
    }

    /// The lock as the store sees it: the purpose says that the lock is sticky, where the length allows that.
    fn for_the_store(&self, sticky: &Sticky) -> Self {
        let mut lock = self.marked(&format!("(sticky, kept for {:?})", sticky.keep()));
        lock.sticky = None;
        lock
    }
}

/// The rest of a wait.
fn left(wait: Wait, waited: Duration) -> Wait {
    match wait {
        // A wait that began with time left never becomes a try.
        Wait::For(limit) if !limit.is_zero() => Wait::For(limit.saturating_sub(waited).max(Duration::from_nanos(1))),
        wait => wait,
    }
}
