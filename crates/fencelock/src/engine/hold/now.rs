//! A release on the caller's own thread, where the store can do it at once.

use std::sync::Arc;

use futures_util::FutureExt;

use super::super::observe::Event;
use super::Hold;
use crate::error::{Outcome, Result};
use crate::store::Left;

impl Hold {
    /// [`Hold::release`] on this very thread; `None` where the store cannot answer at once, or further requests are needed.
    pub(crate) fn release_now(self: &Arc<Self>) -> Option<Result<()>> {
        if self.cause().is_some() || self.live.over().is_some() {
            return None;
        }
        self.give_up();
        let mut slot = self.place.try_lock().ok()?;
        let place = slot.as_mut()?;
        self.live.untrack(self);
        if !self.live.session.answers_inline() {
            return None;
        }
        let was_sent_before = self.phase.sends();
        match place.leave().now_or_never() {
            Some(Ok(Left::Released)) => {}
            Some(Ok(Left::AlreadyGone)) if was_sent_before => {}
            Some(Err(error)) if error.outcome() != Outcome::NotApplied => {
                drop(slot);
                self.engine.observers.tell(Event::Retried { name: &self.id.name, error: &error });
                return None;
            }
            _ if was_sent_before => return None,
            _ => {
                self.phase.not_sent();
                return None;
            }
        }
        *slot = None;
        drop(slot);
        if let Some(loss) = self.cause() {
            return Some(Err(self.lost_before(loss)));
        }
        self.tell_released();
        Some(Ok(()))
    }
}
