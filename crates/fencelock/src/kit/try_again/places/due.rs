//! The places of a line that ask the server, and when: the first place, and the readers right behind a reader that holds.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{LineSlot, LineState, Places, PlacesState, TRIES};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{PlaceId, RequestId};
use crate::time::Moment;

/// A try that is due.
pub(crate) struct Try {
    pub(crate) place: PlaceId,
    pub(crate) claim: Claim,
    pub(crate) said: Arc<str>,
}

/// The requests that are due now.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) tries: Vec<Try>,
    /// Names whose releases need a subscription now, and the claims of their waiters.
    pub(crate) listen: Vec<(Name, Claim)>,
    /// Channels whose subscriptions are no longer needed.
    pub(crate) ignore: Vec<String>,
}

type Slots = HashMap<RequestId, LineSlot>;

/// How many places at the front of this line may ask the server. The server would refuse the places behind them.
fn askers(line: &VecDeque<RequestId>, slots: &Slots) -> usize {
    let reads = |id: &&RequestId| slots.get(id).is_some_and(|slot| slot.claim.is_reader());
    let first_reads = line.front().and_then(|id| slots.get(id)).is_some_and(LineSlot::reads);
    if first_reads { line.iter().take_while(reads).count() } else { line.len().min(1) }
}

/// Whether a new place at the end of this line asks at once: alone, or as a reader behind readers of which none was refused.
pub(super) fn asks_at_once(claim: Claim, line: &VecDeque<RequestId>, slots: &Slots) -> bool {
    line.iter().all(|id| {
        let ahead = slots.get(id);
        claim.is_reader()
            && ahead.is_some_and(|slot| slot.reads() || slot.claim.is_reader() && slot.state == LineState::Sent)
    })
}

impl Places {
    /// The work that is due, or the time of the next work.
    pub(crate) fn due(&self, now: Moment) -> Result<Work, Moment> {
        let mut state = self.state.lock();
        if self.session.has_ended() {
            return Err(Moment::NEVER);
        }
        let PlacesState { slots, lines, contended, channels, .. } = &mut *state;
        let has_channel = self.trying.has_channel;
        let (mut work, mut next) = (Work::default(), Moment::NEVER);
        contended.retain(|name| {
            let Some(line) = lines.get(name) else { return false };
            for id in line.iter().take(askers(line, slots)) {
                let Some(slot) = slots.get_mut(id).filter(|slot| slot.state == LineState::Waiting && !slot.is_leaving)
                else {
                    continue;
                };
                if slot.due <= now && work.tries.len() < TRIES {
                    work.tries.push(slot.begin_try(*id));
                    continue;
                }
                next = next.min(slot.due);
                let is_ready = !has_channel || channels.is_used(name, slot.claim, now);
                if !is_ready && work.listen.len() < TRIES && work.listen.last().is_none_or(|(last, _)| last != name) {
                    work.listen.push((name.clone(), slot.claim));
                }
            }
            line.iter().any(|id| slots.get(id).is_some_and(|slot| !matches!(slot.state, LineState::Granted(_))))
        });
        let idle_until = channels.idle(now, &mut work.ignore);
        let is_idle = work.tries.is_empty() && work.listen.is_empty() && work.ignore.is_empty();
        if is_idle { Err(next.min(idle_until)) } else { Ok(work) }
    }
}

impl PlacesState {
    /// Makes the places of the line that may ask due at once, and once more if a try is under way. Returns whether one of them waits.
    pub(super) fn make_due(&mut self, name: &Name) -> bool {
        let Self { slots, lines, .. } = self;
        let Some(line) = lines.get(name) else { return false };
        let mut waits = false;
        for id in line.iter().take(askers(line, slots)) {
            let Some(slot) = slots.get_mut(id) else { continue };
            slot.again = true;
            if slot.state == LineState::Waiting {
                (slot.due, waits) = (Moment::ORIGIN, true);
            }
        }
        waits
    }
}

impl LineSlot {
    /// Whether this place holds the lock as a reader.
    fn reads(&self) -> bool {
        self.claim.is_reader() && matches!(self.state, LineState::Granted(_))
    }

    /// Begins a try of the session for this place.
    pub(super) fn begin_try(&mut self, request: RequestId) -> Try {
        (self.state, self.asked, self.again) = (LineState::Trying, true, false);
        let place = PlaceId { name: self.name.clone(), request };
        Try { place, claim: self.claim, said: Arc::clone(&self.said) }
    }
}
