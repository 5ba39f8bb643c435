//! A place of a session: its state, and the waker of the task that waits for a change.

use std::task::{Context, Poll, Waker};

use crate::store::{Ahead, Grant, Loss, PlaceId, Standing};
use crate::sync::Mutex;
use crate::time::Moment;
use crate::token::FencingToken;

/// The state of a place, as far as the client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceState {
    /// The request was sent and has no answer. Messages may have reported a grant, or the break of this grant or another one.
    Sent {
        granted: Option<u64>,
        broken: Option<u64>,
    },
    /// The place waits, under this number. `ahead` is there if the server says it.
    Waiting {
        seq: u64,
        ahead: Option<Ahead>,
    },
    Granted {
        seq: u64,
    },
    /// The place is gone, unasked.
    Gone(Loss),
}

/// Why the session wakes a holder that asked for notifications of waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ring {
    /// The connection that would carry the notification has ended.
    Disconnected,
    Waiter,
}

/// A place of the session, shared with the task that waits for it.
pub(crate) struct PlaceSlot {
    pub(crate) place: PlaceId,
    pub(crate) bucket: u16,
    pub(super) state: Mutex<SlotState>,
}

pub(crate) struct SlotState {
    pub(crate) place_state: PlaceState,
    pub(crate) waker: Option<Waker>,
    /// When to look at the place again, while it waits.
    pub(crate) due: Moment,
    pub(crate) rung: Option<Ring>,
}

impl SlotState {
    fn wake_by(&mut self, cx: &Context<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }
}

impl PlaceSlot {
    pub(crate) fn new(place: PlaceId, bucket: u16) -> Self {
        let place_state = PlaceState::Sent { granted: None, broken: None };
        let state = SlotState { place_state, waker: None, due: Moment::NEVER, rung: None };
        Self { place, bucket, state: Mutex::new(state) }
    }

    pub(crate) fn place_state(&self) -> PlaceState {
        self.state.lock().place_state
    }

    /// The number that the place has, once it is known.
    pub(crate) fn seq(&self) -> Option<u64> {
        match self.place_state() {
            PlaceState::Waiting { seq, .. } | PlaceState::Granted { seq } => Some(seq),
            PlaceState::Sent { .. } | PlaceState::Gone(_) => None,
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        match self.place_state() {
            PlaceState::Sent { .. } => Standing::Waiting(None),
            PlaceState::Waiting { ahead, .. } => Standing::Waiting(ahead),
            PlaceState::Granted { seq } => Standing::Granted(Grant::new(FencingToken::new(seq))),
            PlaceState::Gone(loss) => Standing::Lost(loss),
        }
    }

    /// Ready once the place stopped waiting, or when its task has to check the session.
    pub(crate) fn poll_news(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if !matches!(state.place_state, PlaceState::Waiting { .. } | PlaceState::Sent { .. }) {
            return Poll::Ready(());
        }
        state.wake_by(cx);
        Poll::Pending
    }

    /// Ready once the holder is woken. A place that is granted has no other waker.
    pub(crate) fn poll_rung(&self, cx: &Context<'_>) -> Poll<Ring> {
        let mut state = self.state.lock();
        if let Some(ring) = state.rung {
            return Poll::Ready(ring);
        }
        state.wake_by(cx);
        Poll::Pending
    }

    pub(crate) fn ring(&self, ring: Ring) {
        let waker = self.change(|state| {
            state.rung = state.rung.max(Some(ring));
            true
        });
        waker.into_iter().for_each(Waker::wake);
    }

    /// Changes the state; returns the waker to wake.
    pub(crate) fn change(&self, change: impl FnOnce(&mut SlotState) -> bool) -> Option<Waker> {
        let mut state = self.state.lock();
        if change(&mut state) { state.waker.take() } else { None }
    }
}
