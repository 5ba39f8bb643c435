//! A place that goes from one hold to the next one of the same client, without the store: for sticky locks.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use super::super::Engine;
use super::super::observe::Event;
use super::super::session::Live;
use super::{GuardState, Hold};
use crate::store::{PlaceId, Standing, Waiters};
use crate::time::Moment;

/// Who would rather have the place of a hold than leave it.
pub(crate) trait Retain: Send + Sync {
    /// The last guard of `hold` was given back. Says whether the place is retained; otherwise it is left. Asked again, it says no.
    fn retain(&self, hold: &Arc<Hold>) -> bool;

    /// The hold is lost. May be told twice.
    fn lost(&self);
}

impl Hold {
    /// When its last guard is given back, `retainer` is asked before the place is left.
    pub(crate) fn retained_by(&self, retainer: Box<dyn Retain>) {
        let _ = self.retainer.set(retainer);
        // With the fence of `tell_retainer`: either it finds the retainer, or this finds the loss.
        fence(Ordering::SeqCst);
        if self.phase.get().is_end() {
            self.tell_retainer();
        }
    }

    pub(super) fn tell_retainer(&self) {
        fence(Ordering::SeqCst);
        if let Some(retainer) = self.retainer.get() {
            retainer.lost();
        }
    }

    /// The last guard was given back: whether the place stays with the client, so that nothing is left in the store.
    pub(crate) fn is_retained(self: &Arc<Self>) -> bool {
        self.retainer.get().is_some_and(|retainer| !self.engine.spawner.is_elsewhere() && retainer.retain(self))
    }

    /// A hold of the same place for whoever is next, which ends this one as a release does. Observers hear of the new one once
    /// [`Hold::tell_granted`] is called. `None`, and this one is as it was, where it is not certain that the lock is held.
    pub(crate) fn pass_on(self: &Arc<Self>, deadline: Moment) -> Option<Arc<Self>> {
        if self.state() != GuardState::Held {
            return None;
        }
        let mut slot = self.place.try_lock().ok()?;
        // What the store has told by now, whatever the engine has heard of it.
        if !matches!(slot.as_ref()?.standing(), Standing::Granted(_)) {
            return None;
        }
        let place = slot.take()?;
        let (engine, live) = (Arc::clone(&self.engine), Arc::clone(&self.live));
        let next = Self::of(engine, live, place, self.claim, self.token, self.own_end(), deadline);
        next.is_silent.store(true, Ordering::Relaxed);
        let next = Arc::new(next);
        // What the session is told from now on meets the new one. What it was told before has ended this one.
        if !self.live.replace(self, &next) {
            *slot = next.place.try_lock().ok().and_then(|mut place| place.take());
            return None;
        }
        drop(slot);
        if !self.give_up() {
            next.leave_in_background();
            return None;
        }
        self.tell_released();
        next.watch_deadline();
        Some(next)
    }

    /// Somebody has the lock by this hold, after so long a wait.
    pub(crate) fn tell_granted(&self, waited: Duration) {
        self.is_silent.store(false, Ordering::Relaxed);
        self.engine.observers.tell(Event::Granted { name: &self.id.name, token: self.token, waited });
        self.grant_was_told();
    }

    /// Completes once somebody may wait behind the place: with `true`; or when its session is over: with `false`.
    pub(crate) fn waited_for(&self) -> impl Future<Output = bool> + Send + use<> {
        let (engine, live, place) = (Arc::clone(&self.engine), Arc::clone(&self.live), self.id.clone());
        async move {
            tokio::select! {
                biased;
                _ = live.ended() => false,
                () = somebody_waits(&engine, &live, &place) => true,
            }
        }
    }
}

/// How often a queue is looked at whose store says nothing better.
const LOOK: Duration = Duration::from_millis(100);

/// So many looks in a row may fail.
const MOST_FAILURES: u32 = 5;

async fn somebody_waits(engine: &Engine, live: &Live, place: &PlaceId) {
    let interval = match engine.store.capability().waiters {
        Waiters::Looked(interval) => interval,
        Waiters::Told | Waiters::Unseen => LOOK,
    };
    let mut failures = 0;
    loop {
        let looked = match live.session().waited_for(place) {
            Some(told) => told.await.map(|()| true),
            None => {
                let look = engine.store.contention(&place.name, &[]);
                engine.in_time("contention", look).await.map(|queue| queue.queued > queue.holders)
            }
        };
        match looked {
            Ok(true) => return,
            Ok(false) => {
                failures = 0;
                engine.clock.sleep_until(engine.clock.now().after(interval)).await;
            }
            Err(error) => {
                tracing::debug!(name = %place.name, %error, "nobody knows whether somebody waits for a sticky lock");
                // It is kept no longer where that will stay so: who waits may be there, and unseen.
                failures += 1;
                if !error.is_retryable() || failures > MOST_FAILURES {
                    return;
                }
                engine.pause_after(failures).await;
            }
        }
    }
}
