//! A request of an acquire, from its first sending to its grant; dropping it withdraws the request.

use std::sync::Arc;

use futures_util::{FutureExt, TryFutureExt};

use super::super::Engine;
use super::super::observe::Event;
use super::super::session::{Live, WaitSlot};
use crate::name::Name;
use crate::store::{Loss, Place, PlaceId, Standing};
use crate::time::Moment;

/// A request in flight; dropped before its end, it undoes itself in the background.
pub(super) struct Attempt {
    engine: Arc<Engine>,
    pub(super) live: Arc<Live>,
    pub(super) id: PlaceId,
    pub(super) stage: Stage,
    /// A request of this acquire was not answered, and may still take effect.
    pub(super) unanswered: bool,
    pub(super) tracked: bool,
}

pub(super) enum Stage {
    /// Nothing can be in the store.
    Fresh,
    /// Something may be in the store.
    Entering,
    /// A place is in the store.
    Placed(Box<dyn Place>),
}

impl Attempt {
    pub(super) fn new(engine: &Arc<Engine>, live: Arc<Live>, name: Name) -> Self {
        let id = PlaceId { name, request: engine.next_request() };
        Self { engine: Arc::clone(engine), live, id, stage: Stage::Fresh, unanswered: false, tracked: false }
    }

    pub(super) fn standing(&self) -> Standing {
        match &self.stage {
            Stage::Placed(place) => place.standing(),
            _ => Standing::Lost(Loss::Removed),
        }
    }

    /// The last request took no effect; nothing is in the store unless an earlier one was never answered.
    pub(super) fn refused(&mut self) {
        self.stage = if self.unanswered { Stage::Entering } else { Stage::Fresh };
    }

    /// Tries to take the request out of the store until `until`, so that a new entry is not behind the old place. The drop does the rest.
    pub(super) async fn give_back(&mut self, until: Moment) {
        if self.waits_no_longer() {
            self.live.untrack_waiting(self.id.request);
        }
        let out = match &mut self.stage {
            Stage::Fresh => return,
            Stage::Entering => self.live.session.withdraw(&self.id.name, self.id.request),
            Stage::Placed(place) => place.leave().map_ok(drop).boxed(),
        };
        let left = tokio::select! {
            biased;
            left = self.engine.in_time("leave", out) => left,
            () = self.engine.clock.sleep_until(until) => return,
            _ = self.live.ended() => return,
        };
        if left.is_ok() {
            self.stage = Stage::Fresh;
        }
    }

    /// Puts the waiting place under renewal.
    pub(super) fn track(&mut self) -> Arc<WaitSlot> {
        self.tracked = true;
        self.live.track_waiting(self.id.clone())
    }

    /// Returns whether the request waited until now, and notifies observers of the end of the wait.
    pub(super) fn waits_no_longer(&mut self) -> bool {
        let waited = std::mem::take(&mut self.tracked);
        if waited {
            self.engine.observers.tell(Event::WaitEnded { name: &self.id.name });
        }
        waited
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.waits_no_longer() {
            self.live.untrack_waiting(self.id.request);
        }
        let place = match std::mem::replace(&mut self.stage, Stage::Fresh) {
            Stage::Fresh => return,
            Stage::Entering => None,
            Stage::Placed(place) => Some(place),
        };
        if self.live.over().is_none() {
            let (engine, live, id) = (Arc::clone(&self.engine), Arc::clone(&self.live), self.id.clone());
            self.engine.clean_up(async move { undo(&engine, &live, &id, place).await });
        }
    }
}

/// Withdraws an abandoned request, and retries until that succeeds or the session has ended.
async fn undo(engine: &Engine, live: &Live, id: &PlaceId, mut place: Option<Box<dyn Place>>) {
    let mut failures = 0;
    while live.over().is_none() {
        let undone = match &mut place {
            Some(place) => engine.in_time("leave", place.leave()).await.map(drop),
            None => engine.in_time("cancel", live.session.withdraw(&id.name, id.request)).await,
        };
        match undone {
            Ok(()) => return,
            Err(error) => engine.observers.tell(Event::ReleaseFailed { name: &id.name, error: &error }),
        }
        failures += 1;
        engine.pause_after(failures).await;
    }
}
