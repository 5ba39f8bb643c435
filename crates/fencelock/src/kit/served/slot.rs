//! One place of a session: what is known of it, and who waits to hear more.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::store::{Ahead, Grant, Loss, PlaceId, Standing};
use crate::time::Moment;
use crate::token::FencingToken;

/// What one place is known to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceState {
    /// It was sent and not answered; messages may have told of a grant already, and of the break of this or another one.
    Sent {
        told: Option<u64>,
        broken: Option<u64>,
    },
    /// It waits, under this number; who is ahead, where the server tells.
    Waiting {
        seq: u64,
        ahead: Option<Ahead>,
    },
    Granted {
        seq: u64,
    },
    /// It is gone, unasked.
    Gone(Loss),
}

/// Why the holder of a place is rung that asked to be told of waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ring {
    /// The connection ended on which it was to be told.
    Disconnected,
    Waiter,
}

/// One place of the session, shared with the task that waits for it.
pub(crate) struct PlaceSlot {
    pub(crate) place: PlaceId,
    pub(crate) bucket: u16,
    state: Mutex<SlotState>,
}

pub(crate) struct SlotState {
    pub(crate) stand: PlaceState,
    pub(crate) waker: Option<Waker>,
    /// When to look at it again, while it waits.
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
        let stand = PlaceState::Sent { told: None, broken: None };
        let state = SlotState { stand, waker: None, due: Moment::NEVER, rung: None };
        Self { place, bucket, state: Mutex::new(state) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stand(&self) -> PlaceState {
        self.lock().stand
    }

    /// The number that the place has, once it is known.
    pub(crate) fn seq(&self) -> Option<u64> {
        match self.stand() {
            PlaceState::Waiting { seq, .. } | PlaceState::Granted { seq } => Some(seq),
            PlaceState::Sent { .. } | PlaceState::Gone(_) => None,
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        match self.stand() {
            PlaceState::Sent { .. } => Standing::Waiting(None),
            PlaceState::Waiting { ahead, .. } => Standing::Waiting(ahead),
            PlaceState::Granted { seq } => Standing::Granted(Grant::new(FencingToken::new(seq))),
            PlaceState::Gone(loss) => Standing::Lost(loss),
        }
    }

    /// Ready once the place does not wait any more, or when its task has to look around.
    pub(crate) fn poll_news(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if !matches!(state.stand, PlaceState::Waiting { .. } | PlaceState::Sent { .. }) {
            return Poll::Ready(());
        }
        state.wake_by(cx);
        Poll::Pending
    }

    /// Ready once the holder is rung. A place that is granted has no other waker.
    pub(crate) fn poll_rung(&self, cx: &Context<'_>) -> Poll<Ring> {
        let mut state = self.lock();
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

    /// Changes the state; gives back whom to wake.
    pub(crate) fn change(&self, change: impl FnOnce(&mut SlotState) -> bool) -> Option<Waker> {
        let mut state = self.lock();
        if change(&mut state) { state.waker.take() } else { None }
    }
}
