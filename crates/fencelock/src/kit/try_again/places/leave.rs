//! Places that are given up.

use super::{LineState, Places, PlacesState};
use crate::name::Name;
use crate::store::RequestId;
use crate::time::Moment;

impl Places {
    /// Gives the place up: the session makes no more tries for it. Returns whether the place can be in the server. A waiter without a try
    /// needs no request.
    pub(crate) fn leaves(&self, id: RequestId) -> bool {
        let mut state = self.state.lock();
        let Some(slot) = state.slots.get_mut(&id) else { return true };
        slot.is_leaving = true;
        slot.asked || matches!(slot.state, LineState::Granted(_) | LineState::Gone(_))
    }

    /// Forgets a place that is no longer in the server.
    pub(crate) fn forget(&self, id: RequestId) {
        let mut state = self.state.lock();
        let Some(slot) = state.slots.remove(&id) else { return };
        if state.leave_line(&slot.name, id) {
            self.session.bell.notify_one();
        }
    }
}

impl PlacesState {
    /// Takes a place out of its line, so that the next place is due. Returns whether other contenders are in the line: a writer that
    /// left may have kept readers from asking.
    pub(super) fn leave_line(&mut self, name: &Name, id: RequestId) -> bool {
        let Some(line) = self.lines.get_mut(name) else { return false };
        let was_first = line.front() == Some(&id);
        line.retain(|other| *other != id);
        let next = line.front().and_then(|next| self.slots.get_mut(next));
        match next {
            Some(next) if was_first => next.due = Moment::ORIGIN,
            Some(_) => {}
            None => {
                self.lines.remove(name);
                return false;
            }
        }
        true
    }
}
