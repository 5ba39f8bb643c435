//! The standing of one contender in an ordered queue: pure functions over the claims ahead of it, front first.
//!
//! A store that lists a queue, keeps one in memory or reads a directory asks the rule here. All claims of a queue have one capacity, since
//! a conflicting claim never gets in. Where other clients may put one there, a mutex looks at the nearest claim ahead, and any other claim
//! at the first that differs.

use super::wake::{WakeOn, wake_condition_with};
use super::{Admission, Claim, admits};

/// How many of `queue` are granted: the longest prefix that the rule admits. Reads only these claims and the contender behind them.
pub(crate) fn granted_of(queue: impl IntoIterator<Item = Claim>) -> usize {
    let mut queue = queue.into_iter().peekable();
    let Some(capacity) = queue.peek().map(|claim| claim.capacity()) else { return 0 };
    let mut left = capacity;
    let fits = |claim: &Claim| {
        let rest = left.checked_sub(claim.weight());
        left = rest.unwrap_or(left);
        rest.is_some() && claim.capacity() == capacity
    };
    queue.take_while(fits).count()
}

/// The admission of `mine` behind `ahead`. Costs one step for a mutex, which any contender ahead excludes.
#[allow(dead_code, reason = "unused without some stores")]
pub(crate) fn judge(mut ahead: impl DoubleEndedIterator<Item = Claim>, mine: Claim) -> Admission {
    if mine != Claim::MUTEX {
        return admits(ahead, mine);
    }
    match ahead.next_back() {
        None => Admission::Admitted,
        Some(nearest) if nearest.capacity() == mine.capacity() => Admission::Wait,
        Some(nearest) => Admission::Conflict(nearest),
    }
}

/// The event that must wake `mine` behind `ahead`, or `None` if it is granted. Costs one step for a claim to the whole capacity, the
/// distance to the writer for a reader behind one, else a step for each holder.
pub(crate) fn wake_condition_behind(
    ahead: impl DoubleEndedIterator<Item = Claim> + ExactSizeIterator + Clone,
    mine: Claim,
) -> Option<WakeOn> {
    let nearest_writer = || ahead.clone().rposition(|claim| claim.is_whole());
    let granted = || granted_of(ahead.clone().chain([mine]));
    wake_condition_with(mine, ahead.len(), nearest_writer, granted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::queue::{granted, wake_condition};

    fn claims() -> impl Strategy<Value = Vec<Claim>> {
        let permits = (1..8_u32).prop_flat_map(|capacity| {
            prop::collection::vec((1..=capacity).prop_map(move |weight| Claim::new(weight, capacity).unwrap()), 0..30)
        });
        let readers_and_writers =
            prop::collection::vec(prop::sample::select(vec![Claim::READER, Claim::WRITER]), 0..30);
        prop_oneof![permits, readers_and_writers]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_listed_queue_gives_each_place_the_standing_of_the_rule(queue in claims()) {
            let prefix = granted_of(queue.iter().copied());
            prop_assert_eq!(prefix, granted(&queue));
            for (at, mine) in queue.iter().copied().enumerate() {
                let ahead = queue[..at].iter().copied();
                let by_the_rule = admits(ahead.clone(), mine);
                prop_assert_eq!(judge(ahead.clone(), mine), by_the_rule);
                prop_assert_eq!(at < prefix, by_the_rule == Admission::Admitted);
                prop_assert_eq!(granted_of(ahead.clone()), prefix.min(at));
                let condition = wake_condition_behind(ahead, mine);
                prop_assert_eq!(condition, wake_condition(&queue, at));
                prop_assert_eq!(condition.is_none(), at < prefix);
            }
        }

        #[test]
        fn another_capacity_ends_the_granted_and_is_reported_to_all_but_mutexes_behind_others(
            queue in claims(), other in claims(), mine in claims(),
        ) {
            let mixed = || queue.iter().chain(&other).copied();
            let Some(mine) = mine.first().copied() else { return Ok(()) };
            let capacity = mixed().next().map(|first| first.capacity());
            let is_same = |claim: &Claim| Some(claim.capacity()) == capacity;
            prop_assert!(granted_of(mixed()) <= mixed().take_while(is_same).count());
            let nearest = mixed().next_back();
            match judge(mixed(), mine) {
                judged if mine != Claim::MUTEX => prop_assert_eq!(judged, admits(mixed(), mine)),
                Admission::Admitted => prop_assert_eq!(nearest, None),
                Admission::Wait => prop_assert_eq!(nearest.unwrap().capacity(), 1),
                Admission::Conflict(other) => {
                    prop_assert_eq!(Some(other), nearest);
                    prop_assert_ne!(other.capacity(), 1);
                }
            }
        }
    }
}
