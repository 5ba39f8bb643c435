//! The admission rule, which looks only ahead.

use super::Claim;
use super::view::granted_of;

/// The admission of one contender, by the rule of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The claim and everything ahead of it fit the capacity together.
    Admitted,
    /// The claims do not fit yet. Departures can only help.
    Wait,
    /// A contender ahead has this claim, of another capacity: the two cannot share a queue.
    Conflict(Claim),
}

/// Whether `mine` is admitted behind the claims `ahead` of it (holders and waiters alike).
///
/// A contender is admitted when its weight plus **all** the weights ahead of it fit the capacity. The rule looks
/// only ahead, so no newcomer ends a grant. The rule only adds up weights, so departures only help. Hence the
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

/// The number of contenders at the front of `queue` that are granted: the longest prefix that [`admits`] admits.
///
/// Looks only at these and at the contender behind: a constant cost on a queue of mutexes, however many wait.
#[must_use]
pub fn granted(queue: &[Claim]) -> usize {
    granted_of(queue.iter().copied())
}
