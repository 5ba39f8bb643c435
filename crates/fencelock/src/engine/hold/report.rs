//! Observers receive a grant before its end, even if the engine learns of the end first.

use std::sync::atomic::{AtomicU8, Ordering};

const NOTHING: u8 = 0;
const GRANTED: u8 = 1;
/// The lock was lost before observers received its grant.
const LOSS_WAITS: u8 = 2;

pub(super) struct ReportState(AtomicU8);

impl ReportState {
    pub(super) const fn new() -> Self {
        Self(AtomicU8::new(NOTHING))
    }

    /// Observers have received the grant; returns whether to send them a loss now.
    pub(super) fn mark_granted(&self) -> bool {
        self.0.swap(GRANTED, Ordering::AcqRel) == LOSS_WAITS
    }

    /// The hold is lost; returns whether to notify observers now. Otherwise the task that reports the grant does.
    pub(super) fn mark_lost(&self) -> bool {
        self.0.compare_exchange(NOTHING, LOSS_WAITS, Ordering::AcqRel, Ordering::Acquire).is_err()
    }
}
