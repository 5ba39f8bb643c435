//! One session of one client: how long it is certain, which places hang on it, and the task that keeps it alive.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::StreamExt;
use futures_util::task::AtomicWaker;
use tokio_util::sync::CancellationToken;

use super::hold::Hold;
use super::observe::{Event, Observers};
use super::options::{Retry, Timing};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::store::{Loss, Opened, PlaceId, Renewal, RequestId, Session, SessionEvent, clean};
use crate::time::{Clock, Moment};

/// An open session, as guards and acquires see it.
pub(crate) struct Live {
    session: Arc<dyn Session>,
    clock: Arc<dyn Clock>,
    ttl: Option<Duration>,
    timing: Timing,
    confirmed: AtomicU64,
    /// When the newest renewal that was answered was sent. What it confirmed may be older: a store may only know the past.
    answered: AtomicU64,
    suspect: AtomicBool,
    /// Whether a lock was held on it.
    used: Arc<AtomicBool>,
    over: OnceLock<Loss>,
    ended: CancellationToken,
    places: Mutex<HashMap<RequestId, Tracked>>,
}

/// A place that renewals confirm.
enum Tracked {
    Waiting(Name, Arc<WaitSlot>),
    Held(Arc<Hold>),
}

/// Through which a waiter is told that its place is gone, with its session or alone.
#[derive(Debug, Default)]
pub(crate) struct WaitSlot {
    cause: OnceLock<Loss>,
    /// Of the one task that waits.
    waiter: AtomicWaker,
}

impl WaitSlot {
    fn lose(&self, cause: Loss) {
        let _ = self.cause.set(cause);
        self.waiter.wake();
    }

    /// Why the place is gone, if it is.
    pub(crate) fn cause(&self) -> Option<Loss> {
        self.cause.get().copied()
    }

    /// Completes when the place is gone.
    pub(crate) async fn lost(&self) -> Loss {
        poll_fn(|context| {
            self.waiter.register(context.waker());
            self.cause.get().map_or(Poll::Pending, |cause| Poll::Ready(*cause))
        })
        .await
    }
}

impl Live {
    pub(crate) fn new(
        opened: Opened,
        clock: Arc<dyn Clock>,
        timing: Timing,
    ) -> (Arc<Self>, BoxStream<'static, SessionEvent>) {
        let live = Self {
            session: opened.session,
            clock,
            ttl: opened.ttl,
            timing,
            confirmed: AtomicU64::new(opened.confirmed.as_nanos()),
            answered: AtomicU64::new(opened.confirmed.as_nanos()),
            suspect: AtomicBool::new(false),
            used: Arc::default(),
            over: OnceLock::new(),
            ended: CancellationToken::new(),
            places: Mutex::new(HashMap::new()),
        };
        (Arc::new(live), opened.events)
    }

    pub(crate) fn session(&self) -> &Arc<dyn Session> {
        &self.session
    }

    /// Until when nobody else can have been granted what this session holds.
    pub(crate) fn safe_until(&self) -> Moment {
        match self.ttl {
            None => Moment::NEVER,
            Some(ttl) => self.confirmed().after(ttl).before(self.timing.margin),
        }
    }

    fn confirmed(&self) -> Moment {
        Moment::from_nanos(self.confirmed.load(Ordering::Acquire))
    }

    /// When the newest request was sent that the session knows to have been answered.
    pub(crate) fn answered(&self) -> Moment {
        Moment::from_nanos(self.answered.load(Ordering::Acquire))
    }

    /// Why the session is over, if it is; judged by the clock too, so that it is true right after a pause.
    pub(crate) fn over(&self) -> Option<Loss> {
        if let Some(loss) = self.over.get() {
            return Some(*loss);
        }
        (self.clock.now() >= self.safe_until()).then_some(Loss::Unconfirmed)
    }

    /// Why the store says that the session is over; asked when it said so by an event or an error.
    pub(crate) fn why_over(&self) -> Loss {
        // A store that says two things is taken at its worse word.
        self.session.over().unwrap_or(Loss::Expired)
    }

    /// Whether a renewal is overdue.
    pub(crate) fn is_suspect(&self) -> bool {
        let overdue = self.answered().after(self.timing.renew_interval * 2);
        self.suspect.load(Ordering::Acquire) || (self.ttl.is_some() && self.clock.now() >= overdue)
    }

    /// Completes when the session is over.
    pub(crate) async fn ended(&self) -> Loss {
        self.ended.cancelled().await;
        self.over.get().copied().unwrap_or(Loss::Expired)
    }

    fn places(&self) -> MutexGuard<'_, HashMap<RequestId, Tracked>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a waiting place under renewal.
    pub(crate) fn track_waiting(&self, id: PlaceId) -> Arc<WaitSlot> {
        let slot = Arc::new(WaitSlot::default());
        self.places().insert(id.request, Tracked::Waiting(id.name, Arc::clone(&slot)));
        if let Some(loss) = self.over.get() {
            slot.lose(*loss);
        }
        slot
    }

    /// Puts a held place under renewal. The session may have ended meanwhile: then the hold is lost at once.
    pub(crate) fn track_held(&self, hold: &Arc<Hold>) {
        self.used.store(true, Ordering::Relaxed);
        self.places().insert(hold.id().request, Tracked::Held(Arc::clone(hold)));
        if let Some(loss) = self.over.get() {
            self.untrack(hold.id().request);
            hold.lose(*loss);
        }
    }

    /// Takes a place out of renewal; must come before it is left, so that no renewal outlives a release.
    pub(crate) fn untrack(&self, request: RequestId) {
        self.places().remove(&request);
    }

    /// Whether a lock was ever held on the session; outlives it.
    pub(crate) fn used(&self) -> &Arc<AtomicBool> {
        &self.used
    }

    /// How many places hang on the session.
    pub(crate) fn len(&self) -> usize {
        self.places().len()
    }

    fn renewal_list(&self) -> Arc<[PlaceId]> {
        let name = |tracked: &Tracked| match tracked {
            Tracked::Waiting(name, _) => name.clone(),
            Tracked::Held(hold) => hold.id().name.clone(),
        };
        self.places().iter().map(|(request, tracked)| PlaceId { name: name(tracked), request: *request }).collect()
    }

    /// One place is gone.
    fn lose(&self, request: RequestId, loss: Loss, reason: Option<Arc<str>>) {
        let tracked = match self.places().entry(request) {
            Slot::Occupied(place) => place.remove(),
            Slot::Vacant(_) => return,
        };
        match tracked {
            Tracked::Waiting(_, slot) => slot.lose(loss),
            Tracked::Held(hold) => hold.lose_for(loss, reason),
        }
    }

    /// The session is over: tells every place. Says whether it was not over before.
    pub(crate) fn end(&self, loss: Loss) -> bool {
        if self.over.set(loss).is_err() {
            return false;
        }
        self.ended.cancel();
        let places = std::mem::take(&mut *self.places());
        for tracked in places.into_values() {
            match tracked {
                Tracked::Waiting(_, slot) => slot.lose(loss),
                Tracked::Held(hold) => hold.lose(loss),
            }
        }
        true
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("ttl", &self.ttl).field("over", &self.over.get()).finish_non_exhaustive()
    }
}

/// Keeps one session alive until it is over. The only task that renews.
pub(crate) struct Keeper {
    live: Arc<Live>,
    observers: Observers,
    retry: Retry,
    next_renewal: Moment,
    in_flight: Option<InFlight>,
    failures: u32,
    wall_lead: i128,
}

struct InFlight {
    sent: Moment,
    /// A doubt came up after it was sent, which its answer cannot settle.
    doubted: bool,
    answer: BoxFuture<'static, Result<Renewal>>,
}

impl Keeper {
    pub(crate) fn new(live: Arc<Live>, observers: Observers, retry: Retry) -> Self {
        let next_renewal = live.confirmed().after(live.timing.renew_interval);
        let wall_lead = wall_lead(&*live.clock);
        Self { live, observers, retry, next_renewal, in_flight: None, failures: 0, wall_lead }
    }

    /// Runs until the session is over.
    pub(crate) async fn run(mut self, mut events: BoxStream<'static, SessionEvent>) {
        let mut events_go_on = true;
        let live = Arc::clone(&self.live);
        loop {
            let wake_at = self.wake_at();
            tokio::select! {
                biased;
                _ = live.ended() => return,
                event = events.next(), if events_go_on => match event {
                    Some(event) => self.heard(event),
                    None => events_go_on = false,
                },
                answer = answer_of(&mut self.in_flight) => self.answered(answer),
                () = live.clock.sleep_until(wake_at) => {}
            }
            self.look_at_the_clock();
        }
    }

    fn wake_at(&self) -> Moment {
        let timing = &self.live.timing;
        let next = match &self.in_flight {
            None => self.next_renewal,
            Some(request) if self.live.suspect.load(Ordering::Acquire) => request.sent.after(timing.request_deadline),
            Some(request) => request.sent.after(timing.renew_interval.min(timing.request_deadline)),
        };
        next.min(self.live.safe_until())
    }

    fn heard(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Over => self.over(self.live.why_over()),
            SessionEvent::Gone(place, loss) => self.live.lose(place.request, loss, None),
            SessionEvent::Broken(place, reason) => {
                self.live.lose(place.request, Loss::Broken, Some(clean::reason(reason)))
            }
            SessionEvent::Doubtful => self.doubt(),
        }
    }

    /// Only a renewal that is sent from now on tells how things are.
    fn doubt(&mut self) {
        self.next_renewal = self.live.clock.now();
        if let Some(request) = &mut self.in_flight {
            request.doubted = true;
        }
    }

    fn answered(&mut self, answer: Result<Renewal>) {
        let Some(request) = self.in_flight.take() else { return };
        match answer {
            Ok(renewal) => self.confirmed(&request, renewal),
            Err(error) if error.kind() == ErrorKind::Lost => self.over(self.live.why_over()),
            Err(error) => self.failed(&error),
        }
    }

    fn confirmed(&mut self, request: &InFlight, renewal: Renewal) {
        let live = &self.live;
        // A confirmation that comes after the certainty ran out proves the past, not what happened in between.
        if live.clock.now() < live.safe_until() {
            live.confirmed.fetch_max(renewal.confirmed.as_nanos(), Ordering::AcqRel);
        }
        self.failures = 0;
        live.answered.fetch_max(request.sent.as_nanos(), Ordering::AcqRel);
        if !request.doubted {
            self.next_renewal = request.sent.after(live.timing.renew_interval);
            if live.suspect.swap(false, Ordering::AcqRel) {
                self.observers.tell(Event::Confirmed);
            }
        }
        for (place, loss) in renewal.gone {
            live.lose(place.request, loss, None);
        }
    }

    fn failed(&mut self, error: &Error) {
        self.failures += 1;
        self.observers.tell(Event::RenewalFailed(error));
        tracing::debug!(%error, "renewal failed");
        let pause = self.retry.pause(self.failures).min(self.live.timing.renew_interval);
        self.next_renewal = self.live.clock.now().after(pause);
        if self.failures > 1 {
            self.suspect();
        }
    }

    fn suspect(&self) {
        if !self.live.suspect.swap(true, Ordering::AcqRel) {
            self.observers.tell(Event::Suspect);
        }
    }

    fn over(&self, loss: Loss) {
        if self.live.end(loss) {
            tracing::warn!(%loss, "the session is over");
            self.observers.tell(Event::SessionLost(loss));
        }
    }

    fn look_at_the_clock(&mut self) {
        let (now, timing) = (self.live.clock.now(), self.live.timing);
        if now >= self.live.safe_until() {
            return self.over(Loss::Unconfirmed);
        }
        self.look_for_a_pause();
        match &self.in_flight {
            None if now >= self.next_renewal => self.send(now),
            Some(request) if now >= request.sent.after(timing.request_deadline) => {
                self.in_flight = None;
                let error = Error::new(ErrorKind::Unreachable, "renew", "no answer within the request deadline");
                self.failed(&error.outcome_unknown().retryable());
            }
            Some(request) if now >= request.sent.after(timing.renew_interval) => self.suspect(),
            _ => {}
        }
    }

    fn send(&mut self, now: Moment) {
        let session = Arc::clone(&self.live.session);
        let places = self.live.renewal_list();
        self.in_flight =
            Some(InFlight { sent: now, doubted: false, answer: Box::pin(async move { session.renew(places).await }) });
    }

    /// A paused virtual machine's clocks both stand still; afterwards the wall clock is set right by its host, and has
    /// then gained on ours. That (or any other jump) makes the session doubtful until it is confirmed anew.
    fn look_for_a_pause(&mut self) {
        let lead = wall_lead(&*self.live.clock);
        let gained = lead - std::mem::replace(&mut self.wall_lead, lead);
        if self.live.ttl.is_some() && gained > i128::try_from(self.live.timing.margin.as_nanos()).unwrap_or(i128::MAX) {
            self.suspect();
            self.doubt();
        }
    }
}

impl Drop for Keeper {
    /// Whoever stops renewing, ends the session: also when the runtime goes away under the task.
    fn drop(&mut self) {
        self.over(Loss::Unconfirmed);
    }
}

async fn answer_of(in_flight: &mut Option<InFlight>) -> Result<Renewal> {
    match in_flight {
        Some(request) => (&mut request.answer).await,
        None => std::future::pending().await,
    }
}

/// By how many nanoseconds the wall clock is ahead of ours; only its changes mean something.
fn wall_lead(clock: &dyn Clock) -> i128 {
    let wall = clock.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    i128::try_from(wall).unwrap_or_default() - i128::from(clock.now().as_nanos())
}
