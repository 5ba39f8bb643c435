//! The next place of a line: if no other client waits, a single request releases a place and asks for the next one.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{LineState, Places, PlacesState, Try};
use crate::error::Result;
use crate::kit::try_again::Tried;
use crate::queue::Claim;
use crate::store::PlaceId;
use crate::time::Moment;

/// A place whose try is part of the release of the place before it. Dropped without an answer, the place is due.
pub(crate) struct Next<'a> {
    places: &'a Places,
    pub(crate) place: PlaceId,
    pub(crate) said: Arc<str>,
    /// How many subscriptions this session has to the channel of the name.
    pub(crate) ours: usize,
    is_answered: bool,
}

impl Places {
    /// The place behind `place`, for a layout that releases and takes in one request. `place` is held and about to be left.
    pub(crate) fn next_after(&self, place: &PlaceId) -> Option<Next<'_>> {
        let mut state = self.state.lock();
        if !self.trying.passes || self.session.has_ended() {
            return None;
        }
        let PlacesState { slots, lines, channels, .. } = &mut *state;
        let line: &VecDeque<_> = lines.get(&place.name)?;
        let held = slots.get(&place.request)?;
        let is_held = held.claim == Claim::MUTEX && matches!(held.state, LineState::Granted(_));
        if !is_held || line.front() != Some(&place.request) {
            return None;
        }
        let request = *line.get(1)?;
        let slot = slots.get_mut(&request).filter(|slot| slot.state == LineState::Waiting && !slot.is_leaving)?;
        let Try { place, claim, said } = slot.begin_try(request);
        let ours = usize::from(channels.has(&place.name, claim));
        Some(Next { places: self, place, said, ours, is_answered: false })
    }
}

impl Next<'_> {
    /// Applies the server's answer, as [`Places::answered`] does.
    pub(crate) fn answered(mut self, tried: Result<Tried>, valid_until: Moment, now: Moment) -> bool {
        self.is_answered = true;
        self.places.answered(self.place.request, tried, valid_until, now)
    }
}

impl Drop for Next<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let mut state = self.places.state.lock();
        if let Some(slot) = state.slots.get_mut(&self.place.request).filter(|slot| slot.state == LineState::Trying) {
            (slot.state, slot.due) = (LineState::Waiting, Moment::ORIGIN);
        }
        state.contended.insert(self.place.name.clone());
        self.places.session.bell.notify_one();
    }
}
