//! The places of one session. Places of one name form a line in the order of their calls, and only the first of a line asks the server.

mod due;
mod leave;
mod next;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::sync::mpsc;

use crate::error::{Error, Result};
use crate::kit::session_state::SessionState;
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Entry, Grant, GrantId, Loss, PlaceId, Renewal, RequestId, SessionEvent, Standing};
use crate::sync::Mutex;
use crate::time::Moment;
use crate::token::FencingToken;

use self::due::asks_at_once;
pub(crate) use self::due::{Try, Work};
pub(crate) use self::next::Next;
use super::channels::Channels;
use super::{Tried, Trying};

/// How many tries are under way at once, if many become due together. Others follow once fewer are under way.
pub(super) const TRIES: usize = 64;

pub(crate) struct Places {
    pub(super) trying: Trying,
    state: Mutex<PlacesState>,
    pub(crate) session: SessionState,
}

#[derive(Default)]
struct PlacesState {
    slots: HashMap<RequestId, LineSlot>,
    lines: HashMap<Name, VecDeque<RequestId>>,
    /// Names with waiters, and perhaps names whose waiters are gone.
    contended: HashSet<Name>,
    /// Channels of releases, in a layout that publishes them.
    channels: Channels,
}

struct LineSlot {
    name: Name,
    claim: Claim,
    said: Arc<str>,
    state: LineState,
    /// Whether a request for this place without an answer yet may take effect.
    asked: bool,
    /// The place is being deleted: a request for it now would take effect after the deletion.
    is_leaving: bool,
    due: Moment,
    /// A release arrived since the request was sent.
    again: bool,
    trouble: Option<Error>,
    waker: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineState {
    /// The caller's own request was sent and has no answer.
    Sent,
    Waiting,
    /// A try of the session is under way.
    Trying,
    Granted(Grant),
    Gone(Loss),
}

impl Places {
    pub(crate) fn new(trying: Trying, events: mpsc::UnboundedSender<SessionEvent>) -> Self {
        Self { trying, state: Mutex::default(), session: SessionState::new(events) }
    }

    /// Ends the session. Every waiting task checks its standing.
    pub(crate) fn end(&self, loss: Loss) {
        if self.session.end(loss) {
            self.state.lock().slots.values_mut().for_each(LineSlot::wake);
        }
    }

    /// Places may have been lost: only a renewal can show that.
    pub(crate) fn doubt(&self) {
        self.session.notify(SessionEvent::Doubtful);
    }

    /// Lines up a request. Returns whether its caller has to ask the server, and whether the request is new: the server may have an older one.
    pub(crate) fn begin(&self, entry: &Entry, said: &str) -> Result<(bool, bool)> {
        let mut places = self.state.lock();
        let PlacesState { slots, lines, contended, .. } = &mut *places;
        if let Some(slot) = slots.get_mut(&entry.id) {
            return Ok((slot.state == LineState::Sent, false));
        }
        let line = lines.entry(entry.name.clone()).or_default();
        let ahead = line.front().and_then(|id| slots.get(id));
        if ahead.is_some_and(|ahead| ahead.claim.capacity() != entry.claim.capacity()) {
            return Err(self.trying.other_kind("enter", "lock of another kind in this client"));
        }
        let is_first = asks_at_once(entry.claim, line, slots);
        line.push_back(entry.id);
        if !is_first {
            contended.insert(entry.name.clone());
        }
        let state = if is_first { LineState::Sent } else { LineState::Waiting };
        let (name, claim, due) = (entry.name.clone(), entry.claim, Moment::ORIGIN);
        let (said, asked) = (said.into(), is_first);
        let (is_leaving, again, trouble, waker) = (false, false, None, None);
        slots.insert(entry.id, LineSlot { name, claim, said, state, asked, is_leaving, due, again, trouble, waker });
        Ok((is_first, true))
    }

    /// Applies the server's answer to a request; `valid_until` is the end of a grant. Returns whether the caller has to delete the place
    /// in the server, since the client gave it up before the grant.
    pub(crate) fn answered(&self, id: RequestId, tried: Result<Tried>, valid_until: Moment, now: Moment) -> bool {
        let is_granted = matches!(tried, Ok(Tried::Granted(_)));
        let mut state = self.state.lock();
        let PlacesState { slots, contended, .. } = &mut *state;
        let Some(slot) = slots.get_mut(&id) else { return is_granted };
        if !matches!(slot.state, LineState::Sent | LineState::Trying) {
            return false;
        }
        let is_unwanted = is_granted && slot.is_leaving;
        let (is_heard_of, mut left) = (std::mem::take(&mut slot.again), None);
        slot.asked = false;
        slot.state = LineState::Waiting;
        match tried {
            Ok(Tried::Granted(token)) => {
                slot.state = LineState::Granted(Grant { valid_until: Some(valid_until), ..Grant::new(token) });
            }
            Ok(Tried::Busy(lives)) => left = lives,
            Ok(Tried::Other(kind)) => slot.trouble = Some(self.trying.other_kind("next", &kind)),
            Err(error) => {
                slot.asked = true;
                slot.trouble = Some(error);
            }
        }
        if slot.state == LineState::Waiting {
            slot.due = if is_heard_of { now } else { now.after(self.trying.pause_of(left)) };
            contended.insert(slot.name.clone());
        }
        // Behind an admitted reader there may be more readers. A lock that was free needs no wake-up.
        if slot.state == LineState::Waiting || slot.claim.is_reader() {
            self.session.bell.notify_one();
        }
        if slot.state != LineState::Waiting || slot.trouble.is_some() {
            slot.wake();
        }
        is_unwanted
    }

    pub(crate) fn standing(&self, id: RequestId) -> Standing {
        let state = self.state.lock();
        match state.slots.get(&id).map(|slot| slot.state) {
            Some(LineState::Granted(grant)) => Standing::Granted(grant),
            Some(LineState::Gone(loss)) => Standing::Lost(loss),
            Some(_) => Standing::Waiting(None),
            None => Standing::Lost(Loss::Removed),
        }
    }

    /// Ready with the place's error, or with `Ok` when its task has to check the standing.
    pub(crate) fn poll_news(&self, id: RequestId, cx: &Context<'_>) -> Poll<Result<()>> {
        let mut state = self.state.lock();
        let has_ended = self.session.has_ended();
        let Some(slot) = state.slots.get_mut(&id) else { return Poll::Ready(Ok(())) };
        if let Some(error) = slot.trouble.take() {
            return Poll::Ready(Err(error));
        }
        slot.waker = Some(cx.waker().clone());
        let waits = matches!(slot.state, LineState::Waiting | LineState::Trying | LineState::Sent);
        if waits && !has_ended { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Call this before the session subscribes to the channel of this name. Returns the channel whose subscription is no longer needed.
    pub(crate) fn prepare_subscription(&self, name: &Name, channel: &str, claim: Claim, now: Moment) -> Option<String> {
        self.state.lock().channels.begin(name, channel, claim, now)
    }

    /// The server accepted or refused the subscription for this name. A release may have come before, so the first of the line is due.
    pub(crate) fn subscribed(&self, name: &Name, is_subscribed: bool, now: Moment) {
        let mut state = self.state.lock();
        state.channels.answered(name, is_subscribed, now);
        if is_subscribed && state.make_due(name) {
            self.session.bell.notify_one();
        }
    }

    /// A release was published on this channel.
    pub(crate) fn receive_release(&self, channel: &[u8]) {
        let mut state = self.state.lock();
        let names: Vec<Name> = state.channels.names(channel).cloned().collect();
        let mut waits = false;
        for name in &names {
            waits |= state.make_due(name);
        }
        if waits {
            self.session.bell.notify_one();
        }
    }

    /// Repeats the tries of the earlier connection.
    pub(crate) fn connected(&self) {
        let mut state = self.state.lock();
        // The new connection has no subscriptions yet.
        state.channels = Channels::default();
        for slot in state.slots.values_mut().filter(|slot| slot.state == LineState::Trying) {
            (slot.state, slot.due) = (LineState::Waiting, Moment::ORIGIN);
        }
        self.session.bell.notify_one();
    }

    /// Wakes every task, so that waiting tasks ask for a connection.
    pub(crate) fn disconnected(&self) {
        self.state.lock().slots.values_mut().for_each(LineSlot::wake);
    }

    /// The claim of a held place, and its text about the holder.
    pub(crate) fn held_as(&self, id: RequestId) -> Option<(Claim, Arc<str>)> {
        let state = self.state.lock();
        let slot = state.slots.get(&id).filter(|slot| matches!(slot.state, LineState::Granted(_)))?;
        Some((slot.claim, Arc::clone(&slot.said)))
    }

    /// A held place has this claim now. Waiters behind it may be admitted.
    pub(crate) fn lightened(&self, id: RequestId, claim: Claim) {
        if let Some(slot) = self.state.lock().slots.get_mut(&id) {
            slot.claim = claim;
        }
        self.session.bell.notify_one();
    }

    /// The token of a place that is held.
    pub(crate) fn token(&self, id: RequestId) -> Option<FencingToken> {
        self.standing(id).grant()?.token
    }

    /// The answer to a renewal of these places: the ends of held places in their order, and the places that are gone. Waiting places are not renewed.
    pub(crate) fn renewal(&self, places: &[PlaceId]) -> Renewal {
        let mut renewal = Renewal::at(self.session.confirmed());
        for place in places {
            match self.standing(place.request) {
                Standing::Granted(grant) => renewal.valid.extend(grant.valid_until.map(|end| (place.clone(), end))),
                Standing::Lost(loss) => renewal.gone.push((place.clone(), loss)),
                Standing::Waiting(_) => {}
            }
        }
        renewal.valid.sort_by_key(|(_, end)| *end);
        renewal
    }

    pub(crate) fn is_valid_until(&self, id: RequestId, end: Moment) {
        if let Some(slot) = self.state.lock().slots.get_mut(&id)
            && let LineState::Granted(grant) = &mut slot.state
        {
            grant.valid_until = grant.valid_until.max(Some(end));
        }
    }

    /// The place is lost, or broken for this reason. The next of its line is due at once.
    pub(crate) fn lost(&self, place: &PlaceId, reason: Option<Arc<str>>) {
        let mut state = self.state.lock();
        let Some(slot) = state.slots.get_mut(&place.request) else { return };
        let LineState::Granted(Grant { token, .. }) = slot.state else { return };
        slot.state = LineState::Gone(if reason.is_some() { Loss::Broken } else { Loss::Removed });
        slot.wake();
        if state.leave_line(&place.name, place.request) {
            self.session.bell.notify_one();
        }
        let grant = GrantId { place: place.clone(), token };
        self.session.notify(match reason {
            Some(reason) => SessionEvent::Broken(grant, reason),
            None => SessionEvent::Gone(grant, Loss::Removed),
        });
    }

    /// Gives up all places. Returns the places that may be in the server.
    pub(crate) fn close(&self) -> Vec<PlaceId> {
        let mut state = self.state.lock();
        state.slots.values_mut().for_each(|slot| slot.is_leaving = true);
        let there = state.slots.iter().filter(|(_, slot)| slot.asked || matches!(slot.state, LineState::Granted(_)));
        there.map(|(id, slot)| PlaceId { name: slot.name.clone(), request: *id }).collect()
    }
}

impl LineSlot {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
