//! A place that passes from one hold to the next hold of the same client, without the store: for sticky locks.

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

/// An owner that can keep the place of a hold instead of leaving it.
pub(crate) trait Retain: Send + Sync {
    /// The last guard of `hold` was released. Returns whether the place is retained; otherwise it is left. A second call returns false.
    fn retain(&self, hold: &Arc<Hold>) -> bool;

    /// The hold is lost. May be called twice.
    fn lost(&self);
}

impl Hold {
    /// Lets `retainer` decide, when the last guard ends, whether the place is left.
    pub(crate) fn retained_by(&self, retainer: Box<dyn Retain>) {
        let _ = self.retainer.set(retainer);
        // Pairs with the fence of `tell_retainer`: `tell_retainer` finds the retainer, or this call finds the loss.
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

    /// Whether the place stays with the client after its last guard, so that the store receives no release.
    pub(crate) fn is_retained(self: &Arc<Self>) -> bool {
        self.retainer.get().is_some_and(|retainer| !self.engine.spawner.is_elsewhere() && retainer.retain(self))
    }

    /// A hold of the same place for the next section, which ends this one as a release does. Observers receive the new one once
    /// [`Hold::tell_granted`] is called. `None`, without a change of this hold, where it is not certain that the lock is held.
    pub(crate) fn pass_on(self: &Arc<Self>, deadline: Moment) -> Option<Arc<Self>> {
        if self.state() != GuardState::Held {
            return None;
        }
        let mut slot = self.place.try_lock().ok()?;
        // The store's newest report, which the engine may not have read yet.
        if !matches!(slot.as_ref()?.standing(), Standing::Granted(_)) {
            return None;
        }
        let place = slot.take()?;
        let (engine, live) = (Arc::clone(&self.engine), Arc::clone(&self.live));
        let next = Self::of(engine, live, place, self.claim, self.token, self.own_end(), deadline);
        next.is_silent.store(true, Ordering::Relaxed);
        let next = Arc::new(next);
        // Later events of the session reach the new hold. Earlier ones have ended this hold.
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

    /// Reports to observers that a caller got the lock by this hold, after it waited for `waited`.
    pub(crate) fn tell_granted(&self, waited: Duration) {
        self.is_silent.store(false, Ordering::Relaxed);
        self.engine.observers.tell(Event::Granted { name: &self.id.name, token: self.token, waited });
        self.report_grant();
    }

    /// Completes with `true` once a contender may wait behind the place, or with `false` when its session has ended.
    pub(crate) fn waited_for(&self) -> impl Future<Output = bool> + Send + use<> {
        let (engine, live, place) = (Arc::clone(&self.engine), Arc::clone(&self.live), self.id.clone());
        async move {
            tokio::select! {
                biased;
                _ = live.ended() => false,
                () = wait_for_contender(&engine, &live, &place) => true,
            }
        }
    }
}

/// The interval of looks at a queue, for stores without a better hint.
const LOOK: Duration = Duration::from_millis(100);

/// The number of looks in a row that may fail.
const MOST_FAILURES: u32 = 5;

async fn wait_for_contender(engine: &Engine, live: &Live, place: &PlaceId) {
    let interval = match engine.store.capability().waiters {
        Waiters::Looked(interval) => interval,
        Waiters::Notified | Waiters::Unseen => LOOK,
    };
    let mut failures = 0;
    loop {
        let looked = match live.session.waited_for(place) {
            Some(notified) => notified.await.map(|()| true),
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
                tracing::debug!(name = %place.name, %error, "the look for waiters of a sticky lock failed");
                // After lasting failures the place is no longer kept: a waiter may be there, unseen.
                failures += 1;
                if !error.is_retryable() || failures > MOST_FAILURES {
                    return;
                }
                engine.pause_after(failures).await;
            }
        }
    }
}
