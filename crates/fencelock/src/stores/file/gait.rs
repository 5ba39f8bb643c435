//! How often a waiter looks whom no event reaches: often when its turn is near, rarely while many are ahead.
//!
//! The kernel gives a user 128 inotify instances by default, so of 500 processes most are not told of anything. If each of
//! them looked every 10 ms, their looks would take the processor from the one whose turn it is.

use std::time::Duration;

use crate::time::Moment;

/// The shortest pause, behind a queue that moves fast.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest pause for each place ahead, behind a queue that stands still.
pub(super) const PER_PLACE: Duration = Duration::from_millis(10);
/// The longest pause however many are ahead, for many of them may give up at once.
const LONGEST: Duration = Duration::from_millis(200);

/// What a waiter saw of the queue ahead of it.
#[derive(Debug, Default)]
pub(super) struct Gait {
    /// How many were ahead, and when that was seen first.
    seen: Option<(Moment, u32)>,
    pause: Duration,
}

impl Gait {
    /// Whether somebody was between this waiter and the front when it looked last.
    pub(super) fn is_far(&self) -> bool {
        self.seen.is_some_and(|(_, ahead)| ahead > 1)
    }

    /// How long to wait with so many ahead: half of what they take at the pace of those who left, or twice as long as
    /// before when nobody left. The next waiter begins anew and goes slower by little, for each pause makes all behind it late.
    pub(super) fn pause(&mut self, now: Moment, ahead: usize) -> Duration {
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX).max(1);
        let pause = match self.seen {
            Some((_, 1)) if ahead == 1 => self.pause.saturating_mul(5) / 4,
            Some((since, before)) if ahead > 1 && ahead < before => {
                now.since(since).saturating_mul(ahead) / (before - ahead).saturating_mul(2)
            }
            Some((_, before)) if ahead == before => self.pause.saturating_mul(2),
            _ => SHORTEST.saturating_mul(ahead) / 4,
        };
        if self.seen.is_none_or(|(_, before)| before != ahead) {
            self.seen = Some((now, ahead));
        }
        self.pause = pause.clamp(SHORTEST, PER_PLACE.saturating_mul(ahead).min(LONGEST));
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::from_nanos(1_000_000_000);

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn a_waiter_looks_again_when_half_of_its_wait_has_passed_at_the_pace_of_those_who_left() {
        let mut gait = Gait::default();
        assert_eq!(gait.pause(START, 80), millis(20));
        assert!(gait.is_far());
        assert_eq!(gait.pause(START.after(millis(20)), 60), millis(30));
        assert_eq!(gait.pause(START.after(millis(50)), 60), millis(60), "nobody left");
        assert_eq!(gait.pause(START.after(millis(110)), 30), millis(45), "30 in 90 ms");
        assert_eq!(gait.pause(START.after(millis(155)), 1), SHORTEST);
        assert!(!gait.is_far());
    }

    #[test]
    fn a_queue_that_stands_still_is_looked_at_rarely_by_those_who_are_far_behind() {
        let standing = |ahead| {
            let mut gait = Gait::default();
            (0..20).map(|second| gait.pause(START.after(millis(1000 * second)), ahead)).last().unwrap()
        };
        assert_eq!([0, 1, 2, 5, 20, usize::MAX].map(standing), [10, 10, 20, 50, 200, 200].map(millis));
    }
}
