//! The task that keeps a session alive, and receives its events.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use tokio::task::unconstrained;

use super::io::Home;
use super::observe::{Event, Observers};
use super::options::Retry;
use super::session::Live;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{GrantId, Loss, Renewal, SessionEvent, clean};
use crate::time::{Clock, Moment};

/// Keeps a session alive until it ends. The only task that renews.
pub(crate) struct Keeper {
    live: Arc<Live>,
    observers: Observers,
    retry: Retry,
    /// The newest moment that a renewal confirmed, and the ttl that counts from it.
    confirmed: Moment,
    ttl: Option<Duration>,
    renew_interval: Duration,
    next_renewal: Moment,
    in_flight: Option<InFlight>,
    failures: u32,
    wall_lead: i128,
    home: Home,
}

struct InFlight {
    sent: Moment,
    /// A doubt arose after the renewal was sent; the answer cannot settle it.
    doubted: bool,
    answer: BoxFuture<'static, Result<Renewal>>,
}

impl Keeper {
    pub(crate) fn new(
        live: Arc<Live>,
        (confirmed, ttl): (Moment, Option<Duration>),
        observers: Observers,
        retry: Retry,
    ) -> Self {
        let renew_interval = live.timing.renew_interval;
        Self {
            observers,
            retry,
            confirmed,
            ttl,
            renew_interval,
            next_renewal: confirmed.after(renew_interval),
            in_flight: None,
            failures: 0,
            wall_lead: wall_lead(&*live.clock),
            home: Home::here(),
            live,
        }
    }

    pub(crate) async fn run(mut self, mut events: BoxStream<'static, SessionEvent>) {
        let mut events_go_on = true;
        let live = Arc::clone(&self.live);
        loop {
            let wake_at = self.wake_at();
            tokio::select! {
                biased;
                _ = live.ended() => return,
                event = events.next(), if events_go_on => match event {
                    Some(event) => self.receive(event),
                    None => events_go_on = false,
                },
                () = live.sooner.notified() => {}
                answer = answer_of(&mut self.in_flight) => {
                    // The store's events may have the causes of places that this answer reports gone.
                    while events_go_on && let Some(event) = unconstrained(events.next()).now_or_never() {
                        match event {
                            Some(event) => self.receive(event),
                            None => events_go_on = false,
                        }
                    }
                    self.answered(answer);
                }
                () = live.clock.sleep_until(wake_at) => {}
            }
            if self.home.is_elsewhere() {
                // This runtime is a fork's copy: its connections belong to the parent.
                return self.over(Loss::Closed);
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
        next.min(self.live.safe_until()).min(self.live.next_end())
    }

    fn receive(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Over => self.over(self.live.why_over()),
            SessionEvent::Gone(grant, loss) => self.lost(&grant, loss, None),
            SessionEvent::Broken(grant, reason) => self.lost(&grant, Loss::Broken, Some(clean::reason(reason))),
            SessionEvent::Doubtful => self.doubt(),
        }
    }

    fn lost(&mut self, grant: &GrantId, loss: Loss, reason: Option<Arc<str>>) {
        if !self.live.lose_grant(grant, loss, reason) {
            self.doubt();
        }
    }

    /// Only a renewal that is sent later settles the doubt.
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
            Err(error) => {
                self.live.renewal_ended_with(Some(&error));
                self.failed(request.sent, &error);
            }
        }
    }

    fn confirmed(&mut self, request: &InFlight, renewal: Renewal) {
        // A confirmation that arrives after the end of the validity proves the past, not the time in between.
        let (now, safe_until) = (self.live.clock.now(), self.live.safe_until());
        if now < safe_until {
            self.prove(renewal.confirmed, renewal.ttl);
            self.observers.tell(Event::Renewed { left: safe_until.since(now) });
        }
        self.failures = 0;
        let live = &self.live;
        live.renewal_ended_with(renewal.refusal.as_deref());
        live.was_answered(request.sent);
        live.contact.answered(now);
        live.are_valid(renewal.valid);
        if !request.doubted {
            self.next_renewal = request.sent.after(self.renew_interval);
            if live.suspect.swap(false, Ordering::AcqRel) {
                self.observers.tell(Event::Confirmed);
            }
        }
        for (place, loss) in renewal.gone {
            live.lose(place.request, loss, None, |_| true);
        }
    }

    /// The session is certain from `confirmed` on, for the ttl that the store grants from now on.
    fn prove(&mut self, confirmed: Moment, ttl: Option<Duration>) {
        match ttl.filter(|ttl| self.ttl != Some(*ttl)) {
            None => self.confirmed = self.confirmed.max(confirmed),
            Some(ttl) => {
                tracing::warn!(before = ?self.ttl, ?ttl, "the store grants another ttl than before");
                (self.confirmed, self.ttl) = (confirmed, Some(ttl));
                self.renew_interval = self.live.timing.renew_interval.min(ttl / 3);
            }
        }
        let before = self.live.safe_until();
        self.live.is_safe_until(self.live.timing.safe_until(self.confirmed, self.ttl));
        // After the clock was read here, another task may have found the end of the session. That task does the rest.
        if self.live.clock.now() >= before {
            self.over(Loss::Unconfirmed);
        }
    }

    fn failed(&mut self, sent: Moment, error: &Error) {
        if error.is_outage() {
            self.live.contact.failed(sent);
        }
        self.failures += 1;
        self.observers.tell(Event::RenewalFailed { error });
        tracing::debug!(%error, "renewal failed");
        let pause = self.retry.renewal_pause(self.failures).min(self.live.timing.renew_interval);
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
            tracing::warn!(%loss, "the session has ended");
            self.observers.tell(Event::SessionLost { cause: loss });
        }
    }

    fn look_at_the_clock(&mut self) {
        let (now, timing) = (self.live.clock.now(), self.live.timing);
        if now >= self.live.safe_until() {
            return self.over(Loss::Unconfirmed);
        }
        self.live.lose_what_ended(now);
        self.look_for_a_pause();
        match &self.in_flight {
            None if now >= self.next_renewal => self.send(now),
            Some(InFlight { sent, .. }) if now >= sent.after(timing.request_deadline) => {
                let sent = *sent;
                self.in_flight = None;
                let error = Error::new(ErrorKind::Unreachable, "renew", "no answer within the request deadline");
                self.failed(sent, &error.outcome_unknown().retryable());
            }
            Some(request) if now >= request.sent.after(timing.renew_interval) => self.suspect(),
            _ => {}
        }
    }

    fn send(&mut self, now: Moment) {
        let live = Arc::clone(&self.live);
        let answer = Box::pin(async move { live.session.renew(&*live).await });
        self.in_flight = Some(InFlight { sent: now, doubted: false, answer });
    }

    /// In a paused virtual machine both clocks stand still; afterwards the host corrects the wall clock, which then gains on the monotonic
    /// one. That (or any other jump) makes the session doubtful until its next confirmation.
    fn look_for_a_pause(&mut self) {
        let lead = wall_lead(&*self.live.clock);
        let gained = lead - std::mem::replace(&mut self.wall_lead, lead);
        if self.live.can_lapse() && gained > i128::try_from(self.live.timing.margin.as_nanos()).unwrap_or(i128::MAX) {
            self.suspect();
            self.doubt();
        }
    }
}

impl Drop for Keeper {
    /// A keeper that stops renewing ends the session, also if the task's runtime ends.
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

/// The nanoseconds by which the wall clock is ahead of the monotonic one; only changes matter.
fn wall_lead(clock: &dyn Clock) -> i128 {
    let wall = clock.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    i128::try_from(wall).unwrap_or_default() - i128::from(clock.now().as_nanos())
}
