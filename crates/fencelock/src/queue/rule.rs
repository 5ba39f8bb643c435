//! The admission rule: it looks only ahead.

use super::Claim;
use super::view::granted_of;

/// What the rule says about one contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The claim and everything ahead of it fit the capacity together.
    Admitted,
    /// They do not fit yet; departures can only help.
    Wait,
    /// Somebody ahead believes in another capacity (given here): the two cannot share a queue.
    Conflict(Claim),
}

/// Whether `mine` is admitted behind the claims `ahead` of it (holders and waiters alike).
///
/// A contender is admitted when its weight plus **all** the weights ahead of it fit the capacity. Because the rule looks
/// only ahead, nothing a newcomer does ends a grant; because it only adds up weights, departures only help. Hence the
/// granted places are always a prefix of the queue, and the capacity is never exceeded.
pub fn admits(ahead: impl IntoIterator<Item = Claim>, mine: Claim) -> Admission {
    let mut taken = u64::from(mine.weight());
    for claim in ahead {
        if claim.capacity() != mine.capacity() {
            return Admission::Conflict(claim);
        }
        taken = taken.saturating_add(u64::from(claim.weight()));
    }
    if taken <= u64::from(mine.capacity()) { Admission::Admitted } else { Admission::Wait }
}

/// How many at the front of `queue` are granted: the longest prefix that [`admits`] admits.
///
/// Looks only at them and at the one behind, so it costs a constant on a queue of mutexes, however many wait.
#[must_use]
pub fn granted(queue: &[Claim]) -> usize {
    granted_of(queue.iter().copied())
}
