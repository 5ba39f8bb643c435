//! The session of a client: how long it is certain, and which places depend on it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use futures_util::task::AtomicWaker;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::contact::Contact;
use super::hold::Hold;
use super::options::Timing;
use crate::error::Error;
use crate::name::Name;
use crate::store::{GrantId, Loss, Opened, PlaceId, PlaceList, RequestId, Session, clean};
use crate::sync::Mutex;
use crate::time::{Clock, Moment};
use crate::token::FencingToken;

/// An open session, as guards and acquires see it.
pub(crate) struct Live {
    pub(super) session: Arc<dyn Session>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) timing: Timing,
    pub(super) contact: Arc<Contact>,
    /// The time until which no other client can have been granted a lock of this session; `NEVER` if sessions do not expire.
    safe_until: AtomicU64,
    /// The earliest end of a hold that has one of its own.
    next_end: AtomicU64,
    /// Rung when that end comes earlier than the keeper may have planned.
    pub(super) sooner: Notify,
    /// When the newest answered renewal was sent. The confirmed moment may be older: a store may prove only the past.
    answered: AtomicU64,
    pub(super) suspect: AtomicBool,
    refusal: Mutex<Option<Arc<str>>>,
    pub(super) used: Arc<AtomicBool>,
    over: OnceLock<Loss>,
    ended: CancellationToken,
    /// Sorted by request, so that a simulation can repeat the order of events.
    places: Mutex<BTreeMap<RequestId, Tracked>>,
}

/// A place that renewals confirm.
enum Tracked {
    Waiting(Name, Arc<WaitSlot>),
    Held(Arc<Hold>),
}

/// A grant that is gone, and why.
#[derive(Debug)]
struct GoneGrant {
    token: FencingToken,
    loss: Loss,
    reason: Option<Arc<str>>,
}

/// Notifies a waiter of the loss of its place, or of its whole session.
#[derive(Debug, Default)]
pub(crate) struct WaitSlot {
    cause: OnceLock<Loss>,
    /// The newest grant of the same request that is known to be gone, possibly before the waiter received it.
    gone: Mutex<Option<Box<GoneGrant>>>,
    /// The waker of the only waiting task.
    waiter: AtomicWaker,
}

impl WaitSlot {
    fn lose(&self, cause: Loss) {
        let _ = self.cause.set(cause);
        self.waiter.wake();
    }

    fn note(&self, grant: GoneGrant) {
        let mut gone = self.gone.lock();
        if gone.as_ref().is_none_or(|before| before.token < grant.token) {
            *gone = Some(Box::new(grant));
        }
    }

    /// Passes a loss of the place, which arrived during the wait, on to the hold.
    pub(crate) fn hand_on(&self, hold: &Arc<Hold>) {
        let gone = self.gone.lock().take();
        let gone = gone.filter(|gone| hold.token() == Some(gone.token));
        if let Some(gone) = gone {
            hold.lose_for(gone.loss, gone.reason);
        }
        if let Some(cause) = self.cause.get() {
            hold.lose(*cause);
        }
    }

    pub(crate) async fn lost(&self) -> Loss {
        poll_fn(|context| {
            self.waiter.register(context.waker());
            self.cause.get().map_or(Poll::Pending, |cause| Poll::Ready(*cause))
        })
        .await
    }
}

impl Live {
    pub(super) fn new(opened: &Opened, clock: Arc<dyn Clock>, timing: Timing, contact: Arc<Contact>) -> Arc<Self> {
        Arc::new(Self {
            session: Arc::clone(&opened.session),
            clock,
            timing,
            contact,
            safe_until: AtomicU64::new(timing.safe_until(opened.confirmed, opened.ttl).as_nanos()),
            next_end: AtomicU64::new(Moment::NEVER.as_nanos()),
            sooner: Notify::new(),
            answered: AtomicU64::new(opened.confirmed.as_nanos()),
            suspect: AtomicBool::new(false),
            refusal: Mutex::default(),
            used: Arc::default(),
            over: OnceLock::new(),
            ended: CancellationToken::new(),
            places: Mutex::default(),
        })
    }

    pub(crate) fn safe_until(&self) -> Moment {
        Moment::from_nanos(self.safe_until.load(Ordering::Acquire))
    }

    /// A renewal proved that the session is certain until `end`.
    pub(super) fn is_safe_until(&self, end: Moment) {
        self.safe_until.store(end.as_nanos(), Ordering::Release);
    }

    /// The time of sending of the newest request with an answer.
    pub(crate) fn answered(&self) -> Moment {
        Moment::from_nanos(self.answered.load(Ordering::Acquire))
    }

    /// Notes the answer to a request that was sent then.
    pub(super) fn was_answered(&self, sent: Moment) {
        self.answered.fetch_max(sent.as_nanos(), Ordering::AcqRel);
    }

    pub(super) fn next_end(&self) -> Moment {
        Moment::from_nanos(self.next_end.load(Ordering::Acquire))
    }

    pub(super) fn can_lapse(&self) -> bool {
        self.safe_until() != Moment::NEVER || self.next_end() != Moment::NEVER
    }

    /// The cause of the session's end, if it has ended. The clock is checked, too, so the answer is right directly after a pause.
    pub(crate) fn over(&self) -> Option<Loss> {
        if let Some(loss) = self.over.get() {
            return Some(*loss);
        }
        (self.clock.now() >= self.safe_until()).then_some(Loss::Unconfirmed)
    }

    /// The store's cause for the end of the session; called after an event or an error that reports the end.
    pub(crate) fn why_over(&self) -> Loss {
        // Defaults to `Expired` if the store gives no cause.
        self.session.over().unwrap_or(Loss::Expired)
    }

    pub(crate) fn is_suspect(&self) -> bool {
        let overdue = self.answered().after(self.timing.renew_interval * 2);
        self.suspect.load(Ordering::Acquire) || (self.can_lapse() && self.clock.now() >= overdue)
    }

    /// The error of the last renewal, if it failed with a permanent error.
    pub(crate) fn refusal(&self) -> Option<Arc<str>> {
        self.refusal.lock().clone()
    }

    /// The last renewal succeeded, or failed with this error.
    pub(super) fn renewal_ended_with(&self, failure: Option<&Error>) {
        let refusal = failure.filter(|error| !error.is_retryable());
        let refusal = refusal.map(|error| clean::reason(error.said_without("server").into()));
        *self.refusal.lock() = refusal;
    }

    pub(crate) async fn ended(&self) -> Loss {
        self.ended.cancelled().await;
        self.over.get().copied().unwrap_or(Loss::Expired)
    }

    pub(crate) fn track_waiting(&self, id: PlaceId) -> Arc<WaitSlot> {
        let slot = Arc::new(WaitSlot::default());
        self.places.lock().insert(id.request, Tracked::Waiting(id.name, Arc::clone(&slot)));
        if let Some(loss) = self.over.get() {
            slot.lose(*loss);
        }
        slot
    }

    /// Puts a held place under renewal. The session may have ended meanwhile: then the hold is lost at once.
    pub(crate) fn track_held(&self, hold: &Arc<Hold>) {
        self.used.store(true, Ordering::Relaxed);
        self.places.lock().insert(hold.id().request, Tracked::Held(Arc::clone(hold)));
        if hold.own_end() != Moment::NEVER {
            self.next_end.fetch_min(hold.own_end().as_nanos(), Ordering::AcqRel);
            self.sooner.notify_one();
        }
        if let Some(loss) = self.over.get() {
            self.untrack(hold);
            hold.lose(*loss);
        }
    }

    /// Moves the place of `hold` to `next`; returns whether it was still under renewal for `hold`.
    pub(crate) fn replace(&self, hold: &Arc<Hold>, next: &Arc<Hold>) -> bool {
        match self.places.lock().get_mut(&hold.id().request) {
            Some(Tracked::Held(known)) if Arc::ptr_eq(known, hold) => {
                *known = Arc::clone(next);
                true
            }
            _ => false,
        }
    }

    /// Takes `hold` out of renewal, and no later hold of the same request. Call this before the place is left, so that no renewal outlives a release.
    pub(crate) fn untrack(&self, hold: &Hold) {
        self.take(
            hold.id().request,
            |tracked| matches!(tracked, Tracked::Held(known) if std::ptr::eq(Arc::as_ptr(known), hold)),
        );
    }

    pub(crate) fn untrack_waiting(&self, request: RequestId) {
        self.take(request, |tracked| matches!(tracked, Tracked::Waiting(..)));
    }

    /// The caller drops the removed entry without the lock: the last reference to a hold drops its place, which calls the store.
    fn take(&self, request: RequestId, is_meant: impl FnOnce(&Tracked) -> bool) -> Option<Tracked> {
        match self.places.lock().entry(request) {
            Slot::Occupied(place) if is_meant(place.get()) => Some(place.remove()),
            _ => None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.lock().len()
    }

    /// Notes the ends of these places' own validity, which may be earlier than before. A grant that has ended stays ended.
    pub(super) fn are_valid(&self, valid: Vec<(PlaceId, Moment)>) {
        let places = self.places.lock();
        for (place, until) in valid {
            if let Some(Tracked::Held(hold)) = places.get(&place.request) {
                hold.is_valid_until(until);
                self.next_end.fetch_min(hold.own_end().as_nanos(), Ordering::AcqRel);
            }
        }
    }

    /// Loses the holds whose own end has come, and finds the next such end.
    pub(super) fn lose_what_ended(&self, now: Moment) {
        if now < self.next_end() {
            return;
        }
        let (mut ended, mut next) = (Vec::new(), Moment::NEVER);
        let places = self.places.lock();
        for tracked in places.values() {
            let Tracked::Held(hold) = tracked else { continue };
            match hold.own_end() {
                end if now >= end => ended.push(Arc::clone(hold)),
                end => next = next.min(end),
            }
        }
        // Computed under the lock, so that the result is not later than the end of a hold that arrives just then.
        self.next_end.store(next.as_nanos(), Ordering::Release);
        drop(places);
        ended.iter().for_each(|hold| hold.lose(Loss::Unconfirmed));
    }

    /// A grant is gone, and no other grant of the same request. If the place waits here, the grant is older, or on its way to the waiter: the
    /// loss is noted for the grant that arrives. `false` if only a renewal can clarify the state.
    pub(super) fn lose_grant(&self, grant: &GrantId, loss: Loss, reason: Option<Arc<str>>) -> bool {
        if let (Some(token), Some(Tracked::Waiting(_, slot))) =
            (grant.token, self.places.lock().get(&grant.place.request))
        {
            slot.note(GoneGrant { token, loss, reason });
            return false;
        }
        self.lose(grant.place.request, loss, reason, |hold| grant.is_of(hold.id(), hold.token()));
        true
    }

    pub(super) fn lose(
        &self,
        request: RequestId,
        loss: Loss,
        reason: Option<Arc<str>>,
        is_meant: impl FnOnce(&Hold) -> bool,
    ) {
        match self.take(request, |tracked| !matches!(tracked, Tracked::Held(hold) if !is_meant(hold))) {
            Some(Tracked::Waiting(_, slot)) => slot.lose(loss),
            Some(Tracked::Held(hold)) => hold.lose_for(loss, reason),
            None => {}
        }
    }

    /// Ends the session, and notifies every place. Returns whether it had not ended before.
    pub(crate) fn end(&self, loss: Loss) -> bool {
        if self.over.set(loss).is_err() {
            return false;
        }
        self.ended.cancel();
        let places = std::mem::take(&mut *self.places.lock());
        for tracked in places.into_values() {
            match tracked {
                Tracked::Waiting(_, slot) => slot.lose(loss),
                Tracked::Held(hold) => hold.lose(loss),
            }
        }
        true
    }
}

impl PlaceList for Live {
    fn each(&self, show: &mut dyn FnMut(&Name, RequestId)) {
        for (request, tracked) in &*self.places.lock() {
            match tracked {
                Tracked::Waiting(name, _) => show(name, *request),
                Tracked::Held(hold) => show(&hold.id().name, *request),
            }
        }
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("safe_until", &self.safe_until())
            .field("over", &self.over.get())
            .finish_non_exhaustive()
    }
}
