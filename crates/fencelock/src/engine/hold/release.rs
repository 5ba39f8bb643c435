//! The release of a place: by its holder, which receives the outcome, or in the background.

use std::sync::Arc;

use super::super::observe::Event;
use super::Hold;
use super::phase::Phase;
use crate::error::{Error, Outcome, Result};
use crate::store::{Left, Loss, Place, clean};

impl Hold {
    /// Gives the place up, for all its guards. Repeatable after a failure.
    ///
    /// Not cancel-safe by itself: callers that may be dropped go through [`Hold::leave_in_background`] or a task.
    pub(crate) async fn release(self: &Arc<Self>) -> Result<()> {
        self.give_up();
        self.live.untrack(self);
        let left = self.leave().await;
        if let Some(loss) = self.cause() {
            return Err(self.lost_before(loss));
        }
        let gone = match left {
            Ok(Some(Left::AlreadyGone)) => Some(self.why_gone().await),
            // Any error about a session that has ended: its end may have preceded our request.
            Err(_) => self.live.over(),
            _ => None,
        };
        if let Some(loss) = gone {
            return Err(self.lost_before(self.lost_because(loss)));
        }
        match left {
            Ok(Some(_)) => {
                self.tell_released();
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => {
                self.engine.observers.tell(Event::ReleaseFailed { name: &self.id.name, error: &error });
                Err(error)
            }
        }
    }

    /// The holder gives the lock up: its tokens and observers are notified before the store can grant another client. Returns whether
    /// this call did.
    pub(super) fn give_up(&self) -> bool {
        let is_given_up = self.phase.give_up();
        self.tell_given_up();
        if is_given_up && !self.is_silent() {
            self.engine.observers.tell(Event::Releasing { name: &self.id.name });
        }
        is_given_up
    }

    /// The place is gone, and no request of this client can have removed it. Returns the cause that stays.
    fn lost_because(&self, loss: Loss) -> Loss {
        let was_over = self.phase.get().is_end();
        let loss = self.phase.found_gone(loss);
        self.tell_end();
        if !was_over && !self.is_silent() {
            self.tell_lost(loss);
        }
        loss
    }

    pub(super) fn tell_released(&self) {
        self.phase.left();
        self.tell_end();
        if !self.is_silent() {
            self.engine.observers.tell(Event::Released { name: &self.id.name, held: self.held() });
        }
    }

    /// Returns why a request found the place gone: by a break whose event has not arrived yet, or another cause.
    pub(super) async fn why_gone(&self) -> Loss {
        if let Some(loss) = self.live.over() {
            return loss;
        }
        let breaks = self.engine.in_time("breaks", self.engine.store.breaks(&self.id.name)).await.unwrap_or_default();
        match breaks.into_iter().rfind(|order| order.grant().is_of(&self.id, self.token)) {
            Some(order) => {
                self.set_reason(clean::reason(order.reason));
                Loss::Broken
            }
            None => Loss::Removed,
        }
    }

    /// Leaves the place; `None` if it was left before. Retries for one request deadline, while another try can help.
    async fn leave(&self) -> Result<Option<Left>> {
        let mut slot = self.place.lock().await;
        let Some(place) = slot.as_mut() else { return Ok(None) };
        let mut failed = None;
        match self.engine.in_time("release", self.leave_place(place.as_mut(), &mut failed)).await {
            Ok(left) => {
                *slot = None;
                Ok(Some(left))
            }
            Err(error) => {
                let error = failed.unwrap_or(error).with("name", &self.id.name);
                // An earlier request may have worked, even if the last one did not.
                Err(if self.phase.get() == Phase::Leaving { error.outcome_unknown() } else { error })
            }
        }
    }

    /// Sends requests until the place is left, with a pause after each passing failure. A server that is busy, starts, or hands over
    /// succeeds a moment later; until then the lock blocks all clients. `failed` is the error of the newest answered request, which is more
    /// useful than a timeout.
    async fn leave_place(&self, place: &mut dyn Place, failed: &mut Option<Error>) -> Result<Left> {
        let mut failures = 0;
        loop {
            // Set before the request is sent: its answer may get lost, or no task may be left to receive it.
            let was_sent_before = self.phase.sends();
            let error = match place.leave().await {
                Ok(Left::AlreadyGone) if was_sent_before => return Ok(Left::Released),
                Ok(left) => return Ok(left),
                Err(error) => error,
            };
            if error.outcome() == Outcome::NotApplied && !was_sent_before {
                self.phase.not_sent();
            }
            if !error.is_retryable() || self.live.over().is_some() {
                *failed = None;
                return Err(error);
            }
            self.engine.observers.tell(Event::Retried { name: &self.id.name, error: &error });
            failures += 1;
            *failed = Some(error);
            self.engine.pause_after(failures).await;
        }
    }

    /// Leaves the place: at once where the store can do that, or else in the background, with retries until it succeeds or the session has ended.
    pub(crate) fn leave_in_background(self: &Arc<Self>) {
        let is_left = self.place.try_lock().is_ok_and(|place| place.is_none());
        if is_left && self.cause().is_none() {
            return; // As before most drops of a guard: no work for a task.
        }
        if self.engine.spawner.is_elsewhere() {
            return; // The place belongs to the process that took it.
        }
        if self.cause().is_some() {
            self.live.untrack(self);
        }
        if is_left {
            return;
        }
        if let Some(loss) = self.live.over() {
            // The task that closes the session in the store ends its places. The end of the session notifies places under renewal.
            if self.is_given_up() {
                self.lost_because(loss);
            }
            return;
        }
        if self.release_now().is_some() {
            return;
        }
        let hold = Arc::clone(self);
        self.engine.clean_up(async move {
            let mut failures = 0;
            while hold.place_is_there().await {
                if hold.cause().is_some() {
                    if hold.leave().await.is_ok() {
                        return;
                    }
                } else if hold.release().await.is_ok() || hold.cause().is_some() {
                    return;
                }
                if let Some(loss) = hold.live.over() {
                    hold.lost_because(loss);
                    return;
                }
                failures += 1;
                hold.engine.pause_after(failures).await;
            }
        });
    }

    fn is_given_up(&self) -> bool {
        matches!(self.phase.get(), Phase::GivenUp | Phase::Leaving)
    }

    async fn place_is_there(&self) -> bool {
        self.place.lock().await.is_some()
    }
}
