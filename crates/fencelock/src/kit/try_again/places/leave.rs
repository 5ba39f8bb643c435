//! Places that are given up.

use super::{Places, PlacesState, Stand};
use crate::store::RequestId;
use crate::time::Moment;

impl Places {
    /// The place is given up: it is not tried for any more. Says whether it can be in the server. A waiter that was never tried for is
    /// given up without a request.
    pub(crate) fn leaves(&self, id: RequestId) -> bool {
        let mut state = self.lock();
        let Some(slot) = state.slots.get_mut(&id) else { return true };
        slot.is_leaving = true;
        slot.asked || matches!(slot.stand, Stand::Granted(_) | Stand::Gone(_))
    }

    /// Forgets a place that is not in the server any more; says whether it was held or waited. The next of the line is due.
    pub(crate) fn forget(&self, id: RequestId) -> bool {
        let mut state = self.lock();
        let PlacesState { slots, lines, .. } = &mut *state;
        let Some(slot) = slots.remove(&id) else { return false };
        if let Some(line) = lines.get_mut(&slot.name) {
            let was_first = line.front() == Some(&id);
            line.retain(|other| *other != id);
            match line.front().and_then(|next| slots.get_mut(next)) {
                Some(next) => {
                    if was_first {
                        next.due = Moment::from_nanos(0);
                    }
                    // It may have been a writer that kept readers from asking.
                    self.session.bell.notify_one();
                }
                None => drop(lines.remove(&slot.name)),
            }
        }
        !matches!(slot.stand, Stand::Gone(_))
    }
}
