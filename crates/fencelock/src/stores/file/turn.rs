//! Turns at the short lock of a bucket.
//!
//! The lock is tried, not waited for. So a process that is running finds it free again and again, while one that sleeps
//! between its tries finds it taken. Who sleeps leaves a mark beside the bucket's counter; who had the lock for a while
//! and finds the mark leaves it alone for some milliseconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::directory::Directory;
use crate::kit::bucket::BUCKETS;
use crate::time::Moment;

/// How long a process uses a lock that others want before it lets them have it.
const TURN: Duration = Duration::from_millis(1);
/// How long it then leaves the lock alone: those who wait try each millisecond at first.
const WAY: Duration = Duration::from_millis(3);
/// How long a mark counts. A waiter renews its mark with every try; a dead process does not.
const FRESH_MS: u64 = 20;
/// The low bits of a mark say whose it is, the others when it was made, in milliseconds.
const WHOSE_BITS: u32 = 22;

/// How long this process has been using a bucket.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// When it began, and when the lock was taken last.
    used: Option<(Moment, Moment)>,
    gives_way_until: Option<Moment>,
}

impl Turn {
    /// Whether to leave the lock alone for now; `wanted` says whether somebody still waits.
    pub(super) fn gives_way(&mut self, now: Moment, wanted: impl FnOnce() -> bool) -> bool {
        let Some(until) = self.gives_way_until else { return false };
        let gives_way = now < until && wanted();
        if !gives_way {
            *self = Self::default();
        }
        gives_way
    }

    /// Asked with the lock in hand: whether to give it back unused, since the turn is over and somebody waits. That others
    /// had the lock in between makes no difference: two that alternate would else keep it from a third for ever.
    pub(super) fn is_over(&mut self, now: Moment, wanted: impl FnOnce() -> bool) -> bool {
        let since = match self.used {
            Some((since, last)) if now.since(last) < TURN => since,
            _ => now,
        };
        self.used = Some((since, now));
        if now.since(since) < TURN {
            return false;
        }
        self.used = None;
        let is_over = wanted();
        if is_over {
            self.gives_way_until = Some(now.after(WAY));
        }
        is_over
    }
}

/// A mark of this moment, by whom `whose` stands for.
fn mark(whose: u64, wall: SystemTime) -> u64 {
    let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_millis() as u64) << WHOSE_BITS | (whose & ((1 << WHOSE_BITS) - 1))
}

/// Whether `found` was made by somebody else, a moment ago.
fn is_wanted(found: u64, now: u64) -> bool {
    let is_mine = (found ^ now).trailing_zeros() >= WHOSE_BITS;
    let age = (now >> WHOSE_BITS).checked_sub(found >> WHOSE_BITS);
    !is_mine && age.is_some_and(|age| age < FRESH_MS)
}

/// The marks stand behind the counters, in the same file. Nobody depends on them: what cannot be read or written is left.
impl Directory {
    fn mark_offset(index: u16) -> u64 {
        (u64::from(BUCKETS) + u64::from(index)) * 8
    }

    fn read_mark(&self, index: u16) -> u64 {
        let mut bytes = [0; 8];
        let _ = rustix::io::pread(&self.root.counters, &mut bytes, Self::mark_offset(index));
        u64::from_be_bytes(bytes)
    }

    fn write_mark(&self, index: u16, mark: u64) {
        let _ = rustix::io::pwrite(&self.root.counters, &mark.to_be_bytes(), Self::mark_offset(index));
    }

    /// Whether another process waits for the lock of a bucket.
    pub(super) fn is_wanted(&self, index: u16, wall: SystemTime) -> bool {
        is_wanted(self.read_mark(index), mark(self.whose, wall))
    }

    /// Says that this process waits for the lock of a bucket.
    pub(super) fn want(&self, index: u16, wall: SystemTime) {
        self.write_mark(index, mark(self.whose, wall));
    }

    /// Takes that back, unless somebody else says the same meanwhile.
    pub(super) fn want_no_more(&self, index: u16) {
        if (self.read_mark(index) ^ self.whose).trailing_zeros() >= WHOSE_BITS {
            self.write_mark(index, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::from_nanos(1_000_000_000);

    #[test]
    fn who_had_its_turn_gives_way_to_who_waits_and_then_goes_on() {
        let at = |micros| START.after(Duration::from_micros(micros));
        let mut turn = Turn::default();
        let mut uses = |micros, wanted: bool| turn.is_over(at(micros), || wanted);
        assert!(!uses(0, true) && !uses(900, true));
        assert!(!uses(1100, false), "nobody waits");
        assert!(!uses(1200, true), "a new turn");
        assert!(!uses(9000, true), "it was not used for long");
        assert!(!uses(9900, true) && uses(10_100, true));
        assert!(turn.gives_way(at(10_200), || true));
        assert!(!turn.gives_way(at(10_300), || false), "who waited has it");
        assert!(!turn.is_over(at(10_400), || true) && !turn.is_over(at(11_300), || true));
        assert!(turn.is_over(at(11_500), || true) && turn.gives_way(at(14_400), || true));
        assert!(!turn.gives_way(at(14_600), || true), "who waits had its chance");
        assert!(!turn.is_over(at(14_700), || true));
    }

    #[test]
    fn two_that_alternate_both_give_way_to_a_third() {
        let mut turns = [Turn::default(), Turn::default()];
        let gave_way_at = |turn: &mut Turn, offset: u64| {
            (0..50)
                .map(|use_| use_ * 200 + offset)
                .find(|at| turn.is_over(START.after(Duration::from_micros(*at)), || true))
        };
        let gave_way = [gave_way_at(&mut turns[0], 0), gave_way_at(&mut turns[1], 100)];
        assert_eq!(gave_way, [Some(1000), Some(1100)]);
    }

    #[test]
    fn a_mark_counts_for_others_and_for_a_moment() {
        let at = |ms| UNIX_EPOCH + Duration::from_millis(ms);
        let now = mark(7, at(1000));
        assert!(is_wanted(mark(8, at(1000)), now) && is_wanted(mark(8, at(990)), now));
        assert!(!is_wanted(mark(7, at(1000)), now), "its own");
        assert!(!is_wanted(mark(8, at(900)), now), "an old one");
        assert!(!is_wanted(mark(8, at(2000)), now), "the clock was set back");
        assert!(!is_wanted(0, now));
    }
}
