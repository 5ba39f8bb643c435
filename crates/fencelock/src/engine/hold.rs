//! A held grant: the place, its guards, and its end.

mod lighten;
mod now;
mod phase;
mod release;
mod report;
mod retain;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::phase::{Current, Phase};
use self::report::ReportState;
pub(crate) use self::retain::Retain;
use super::Engine;
use super::observe::Event;
use super::session::Live;
use crate::error::{Error, ErrorKind};
use crate::queue::Claim;
use crate::store::{Grant, Loss, Place, PlaceId};
use crate::time::Moment;
use crate::token::FencingToken;

/// The state of a guard's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GuardState {
    /// Held: no other client was granted.
    Held,
    /// Held, but a renewal is overdue: [`Guard::remaining`](crate::Guard::remaining) runs down.
    Suspect,
    /// Lost, for this reason. Final.
    Lost(Loss),
    /// Released by the holder.
    Released,
}

/// A granted place. Guards share it; the session's list of places holds it too, so that renewal ends with it.
pub(crate) struct Hold {
    engine: Arc<Engine>,
    live: Arc<Live>,
    id: PlaceId,
    claim: Claim,
    token: Option<FencingToken>,
    /// A margin before the end of the grant's own validity; never, if the session's validity is enough.
    own_end: AtomicU64,
    since: Moment,
    /// The end of `max_hold`; never, without that option.
    deadline: Moment,
    place: tokio::sync::Mutex<Option<Box<dyn Place>>>,
    guards: AtomicU32,
    phase: Current,
    report: ReportState,
    /// An [`Outside`], as a number; zero for a grant of the requested store.
    outside: AtomicU8,
    /// Hidden from observers: the client keeps the lock for itself.
    is_silent: AtomicBool,
    /// The place waited before its grant, so other contenders may wait behind it.
    has_waited: AtomicBool,
    retainer: OnceLock<Box<dyn Retain>>,
    /// Made at the first wait for the end, or for an end with a reason: most locks need none.
    ending: OnceLock<Box<Ending>>,
}

/// The origin of a degraded grant, which is not the requested store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Outside {
    Elsewhere = 1,
    Nowhere,
}

/// The waiters for the end of a hold, and the reason.
#[derive(Default)]
struct Ending {
    lost: CancellationToken,
    /// For users: cancelled with `lost`, and before the engine sends a request that leaves the place.
    over: OnceLock<CancellationToken>,
    /// The reason of a break.
    reason: OnceLock<Arc<str>>,
}

impl Hold {
    pub(crate) fn new(
        engine: Arc<Engine>,
        live: Arc<Live>,
        place: Box<dyn Place>,
        claim: Claim,
        grant: Grant,
        deadline: Moment,
    ) -> Arc<Self> {
        let own_end = engine.timing.own_end(grant);
        let hold = Arc::new(Self::of(engine, Arc::clone(&live), place, claim, grant.token, own_end, deadline));
        live.track_held(&hold);
        hold.watch_deadline();
        hold
    }

    fn of(
        engine: Arc<Engine>,
        live: Arc<Live>,
        place: Box<dyn Place>,
        claim: Claim,
        token: Option<FencingToken>,
        own_end: Moment,
        deadline: Moment,
    ) -> Self {
        Self {
            id: place.id(),
            claim,
            token,
            own_end: AtomicU64::new(own_end.as_nanos()),
            since: engine.clock.now(),
            deadline,
            place: tokio::sync::Mutex::new(Some(place)),
            guards: AtomicU32::new(1),
            phase: Current::held(),
            report: ReportState::new(),
            outside: AtomicU8::new(0),
            is_silent: AtomicBool::new(false),
            has_waited: AtomicBool::new(false),
            retainer: OnceLock::new(),
            ending: OnceLock::new(),
            live,
            engine,
        }
    }

    /// At the deadline the lock is lost. Its place is left with the last guard, at the latest after the margin.
    fn watch_deadline(self: &Arc<Self>) {
        let deadline = self.deadline;
        if deadline == Moment::NEVER {
            return;
        }
        let (hold, clock, over) = (Arc::downgrade(self), Arc::clone(&self.engine.clock), self.lost().clone());
        let at_the_latest = deadline.after(self.engine.timing.margin);
        self.engine.spawner.spawn(async move {
            over.run_until_cancelled(clock.sleep_until(deadline)).await;
            let Some(strong) = hold.upgrade() else { return };
            strong.lose(Loss::HeldTooLong);
            // A release that failed has left its guard, and the place, to its holder.
            if strong.phase.get().is_end() && !strong.lingers() {
                return;
            }
            drop(strong);
            clock.sleep_until(at_the_latest).await;
            if let Some(hold) = hold.upgrade() {
                hold.leave_in_background();
            }
        });
    }

    /// Whether the lock is lost because `max_hold` has ended: no rival is granted until the place is left.
    fn lingers(&self) -> bool {
        self.cause() == Some(Loss::HeldTooLong)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn id(&self) -> &PlaceId {
        &self.id
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// The present state; notices by itself that the validity has ended.
    pub(crate) fn state(self: &Arc<Self>) -> GuardState {
        match self.phase.get() {
            Phase::Held if self.engine.spawner.is_elsewhere() => return GuardState::Lost(Loss::Closed),
            Phase::Held => {}
            Phase::Lost(cause) => return GuardState::Lost(cause),
            Phase::GivenUp | Phase::Leaving | Phase::Left => return GuardState::Released,
        }
        let is_over = |end| end != Moment::NEVER && self.engine.clock.now() >= end;
        let ran_out = if is_over(self.deadline) {
            Some(Loss::HeldTooLong)
        } else {
            is_over(self.own_end()).then_some(Loss::Unconfirmed)
        };
        if let Some(loss) = ran_out.or_else(|| self.live.over()) {
            self.lose(loss);
            return GuardState::Lost(self.cause().unwrap_or(loss));
        }
        if self.live.is_suspect() { GuardState::Suspect } else { GuardState::Held }
    }

    /// When the grant stops being certain by itself.
    pub(super) fn own_end(&self) -> Moment {
        Moment::from_nanos(self.own_end.load(Ordering::Acquire))
    }

    /// A renewal proved that the grant is valid until `valid`; a grant that has ended stays ended.
    pub(super) fn is_valid_until(&self, valid: Moment) {
        if self.engine.clock.now() < self.own_end() {
            self.own_end.store(valid.before(self.engine.timing.margin).as_nanos(), Ordering::Release);
        }
    }

    /// Notes that the place waited before it was granted.
    pub(super) fn waited(&self) {
        self.has_waited.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited.load(Ordering::Relaxed)
    }

    /// Marks the grant as one outside of the requested store.
    pub(crate) fn is_outside(&self, outside: Outside) {
        self.outside.store(outside as u8, Ordering::Relaxed);
    }

    pub(crate) fn is_degraded(&self) -> bool {
        self.outside.load(Ordering::Relaxed) != 0
    }

    /// [`Duration::MAX`] if the grant cannot lapse.
    pub(crate) fn remaining(&self) -> Duration {
        let is_nowhere = self.outside.load(Ordering::Relaxed) == Outside::Nowhere as u8;
        if is_nowhere
            || self.phase.get() != Phase::Held
            || self.live.over().is_some()
            || self.engine.spawner.is_elsewhere()
        {
            return Duration::ZERO;
        }
        self.deadline.min(self.own_end()).min(self.live.safe_until()).since(self.engine.clock.now())
    }

    /// Cancelled when the lock is lost (or released; then there is no cause).
    pub(crate) fn lost(&self) -> &CancellationToken {
        let lost = &self.ending.get_or_init(Box::default).lost;
        // Pairs with the fence of `tell_end`: `tell_end` finds the token, or this call finds the end.
        fence(Ordering::SeqCst);
        if self.phase.get().is_end() {
            lost.cancel();
        }
        lost
    }

    /// Cancelled when the lock is lost, and before the request that leaves its place.
    pub(crate) fn over(&self) -> CancellationToken {
        let lost = self.lost();
        let over = self.ending.get_or_init(Box::default).over.get_or_init(|| lost.child_token());
        // Pairs with the fence of `tell_given_up`, as for `lost`.
        fence(Ordering::SeqCst);
        if self.phase.get() != Phase::Held {
            over.cancel();
        }
        over.child_token()
    }

    fn tell_given_up(&self) {
        fence(Ordering::SeqCst);
        if let Some(over) = self.ending.get().and_then(|ending| ending.over.get()) {
            over.cancel();
        }
    }

    fn tell_end(&self) {
        fence(Ordering::SeqCst);
        if let Some(ending) = self.ending.get() {
            ending.lost.cancel();
        }
    }

    pub(crate) fn cause(&self) -> Option<Loss> {
        self.phase.get().cause()
    }

    pub(crate) fn reason(&self) -> Option<&str> {
        self.ending.get()?.reason.get().map(|reason| &**reason)
    }

    /// The permanent error of the session's renewals, if there is one.
    pub(crate) fn refusal(&self) -> Option<Arc<str>> {
        self.live.refusal()
    }

    fn set_reason(&self, reason: Arc<str>) {
        let _ = self.ending.get_or_init(Box::default).reason.set(reason);
    }

    /// [`Hold::lose`], with a reason given by the breaking client.
    pub(crate) fn lose_for(self: &Arc<Self>, loss: Loss, reason: Option<Arc<str>>) {
        if let Some(reason) = reason {
            self.set_reason(reason);
        }
        self.lose(loss);
    }

    /// Marks the lock lost, notifies, and leaves the place in the background: at once, or after `max_hold` with the last guard. The first cause stays.
    pub(crate) fn lose(self: &Arc<Self>, loss: Loss) {
        if !self.phase.lose(loss) {
            return;
        }
        self.tell_end();
        if !self.is_silent() {
            tracing::warn!(name = %self.id.name, %loss, "lock lost");
        }
        self.tell_retainer();
        if self.report.mark_lost() {
            self.tell_lost(loss);
        }
        if !self.lingers() || self.is_unshared() {
            self.leave_in_background();
        }
    }

    pub(super) fn report_grant(&self) {
        if self.report.mark_granted()
            && let Some(loss) = self.cause()
        {
            self.tell_lost(loss);
        }
    }

    fn tell_lost(&self, loss: Loss) {
        self.engine.observers.tell(Event::Lost { name: &self.id.name, cause: loss, held: self.held() });
    }

    fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    fn held(&self) -> Duration {
        self.engine.clock.now().since(self.since)
    }

    /// Adds a guard to the hold; `false` when the last guard was released already.
    pub(crate) fn share(&self) -> bool {
        let more = |guards| (guards > 0).then_some(guards + 1);
        let shared = self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok();
        if shared {
            self.engine.observers.tell(Event::Reentered { name: &self.id.name });
        }
        shared
    }

    /// Removes a guard; returns whether it was the last one.
    pub(crate) fn unshare(&self) -> bool {
        self.guards.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub(crate) fn has_one_guard(&self) -> bool {
        self.guards.load(Ordering::Acquire) == 1
    }

    pub(crate) fn is_unshared(&self) -> bool {
        self.guards.load(Ordering::Acquire) == 0
    }

    pub(crate) fn lost_before(&self, loss: Loss) -> Error {
        let error =
            Error::new(ErrorKind::Lost, "guard", format!("the lock was lost: {loss}")).with("name", &self.id.name);
        match self.reason() {
            Some(reason) if loss == Loss::Broken => error.with("reason", reason),
            _ => match self.refusal().filter(|_| loss == Loss::Unconfirmed) {
                Some(refusal) => error.with("cause", refusal),
                None => error,
            },
        }
    }

    pub(crate) fn released_before(&self) -> Error {
        Error::new(ErrorKind::Closed, "guard", "the lock was released").with("name", &self.id.name)
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("id", &self.id).field("token", &self.token).finish_non_exhaustive()
    }
}
