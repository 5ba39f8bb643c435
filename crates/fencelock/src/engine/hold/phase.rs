//! The phase of a hold: an atomic value, so that two ends of a hold cannot overlap.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::store::Loss;

/// The phase of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The lock is held.
    Held,
    /// The holder gave the lock up, and no request that leaves the place can have worked.
    GivenUp,
    /// The holder gave the lock up, and a request that leaves the place was sent: a place that is gone from now on is no loss.
    Leaving,
    /// The place was left.
    Left,
    /// The lock is lost, for this reason, which stays.
    Lost(Loss),
}

use Phase::{GivenUp, Held, Leaving, Left, Lost};

/// The offset of a loss's number.
const LOST: u8 = 4;

impl Phase {
    fn number(self) -> u8 {
        match self {
            Held => 0,
            GivenUp => 1,
            Leaving => 2,
            Left => 3,
            Lost(loss) => LOST + loss as u8,
        }
    }

    fn of(number: u8) -> Self {
        match number {
            0 => Held,
            1 => GivenUp,
            2 => Leaving,
            3 => Left,
            lost => Lost(Loss::ALL[usize::from(lost - LOST)]),
        }
    }

    /// Whether this phase is final.
    pub(super) fn is_end(self) -> bool {
        matches!(self, Left | Lost(_))
    }

    pub(super) fn cause(self) -> Option<Loss> {
        if let Lost(loss) = self { Some(loss) } else { None }
    }
}

pub(super) struct Current(AtomicU8);

impl Current {
    pub(super) fn held() -> Self {
        Self(AtomicU8::new(Held.number()))
    }

    pub(super) fn get(&self) -> Phase {
        Phase::of(self.0.load(Ordering::SeqCst))
    }

    /// Changes to the phase that `next` returns, if any; returns the phase before.
    fn go_on(&self, next: impl Fn(Phase) -> Option<Phase>) -> Result<Phase, Phase> {
        let number = |number| next(Phase::of(number)).map(Phase::number);
        let changed = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, number);
        changed.map(Phase::of).map_err(Phase::of)
    }

    /// The holder gives the lock up, unless it is lost; returns whether this call gave it up.
    pub(super) fn give_up(&self) -> bool {
        self.go_on(|phase| (phase == Held).then_some(GivenUp)).is_ok()
    }

    /// Marks the lock lost, unless it was given up or is lost already; returns whether this call marked it.
    pub(super) fn lose(&self, loss: Loss) -> bool {
        self.go_on(|phase| (phase == Held).then_some(Lost(loss))).is_ok()
    }

    /// The place is gone, and no request of this client can have removed it. Returns the cause that stays.
    pub(super) fn found_gone(&self, loss: Loss) -> Loss {
        match self.go_on(|phase| (!phase.is_end()).then_some(Lost(loss))) {
            Err(Lost(before)) => before,
            _ => loss,
        }
    }

    /// A request that leaves the place is about to be sent; returns whether an earlier one may have worked.
    pub(super) fn sends(&self) -> bool {
        self.go_on(|phase| (phase == GivenUp).then_some(Leaving)) == Err(Leaving)
    }

    /// The request was not sent, so no request that leaves the place can have worked.
    pub(super) fn not_sent(&self) {
        let _ = self.go_on(|phase| (phase == Leaving).then_some(GivenUp));
    }

    pub(super) fn left(&self) {
        let _ = self.go_on(|phase| (!phase.is_end()).then_some(Left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_known_by_its_number() {
        let phases = [Held, GivenUp, Leaving, Left].into_iter().chain(Loss::ALL.iter().copied().map(Lost));
        for (phase, number) in phases.zip(0..) {
            assert_eq!((phase.number(), Phase::of(number)), (number, phase));
        }
    }

    #[test]
    fn the_first_end_stays() {
        let lost = Current::held();
        assert!(lost.lose(Loss::Broken) && !lost.lose(Loss::Expired));
        lost.give_up();
        lost.left();
        assert!(!lost.sends() && lost.found_gone(Loss::Removed) == Loss::Broken);
        assert_eq!(lost.get(), Lost(Loss::Broken));
        let left = Current::held();
        left.give_up();
        assert!(!left.sends() && left.sends(), "the second request finds that one was sent");
        left.not_sent();
        assert!(!left.sends() && !left.lose(Loss::Expired), "who gave it up loses nothing");
        left.left();
        assert_eq!((left.found_gone(Loss::Removed), left.get()), (Loss::Removed, Left));
    }
}
