//! The laws of the queue rule and of the wake rule, over every small queue and every single departure.
//!
//! The property tests in `queue_random.rs` cover long and mixed queues.

use fencelock::queue::{
    Admission, Claim, WakeOn, admits, granted, wake_condition, woken_by_departure, woken_by_lightening,
};

/// A departure: the contender at `position` leaves, or stays with a lighter claim.
#[derive(Debug, Clone, Copy)]
struct Departure {
    position: usize,
    stays_as: Option<Claim>,
}

impl Departure {
    /// The queue after it, and for each of its places the position before.
    fn apply(self, queue: &[Claim]) -> (Vec<Claim>, Vec<usize>) {
        let places = queue.iter().enumerate().filter_map(|(position, claim)| match position == self.position {
            true => self.stays_as.map(|lighter| (lighter, position)),
            false => Some((*claim, position)),
        });
        places.unzip()
    }

    fn woken(self, queue: &[Claim]) -> Vec<usize> {
        match self.stays_as {
            Some(lighter) => woken_by_lightening(queue, self.position, lighter),
            None => woken_by_departure(queue, self.position),
        }
    }
}

/// The mark of each place by the rule alone, asked place by place.
fn admitted(queue: &[Claim]) -> Vec<bool> {
    (0..queue.len()).map(|at| admits(queue[..at].iter().copied(), queue[at]) == Admission::Admitted).collect()
}

/// Every queue of up to `longest` places with these claims.
fn every_queue(claims: &[Claim], longest: usize) -> Vec<Vec<Claim>> {
    let mut queues = vec![vec![]];
    let mut newest = queues.clone();
    for _ in 0..longest {
        let with_one_more =
            |shorter: &Vec<Claim>| claims.iter().map(|claim| [&shorter[..], &[*claim]].concat()).collect::<Vec<_>>();
        newest = newest.iter().flat_map(with_one_more).collect();
        queues.extend(newest.iter().cloned());
    }
    queues
}

/// Every contender may leave; a holder may stay with any lighter claim out of `claims`.
fn every_departure(queue: &[Claim], claims: &[Claim]) -> Vec<Departure> {
    let holders = granted(queue);
    let mut departures = Vec::new();
    for (position, claim) in queue.iter().enumerate() {
        departures.push(Departure { position, stays_as: None });
        let lighter = claims.iter().filter(|lighter| position < holders && lighter.weight() < claim.weight());
        departures.extend(lighter.map(|lighter| Departure { position, stays_as: Some(*lighter) }));
    }
    departures
}

fn mutexes() -> Vec<(Vec<Claim>, usize)> {
    vec![(vec![Claim::MUTEX], 7)]
}

/// Every weight of every capacity up to 6.
fn permits() -> Vec<(Vec<Claim>, usize)> {
    (1..=6).map(|capacity| ((1..=capacity).map(|weight| Claim::new(weight, capacity).unwrap()).collect(), 6)).collect()
}

fn readers_and_writers() -> Vec<(Vec<Claim>, usize)> {
    vec![(vec![Claim::READER, Claim::WRITER], 9)]
}

/// Runs `law` on every queue of the families and every departure from it; says how many there were.
fn for_every_departure(families: Vec<(Vec<Claim>, usize)>, law: impl Fn(&[Claim], Departure)) -> usize {
    let mut departures = 0;
    for (claims, longest) in families {
        for queue in every_queue(&claims, longest) {
            for departure in every_departure(&queue, &claims) {
                law(&queue, departure);
                departures += 1;
            }
        }
    }
    departures
}

fn for_every_queue(families: Vec<(Vec<Claim>, usize)>, law: impl Fn(&[Claim], &[Claim])) {
    for (claims, longest) in families {
        for queue in every_queue(&claims, longest) {
            law(&queue, &claims);
        }
    }
}

fn everything() -> Vec<(Vec<Claim>, usize)> {
    [mutexes(), permits(), readers_and_writers()].concat()
}

#[test]
fn the_granted_places_are_a_prefix_of_the_queue() {
    for_every_queue(everything(), |queue, _| {
        let prefix = granted(queue);
        let marks: Vec<bool> = (0..queue.len()).map(|position| position < prefix).collect();
        assert_eq!(admitted(queue), marks, "{queue:?}");
    });
}

#[test]
fn the_capacity_is_never_exceeded() {
    for_every_queue(everything(), |queue, _| {
        let taken: u64 = queue[..granted(queue)].iter().map(|claim| u64::from(claim.weight())).sum();
        assert!(queue.first().is_none_or(|claim| taken <= u64::from(claim.capacity())), "{queue:?}");
    });
}

#[test]
fn the_first_in_a_queue_is_granted() {
    for_every_queue(everything(), |queue, _| assert!(queue.is_empty() || granted(queue) > 0, "{queue:?}"));
}

#[test]
fn an_arrival_changes_no_standing_and_no_wake_condition() {
    for_every_queue(everything(), |queue, claims| {
        for newcomer in claims {
            let longer = [queue, &[*newcomer]].concat();
            assert!(granted(&longer) >= granted(queue), "{queue:?} and {newcomer}");
            for position in 0..queue.len() {
                assert_eq!(
                    wake_condition(&longer, position),
                    wake_condition(queue, position),
                    "{position} of {queue:?} and {newcomer}"
                );
            }
        }
    });
}

#[test]
fn a_departure_ends_no_grant() {
    for_every_departure(everything(), |queue, departure| {
        let (after, before) = departure.apply(queue);
        let still = granted(&after);
        for (position, was) in before.into_iter().enumerate() {
            assert!(position < still || was >= granted(queue), "{departure:?} from {queue:?}");
        }
    });
}

#[test]
fn exactly_the_waiters_have_a_wake_condition() {
    for_every_queue(everything(), |queue, _| {
        for position in 0..queue.len() {
            assert_eq!(wake_condition(queue, position).is_none(), position < granted(queue), "{position} of {queue:?}");
        }
    });
}

/// The positions that were waiting before and are granted after.
fn newly_granted(queue: &[Claim], departure: Departure) -> Vec<usize> {
    let (after, before) = departure.apply(queue);
    before[..granted(&after)].iter().copied().filter(|was| *was >= granted(queue)).collect()
}

#[test]
fn no_wake_up_is_lost() {
    let departures = for_every_departure(everything(), |queue, departure| {
        let woken = departure.woken(queue);
        for position in newly_granted(queue, departure) {
            assert!(woken.contains(&position), "{position} of {queue:?} is not woken by {departure:?}");
        }
    });
    assert_eq!(departures, 717_201, "the families of queues changed");
}

/// The positions that are notified by `wake_condition` alone: the loop repeats as often as an addition can cause another one.
fn woken_one_by_one(queue: &[Claim], departure: Departure) -> Vec<usize> {
    let granted_now = newly_granted(queue, departure);
    let mut woken = vec![false; queue.len()];
    for _round in 0..=queue.len() {
        for position in departure.position + 1..queue.len() {
            woken[position] |= match wake_condition(queue, position) {
                None => false,
                Some(WakeOn::AnyDepartureAhead) => true,
                Some(WakeOn::Departure(at)) => at == departure.position,
                Some(WakeOn::GrantOrDeparture(at)) => {
                    at == departure.position || (woken[at] && granted_now.contains(&at))
                }
            };
        }
    }
    (0..queue.len()).filter(|position| woken[*position]).collect()
}

#[test]
fn the_notified_are_exactly_the_listeners_of_the_departure_or_of_a_grant_that_follows_from_it() {
    for_every_departure(everything(), |queue, departure| {
        assert_eq!(departure.woken(queue), woken_one_by_one(queue, departure), "{departure:?} from {queue:?}");
    });
}

#[test]
fn contenders_without_a_notice_still_listen_for_the_same_event() {
    for_every_departure(everything(), |queue, departure| {
        let woken = departure.woken(queue);
        let (after, before) = departure.apply(queue);
        for (position, was) in before.iter().enumerate().filter(|(_, was)| !woken.contains(was)) {
            let condition = wake_condition(&after, position).map(|condition| match condition {
                WakeOn::Departure(at) => WakeOn::Departure(before[at]),
                WakeOn::GrantOrDeparture(at) => WakeOn::GrantOrDeparture(before[at]),
                WakeOn::AnyDepartureAhead => WakeOn::AnyDepartureAhead,
            });
            assert_eq!(condition, wake_condition(queue, *was), "{was} of {queue:?} after {departure:?}");
        }
    });
}

#[test]
fn a_departing_holder_wakes_at_most_one_more_than_it_lets_in() {
    for_every_departure(everything(), |queue, departure| {
        if departure.position < granted(queue) {
            let (woken, let_in) = (departure.woken(queue).len(), newly_granted(queue, departure).len());
            assert!(woken <= let_in + 1, "{woken} woken, {let_in} let in: {departure:?} from {queue:?}");
        }
    });
}

#[test]
fn a_departing_waiter_wakes_whom_it_lets_in_or_the_readers_directly_behind_it_or_one() {
    for_every_departure(everything(), |queue, departure| {
        let behind = &queue[departure.position + 1..];
        let readers = match queue[departure.position] {
            Claim::WRITER => behind.iter().take_while(|claim| claim.is_reader()).count(),
            _ => 0,
        };
        if departure.position >= granted(queue) {
            let (woken, let_in) = (departure.woken(queue).len(), newly_granted(queue, departure).len());
            assert!(woken <= readers.max(let_in + 1), "{woken} woken, {let_in} let in: {departure:?} from {queue:?}");
        }
    });
}

#[test]
fn mixed_capacities_are_a_conflict_and_never_granted_together() {
    let claims = [Claim::MUTEX, Claim::READER, Claim::WRITER, Claim::new(1, 2).unwrap(), Claim::new(2, 2).unwrap()];
    for queue in every_queue(&claims, 5) {
        for (position, mine) in queue.iter().enumerate() {
            let other = queue[..position].iter().find(|claim| claim.capacity() != mine.capacity());
            let admission = admits(queue[..position].iter().copied(), *mine);
            assert_eq!(admission == Admission::Conflict(*other.unwrap_or(mine)), other.is_some(), "{queue:?}");
        }
        let holders = &queue[..granted(&queue)];
        assert!(holders.iter().all(|claim| claim.capacity() == queue[0].capacity()), "{queue:?}");
        assert_eq!(admitted(&queue).iter().filter(|admitted| **admitted).count(), holders.len(), "{queue:?}");
    }
}

#[test]
fn claims_to_nothing_or_to_more_than_there_is_are_refused() {
    for (weight, capacity) in [(0, 0), (0, 1), (2, 1), (u32::MAX, u32::MAX - 1)] {
        assert!(Claim::new(weight, capacity).is_err(), "{weight} of {capacity}");
    }
}

#[test]
fn each_kind_of_waiter_has_the_wake_condition_of_the_table() {
    let permit = |weight| Claim::new(weight, 3).unwrap();
    let (reader, writer) = (Claim::READER, Claim::WRITER);
    let mutexes = [Claim::MUTEX; 3];
    assert_eq!(wake_condition(&mutexes, 2), Some(WakeOn::Departure(1)));
    assert_eq!(wake_condition(&[reader, reader, writer, reader, reader], 2), Some(WakeOn::Departure(1)));
    assert_eq!(wake_condition(&[reader, reader, writer, reader, reader], 4), Some(WakeOn::Departure(2)));
    assert_eq!(wake_condition(&[permit(2), permit(1), permit(1), permit(1)], 2), Some(WakeOn::AnyDepartureAhead));
    assert_eq!(wake_condition(&[permit(2), permit(1), permit(1), permit(1)], 3), Some(WakeOn::GrantOrDeparture(2)));
    assert_eq!(wake_condition(&[permit(2), permit(1), permit(1), permit(1)], 1), None);
}
