//! The places of a session, and the messages that change them.
//!
//! A message reports the grant of a place, with its number. The server sends it with the grant, so that the client need not ask. A message
//! counts only on the current connection, and only for the number that the place has. Messages may be lost, so the session also looks at
//! waiting places at intervals, and when a lease ahead may have expired.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::mpsc;

use super::answers::{Broken, Look, Looked, Seen};
use super::messages::{News, news};
use super::slot::{PlaceSlot, PlaceState, Ring};
use crate::kit::own_places;
use crate::kit::session_state::SessionState;
use crate::name::Name;
use crate::store::{Ahead, GrantId, Loss, PlaceId, PlaceList, RequestId, SessionEvent};
use crate::sync::Mutex;
use crate::time::Moment;
use crate::token::FencingToken;

/// The interval of looks at a waiting place, and for waiters behind a kept place: a lost message delays a grant by no more.
pub(crate) const REPAIR: Duration = Duration::from_secs(2);

/// A bucket in which a session holds places, and the lowest and the highest number of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldIn {
    pub(crate) bucket: u16,
    pub(crate) lowest: u64,
    pub(crate) highest: u64,
}

pub(crate) struct Places {
    inner: Mutex<Inner>,
    pub(crate) session: SessionState,
    /// The newest epoch of the session that we know; 0 before it is open.
    epoch: AtomicU64,
    /// The number of the connection whose messages count; 0 for none.
    connection: AtomicU64,
}

#[derive(Default)]
struct Inner {
    slots: BTreeMap<RequestId, Arc<PlaceSlot>>,
    waiting: BTreeMap<RequestId, Arc<PlaceSlot>>,
    /// Broken grants, by place and number. The server repeats them until the session acknowledges them.
    broken: Vec<(PlaceId, u64)>,
    /// The time of the next look at a waiting place, if one is planned.
    planned: Option<Moment>,
}

impl Places {
    pub(crate) fn new(events: mpsc::UnboundedSender<SessionEvent>) -> Self {
        Self {
            inner: Mutex::default(),
            session: SessionState::new(events),
            epoch: AtomicU64::new(0),
            connection: AtomicU64::new(0),
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The session has this epoch, at least: requests that carry an older one are refused.
    pub(crate) fn raise(&self, epoch: u64) {
        self.epoch.fetch_max(epoch, Ordering::AcqRel);
    }

    /// Ends the session, and returns whether it lived until now. Every waiting task checks its standing.
    pub(crate) fn end(&self, loss: Loss) -> bool {
        let is_first = self.session.end(loss);
        self.wake_all();
        is_first
    }

    fn wake_all(&self) {
        let waiting: Vec<_> = self.inner.lock().waiting.values().cloned().collect();
        waiting.iter().filter_map(|slot| slot.change(|_| true)).for_each(Waker::wake);
    }

    /// From now on only the messages of this connection count.
    pub(crate) fn connected(&self, connection: u64) {
        self.connection.store(connection, Ordering::Release);
    }

    /// This connection ended: its messages may be lost, and so may be the state of the server.
    pub(crate) fn disconnected(&self, connection: u64) {
        let ended = self.connection.compare_exchange(connection, 0, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if ended && !self.session.has_ended() {
            self.session.notify(SessionEvent::Doubtful);
            self.wake_all();
            let slots: Vec<_> = self.inner.lock().slots.values().cloned().collect();
            slots.iter().for_each(|slot| slot.ring(Ring::Disconnected));
        }
    }

    /// Notes that a request is about to be sent, and says whether it may have been sent before.
    pub(crate) fn begin(&self, name: &Name, id: RequestId, bucket: u16) -> (Arc<PlaceSlot>, bool) {
        let mut is_known = true;
        let mut inner = self.inner.lock();
        let slot = inner.slots.entry(id).or_insert_with(|| {
            is_known = false;
            let place = PlaceId { name: name.clone(), request: id };
            Arc::new(PlaceSlot::new(place, bucket))
        });
        (Arc::clone(slot), is_known)
    }

    /// Nothing of the request is in the store.
    pub(crate) fn forget(&self, id: RequestId) {
        let mut inner = self.inner.lock();
        inner.waiting.remove(&id);
        let slot = inner.slots.remove(&id);
        drop(inner);
        drop(slot);
    }

    /// The answer to its own request granted the place.
    pub(crate) fn granted(&self, slot: &PlaceSlot, seq: u64) {
        self.set(slot, PlaceState::Granted { seq });
    }

    /// The answer to its own request says that the place waits. An earlier message may be newer.
    pub(crate) fn waits(&self, slot: &Arc<PlaceSlot>, seq: u64, ahead: Option<Ahead>, mut due: Moment) {
        self.inner.lock().waiting.insert(slot.place.request, Arc::clone(slot));
        let mut settled = None;
        slot.change(|state| {
            settled = match state.place_state {
                PlaceState::Sent { broken, .. } if broken == Some(seq) => Some(PlaceState::Gone(Loss::Broken)),
                PlaceState::Sent { granted, .. } if granted == Some(seq) => Some(PlaceState::Granted { seq }),
                PlaceState::Granted { seq: known } if known == seq => Some(PlaceState::Granted { seq }),
                PlaceState::Gone(loss) => Some(PlaceState::Gone(loss)),
                _ => None,
            };
            if settled.is_none() {
                state.place_state = PlaceState::Waiting { seq, ahead };
                due = due.min(state.due);
                state.due = due;
            }
            false
        });
        if let Some(place_state) = settled {
            return self.set(slot, place_state);
        }
        self.plan(due);
    }

    /// Wakes the task that looks, if a look is due before the planned look.
    fn plan(&self, due: Moment) {
        let is_sooner = self.inner.lock().planned.is_some_and(|planned| due < planned);
        if is_sooner {
            self.session.bell.notify_one();
        }
    }

    /// The client dropped the place. No caller leaves a place that is gone, so this forgets it.
    pub(crate) fn dropped(&self, slot: &PlaceSlot) {
        if matches!(slot.place_state(), PlaceState::Gone(_)) {
            self.forget(slot.place.request);
        }
    }

    /// The client left the place, and forgets it.
    pub(crate) fn left(&self, slot: &PlaceSlot) {
        slot.change(|state| {
            state.place_state = PlaceState::Gone(Loss::Removed);
            false
        });
        self.forget(slot.place.request);
    }

    /// The place stopped waiting. A place that is gone stays gone: the client may read that message before the answer with the grant.
    fn set(&self, slot: &PlaceSlot, place_state: PlaceState) {
        self.inner.lock().waiting.remove(&slot.place.request);
        let waker = slot.change(|state| {
            state.place_state = match (state.place_state, place_state) {
                (PlaceState::Gone(loss), _) => PlaceState::Gone(loss),
                (PlaceState::Sent { broken, .. }, PlaceState::Granted { seq }) if broken == Some(seq) => {
                    PlaceState::Gone(Loss::Broken)
                }
                (_, place_state) => place_state,
            };
            true
        });
        waker.into_iter().for_each(Waker::wake);
    }

    /// The buckets in which the session holds places, in their order.
    pub(crate) fn held_in(&self) -> Vec<HeldIn> {
        let mut held: BTreeMap<u16, HeldIn> = BTreeMap::new();
        for slot in self.inner.lock().slots.values() {
            let PlaceState::Granted { seq } = slot.place_state() else { continue };
            let first = HeldIn { bucket: slot.bucket, lowest: seq, highest: seq };
            let known = held.entry(slot.bucket).or_insert(first);
            (known.lowest, known.highest) = (known.lowest.min(seq), known.highest.max(seq));
        }
        held.into_values().collect()
    }

    /// The bucket of these places is gone; `born` is the first number of the next bucket. Places granted since the count stay.
    pub(crate) fn lost_bucket(&self, counted: HeldIn, born: Option<u64>) {
        let is_lost = |slot: &&Arc<PlaceSlot>| {
            let PlaceState::Granted { seq } = slot.place_state() else { return false };
            slot.bucket == counted.bucket && seq <= counted.highest && born.is_none_or(|born| seq < born)
        };
        let lost: Vec<_> = self.inner.lock().slots.values().filter(is_lost).cloned().collect();
        lost.iter().for_each(|slot| self.set(slot, PlaceState::Gone(Loss::Removed)));
    }

    pub(crate) fn held(&self) -> HashMap<Name, Vec<RequestId>> {
        by_name(
            self.inner.lock().slots.values().filter(|slot| matches!(slot.place_state(), PlaceState::Granted { .. })),
        )
    }

    pub(crate) fn has_places(&self) -> bool {
        !self.inner.lock().slots.is_empty()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.inner.lock().waiting.is_empty()
    }

    pub(crate) fn slot(&self, id: RequestId) -> Option<Arc<PlaceSlot>> {
        self.inner.lock().slots.get(&id).cloned()
    }

    /// A waiter arrived behind a grant whose holder asked for this notification.
    pub(crate) fn receive_waiter(&self, id: RequestId) {
        if let Some(slot) = self.slot(id) {
            slot.ring(Ring::Waiter);
        }
    }

    pub(crate) fn seq(&self, id: RequestId) -> Option<u64> {
        self.inner.lock().slots.get(&id).and_then(|slot| slot.seq())
    }

    /// The server no longer has this grant.
    pub(crate) fn missing(&self, id: RequestId) {
        if let Some(slot) = self.slot(id) {
            self.set(&slot, PlaceState::Gone(Loss::Removed));
        }
    }

    /// Which of `places` are gone, and why.
    pub(crate) fn gone(&self, places: &dyn PlaceList) -> Vec<(PlaceId, Loss)> {
        own_places::gone(places, |_, request| {
            match self.inner.lock().slots.get(&request).map(|slot| slot.place_state()) {
                None => Some(Loss::Removed),
                Some(PlaceState::Gone(loss)) => Some(loss),
                Some(_) => None,
            }
        })
    }

    pub(crate) fn by_name(&self) -> HashMap<Name, Vec<RequestId>> {
        by_name(self.inner.lock().slots.values())
    }

    pub(crate) fn receive(&self, connection: u64, message: &[u8]) {
        if self.connection.load(Ordering::Acquire) != connection {
            return;
        }
        for news in news(message) {
            match news {
                News::Granted(place, grant) => self.receive_grant(place.request, grant),
                News::WaitedFor(place) => self.receive_waiter(place.request),
                News::Broken(place, grant, reason) => self.receive_break(Broken { place, grant, reason }),
            }
        }
    }

    pub(crate) fn receive_removal(&self, place: PlaceId, grant: u64) {
        self.missing(place.request);
        self.session.notify(SessionEvent::Gone(GrantId { place, token: FencingToken::new(grant) }, Loss::Removed));
    }

    pub(crate) fn receive_grant(&self, id: RequestId, grant: u64) {
        let Some(slot) = self.slot(id) else { return };
        let mut is_ours = false;
        slot.change(|state| {
            match &mut state.place_state {
                PlaceState::Sent { granted, .. } => *granted = Some(grant),
                PlaceState::Waiting { seq, .. } => is_ours = *seq == grant,
                PlaceState::Granted { .. } | PlaceState::Gone(_) => {}
            }
            false
        });
        if is_ours {
            self.granted(&slot, grant);
        }
    }

    /// A message or a renewal reports that a user broke a grant of this session.
    pub(crate) fn receive_break(&self, broken: Broken) {
        let known = (broken.place, broken.grant);
        let mut inner = self.inner.lock();
        let slot = inner.slots.get(&known.0.request).cloned();
        if !inner.broken.contains(&known) {
            inner.broken.push(known.clone());
        }
        drop(inner);
        let Some(slot) = slot else { return };
        let (place, grant) = known;
        let (mut is_ours, mut may_be_ours) = (false, false);
        slot.change(|state| {
            match &mut state.place_state {
                // The answer says whether it is this grant: the same request may have a later one by now.
                PlaceState::Sent { broken, .. } => {
                    *broken = (*broken).max(Some(grant));
                    may_be_ours = true;
                }
                PlaceState::Waiting { seq, .. } | PlaceState::Granted { seq } => is_ours = *seq == grant,
                PlaceState::Gone(_) => {}
            }
            false
        });
        if is_ours {
            self.set(&slot, PlaceState::Gone(Loss::Broken));
        }
        if is_ours || may_be_ours {
            let grant = GrantId { place, token: FencingToken::new(grant) };
            self.session.notify(SessionEvent::Broken(grant, broken.reason));
        }
    }

    /// The broken grants that the server need not report again.
    pub(crate) fn broken(&self) -> Vec<(PlaceId, u64)> {
        self.inner.lock().broken.clone()
    }

    /// The server received the acknowledgement of these grants.
    pub(crate) fn acknowledged(&self, grants: &[(PlaceId, u64)]) {
        self.inner.lock().broken.retain(|grant| !grants.contains(grant));
    }

    /// The waiting places to look at now, by name; with `all`, every one. Otherwise the time of the next look. A look without an answer is repeated.
    pub(crate) fn due(&self, now: Moment, all: bool) -> Result<HashMap<Name, Vec<RequestId>>, Moment> {
        let mut inner = self.inner.lock();
        let asked = inner.waiting.values().filter(|slot| all || slot.state.lock().due <= now);
        let names = by_name(asked.inspect(|slot| slot.state.lock().due = now.after(REPAIR)));
        let next = inner.waiting.values().map(|slot| slot.state.lock().due).min().unwrap_or(Moment::NEVER);
        inner.planned = names.is_empty().then_some(next);
        if names.is_empty() { Err(next) } else { Ok(names) }
    }

    /// Makes the waiting places of this name due for a look now.
    pub(crate) fn look_at(&self, name: &Name) {
        self.look_at_those(|slot| slot.place.name == *name);
    }

    pub(crate) fn look_at_those(&self, are_meant: impl Fn(&PlaceSlot) -> bool) {
        let inner = self.inner.lock();
        // A place whose request has no answer yet keeps this until it waits.
        let slots = inner.slots.values().filter(|slot| are_meant(slot));
        slots.for_each(|slot| slot.state.lock().due = Moment::ORIGIN);
        drop(inner);
        self.session.bell.notify_one();
    }

    /// Applies a look at the places `asked`, whose answer arrived at `at`.
    pub(crate) fn looked(&self, asked: &[(Name, Vec<RequestId>)], look: Look, at: Moment) {
        let Some(names) = look else {
            self.end(Loss::Expired);
            return;
        };
        for ((_, ids), Looked { look_in, places }) in asked.iter().zip(names) {
            for (id, seen) in ids.iter().zip(places) {
                self.seen(*id, seen, due(at, look_in));
            }
        }
    }

    fn seen(&self, id: RequestId, seen: Seen, due: Moment) {
        let Some(slot) = self.inner.lock().waiting.get(&id).cloned() else { return };
        let PlaceState::Waiting { seq: known, ahead: known_ahead } = slot.place_state() else { return };
        match seen {
            Seen::Granted(grant) => self.granted(&slot, grant),
            Seen::Missing => self.set(&slot, PlaceState::Gone(Loss::Removed)),
            Seen::Waiting(_, ahead) => {
                let ahead = ahead.or(known_ahead);
                slot.change(|state| {
                    // A message may have arrived since.
                    if matches!(state.place_state, PlaceState::Waiting { seq, .. } if seq == known) {
                        state.place_state = PlaceState::Waiting { seq: known, ahead };
                        state.due = state.due.min(due);
                    }
                    false
                });
                // A look at the server's notification finds the time while the task that looks sleeps.
                self.plan(due);
            }
        }
    }
}

/// The time of the next look at a waiter whose queue had this boundary at `at`. Mere repairs fall on full seconds, for fewer requests.
pub(crate) fn due(at: Moment, boundary: Option<Duration>) -> Moment {
    let repair = Moment::from_nanos(at.after(REPAIR).as_nanos() / 1_000_000_000 * 1_000_000_000);
    boundary.map_or(repair, |boundary| at.after(boundary).min(repair))
}

fn by_name<'a>(slots: impl Iterator<Item = &'a Arc<PlaceSlot>>) -> HashMap<Name, Vec<RequestId>> {
    let mut names: HashMap<Name, Vec<RequestId>> = HashMap::new();
    slots.for_each(|slot| names.entry(slot.place.name.clone()).or_default().push(slot.place.request));
    names
}

#[cfg(test)]
mod tests;
