//! What a queue that somebody sees in its order says about one contender: pure functions over the claims ahead of it, front first.
//!
//! A store that lists a queue, keeps one in memory or reads a directory asks the rule here. All claims of a queue have one capacity, since
//! a conflicting one never gets in; where others may put one there, the nearest one ahead of a mutex tells, and of all other claims
//! the first one that differs.

use super::wake::{Hear, hears_with};
use super::{Admission, Claim, admits};

/// How many of `queue` are granted: the longest prefix that the rule admits. Looks only at them and at the one behind.
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

/// What the rule says about `mine` behind `ahead`. Costs one step for a mutex, which anybody ahead keeps out.
#[allow(dead_code, reason = "in a build with some stores only, nobody may ask")]
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

/// What `mine` behind `ahead` must hear of, or `None` when it is granted. Costs one step for a claim to the whole capacity, the
/// distance to the writer for a reader behind one, else a step for each holder.
pub(crate) fn hears_behind(
    ahead: impl DoubleEndedIterator<Item = Claim> + ExactSizeIterator + Clone,
    mine: Claim,
) -> Option<Hear> {
    let nearest_writer = || ahead.clone().rposition(|claim| claim.is_whole());
    let granted = || granted_of(ahead.clone().chain([mine]));
    hears_with(mine, ahead.len(), nearest_writer, granted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::queue::{granted, hears};

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
        fn what_is_seen_of_a_queue_is_what_the_rule_says_of_each_place(queue in claims()) {
            let prefix = granted_of(queue.iter().copied());
            prop_assert_eq!(prefix, granted(&queue));
            for (at, mine) in queue.iter().copied().enumerate() {
                let ahead = queue[..at].iter().copied();
                let by_the_rule = admits(ahead.clone(), mine);
                prop_assert_eq!(judge(ahead.clone(), mine), by_the_rule);
                prop_assert_eq!(at < prefix, by_the_rule == Admission::Admitted);
                prop_assert_eq!(granted_of(ahead.clone()), prefix.min(at));
                let heard = hears_behind(ahead, mine);
                prop_assert_eq!(heard, hears(&queue, at));
                prop_assert_eq!(heard.is_none(), at < prefix);
            }
        }

        #[test]
        fn another_capacity_ends_the_granted_and_is_told_to_all_but_mutexes_behind_others(
            queue in claims(), other in claims(), mine in claims(),
        ) {
            let mixed = || queue.iter().chain(&other).copied();
            let Some(mine) = mine.first().copied() else { return Ok(()) };
            let capacity = mixed().next().map(|first| first.capacity());
            let is_same = |claim: &Claim| Some(claim.capacity()) == capacity;
            prop_assert!(granted_of(mixed()) <= mixed().take_while(is_same).count());
            let nearest = mixed().next_back();
            match judge(mixed(), mine) {
                told if mine != Claim::MUTEX => prop_assert_eq!(told, admits(mixed(), mine)),
                Admission::Admitted => prop_assert_eq!(nearest, None),
                Admission::Wait => prop_assert_eq!(nearest.unwrap().capacity(), 1),
                Admission::Conflict(theirs) => {
                    prop_assert_eq!(Some(theirs), nearest);
                    prop_assert_ne!(theirs.capacity(), 1);
                }
            }
        }
    }
}
