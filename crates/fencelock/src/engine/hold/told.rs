//! Observers hear of a grant before they hear of its end, whichever comes first.

use std::sync::atomic::{AtomicU8, Ordering};

const NOTHING: u8 = 0;
const GRANTED: u8 = 1;
/// It was lost before its grant was told.
const LOSS_WAITS: u8 = 2;

pub(super) struct TellState(AtomicU8);

impl TellState {
    pub(super) const fn nothing() -> Self {
        Self(AtomicU8::new(NOTHING))
    }

    /// The grant was told; says whether a loss is to be told now.
    pub(super) fn granted(&self) -> bool {
        self.0.swap(GRANTED, Ordering::AcqRel) == LOSS_WAITS
    }

    /// The hold is lost; says whether that may be told now, or else by the task that tells of the grant.
    pub(super) fn lost(&self) -> bool {
        self.0.compare_exchange(NOTHING, LOSS_WAITS, Ordering::AcqRel, Ordering::Acquire).is_err()
    }
}
