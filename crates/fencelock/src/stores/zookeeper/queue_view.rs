//! A queue as a listing of children shows it: who is granted, who waits, and for whom.

use std::cmp::Reverse;

use super::dialect::Kind;
use super::layout::{Layout, QueueNode, request_of};
use crate::queue::view::{granted_of, hears_behind};
use crate::queue::{Claim, Hear};
use crate::store::Ahead;

/// With more holders than this ahead, their parent is watched instead of each of them.
const WATCHES: usize = 64;

/// What a listing says about one of its nodes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum View {
    /// It is granted; the one behind waits to be told, if `tell`.
    Granted {
        tell: bool,
    },
    Waits(Waits),
    /// The node is not in the listing.
    Missing,
    /// Somebody ahead uses another kind of lock, or another capacity.
    Conflict(Claim),
    /// Another node has the same number: the counter of the parent is at its end.
    Twice,
}

/// What a waiter waits for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Waits {
    pub(super) hears: Hears,
    /// Of a mutex, the node ahead of the one that it hears of.
    pub(super) second: Option<Box<str>>,
    /// The departure that it hears of lets it in, with nothing asked.
    pub(super) is_next: bool,
    pub(super) ahead: Ahead,
}

impl Waits {
    /// A mutex's, behind so many of which `nearest` is the last.
    fn behind(nearest: &str, second: Option<&str>, count: usize) -> Self {
        let hears = Hears::Departure([nearest.into()].into());
        Self { hears, second: second.map(Into::into), is_next: count == 1, ahead: Ahead::of(count, 1) }
    }
}

/// What a waiter has to hear of.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hears {
    /// The departure of any of these nodes.
    Departure(Box<[Box<str>]>),
    /// The grant or the departure of this one.
    GrantOrDeparture(Box<str>),
    /// Any departure of too many.
    Children,
}

/// The queue of one key as a listing shows it, read once for all who look. Of two nodes with which one contender becomes lighter, the
/// heavier counts.
#[derive(Debug)]
pub(super) struct Sorted {
    /// Numbers, and where in the listing their nodes are; front first.
    contenders: Vec<(i64, usize)>,
    /// What each of them asks for.
    claims: Vec<Claim>,
    /// The first of them that believes in another capacity than the front does.
    mixed_from: usize,
    /// The lighter ones of two.
    lighter: Vec<(i64, usize)>,
    /// Those of another kind.
    aliens: Vec<(i64, Claim)>,
}

impl Sorted {
    pub(super) fn of(layout: Layout, key: &str, children: &[String]) -> Self {
        let (mut found, mut aliens) = (Vec::new(), Vec::new());
        for (at, child) in children.iter().enumerate() {
            match layout.read(child, key) {
                Some(ticket) if ticket.alien => aliens.push((ticket.number, ticket.claim)),
                Some(ticket) => found.push((ticket, (at, child.as_str()))),
                None => {}
            }
        }
        let lighter = put_in_order(layout, &mut found, |(_, child)| child);
        let at = |(ticket, (at, _)): &(QueueNode, (usize, &str))| (ticket.number, *at);
        let lighter = lighter.iter().map(at).collect();
        // kazoo's readers queue with mutexes as mutexes do.
        let claim_of = |ticket: &QueueNode| if layout.kind() == Kind::Mutex { Claim::MUTEX } else { ticket.claim };
        let claims: Vec<Claim> = found.iter().map(|(ticket, _)| claim_of(ticket)).collect();
        let differs = |claim: &Claim| claim.capacity() != claims[0].capacity();
        let mixed_from = claims.iter().position(differs).unwrap_or(claims.len());
        let contenders = found.iter().map(at).collect();
        Self { contenders, claims, mixed_from, lighter, aliens }
    }

    /// What the listing says about `mine`, a node with the number `number`.
    pub(super) fn view(&self, children: &[String], mine: &str, number: i64) -> View {
        let position = self.contenders.partition_point(|(other, _)| *other < number);
        let same = self.contenders[position..].iter().take_while(|(other, _)| *other == number);
        let same = same.chain(self.lighter.iter().filter(|(other, _)| *other == number));
        let (mut is_listed, mut is_twice) = (false, false);
        for node in same.map(|(_, at)| children[*at].as_str()) {
            is_listed |= node == mine;
            is_twice |= node != mine && request_of(node) != request_of(mine);
        }
        if !is_listed {
            return View::Missing;
        }
        match self.conflict(position, number) {
            Some(theirs) => View::Conflict(theirs),
            None if is_twice => View::Twice,
            None => self.judge(children, position),
        }
    }

    /// Somebody ahead of `position` with whom it cannot share a queue.
    fn conflict(&self, position: usize, number: i64) -> Option<Claim> {
        let alien = self.aliens.iter().find(|(other, _)| *other <= number).map(|(_, claim)| *claim);
        alien.or_else(|| {
            let differs = |other: &Claim| other.capacity() != self.claims[position].capacity();
            let first_two = [0, self.mixed_from].into_iter().filter(|at| *at < position);
            first_two.map(|at| self.claims[at]).find(differs)
        })
    }

    fn judge(&self, children: &[String], position: usize) -> View {
        let (claim, ahead) = (self.claims[position], self.claims[..position].iter().copied());
        let node = |at: usize| children[self.contenders[at].1].as_str();
        let waits = |hears, is_next| {
            let ahead = Ahead::of(position, granted_of(ahead.clone()));
            View::Waits(Waits { hears, second: None, is_next, ahead })
        };
        match hears_behind(ahead.clone(), claim) {
            None => {
                let is_part = |claim: &Claim| !claim.is_whole() && !claim.is_reader();
                View::Granted { tell: is_part(&claim) && self.claims.get(position + 1).is_some_and(is_part) }
            }
            Some(Hear::Departure(at)) if claim == Claim::MUTEX => {
                let is_pure = self.aliens.is_empty();
                let second = at.checked_sub(1).filter(|_| is_pure).map(node);
                let waits = Waits::behind(node(at), second, position);
                View::Waits(Waits { is_next: waits.is_next && is_pure, ..waits })
            }
            Some(Hear::Departure(at)) => {
                // Readers ahead keep no reader out. A writer that becomes one would keep a writer out.
                let only_readers_before = || self.claims[..at].iter().all(|claim| claim.is_reader());
                let is_next = claim.is_reader() && self.aliens.is_empty() && only_readers_before();
                waits(Hears::Departure([node(at).into()].into()), is_next)
            }
            Some(Hear::GrantOrDeparture(at)) => waits(Hears::GrantOrDeparture(node(at).into()), false),
            Some(Hear::AnyDepartureAhead) if position > WATCHES => waits(Hears::Children, false),
            Some(Hear::AnyDepartureAhead) => {
                waits(Hears::Departure((0..position).map(|at| node(at).into()).collect()), false)
            }
        }
    }
}

/// Sorts contenders, front first. Takes out the lighter one of two that are one contender on its way to less, and returns these.
fn put_in_order<T: Clone>(
    layout: Layout,
    contenders: &mut Vec<(QueueNode, T)>,
    node: impl Fn(&T) -> &str,
) -> Vec<(QueueNode, T)> {
    let key = |ticket: &QueueNode| (ticket.number, Reverse(ticket.claim.weight()));
    contenders.sort_by(|(a, a_node), (b, b_node)| (key(a), node(a_node)).cmp(&(key(b), node(b_node))));
    let is_one = |a: &T, b: &T| match layout.kind() {
        Kind::Mutex => false,
        // Curator's ids differ.
        Kind::ReadWrite => true,
        Kind::Semaphore => request_of(node(a)) == request_of(node(b)),
    };
    let mut lighter = Vec::new();
    contenders.dedup_by(|second, first| {
        let is_lighter = first.0.number == second.0.number && is_one(&first.1, &second.1);
        if is_lighter {
            lighter.push(second.clone());
        }
        is_lighter
    });
    lighter
}

/// The contenders among `children`, front first, and the rest.
pub(super) fn line(layout: Layout, key: &str, children: Vec<String>) -> (Vec<(QueueNode, String)>, Vec<String>) {
    let (mut contenders, mut others) = (Vec::new(), Vec::new());
    for child in children {
        match layout.read(&child, key) {
            Some(ticket) => contenders.push((ticket, child)),
            None => others.push(child),
        }
    }
    put_in_order(layout, &mut contenders, |node| node);
    others.sort_unstable();
    (contenders, others)
}

#[cfg(test)]
mod tests {
    use super::super::dialect::DIALECTS;
    use super::*;

    fn node(number: i64) -> String {
        format!("_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-lock-{number:010}")
    }

    fn look(children: &[String], number: i64) -> View {
        Sorted::of(DIALECTS[0].mutex(), "", children).view(children, &node(number), number)
    }

    #[test]
    fn the_two_nearest_ahead_are_found_in_whatever_order_they_are_listed() {
        for numbers in [[1, 5, 3, 9], [9, 5, 3, 1], [3, 1, 9, 5], [5, 9, 1, 3]] {
            let children: Vec<_> = numbers.iter().map(|number| node(*number)).chain(["x".to_owned()]).collect();
            let ahead = |nearest, second: Option<i64>, count| {
                View::Waits(Waits::behind(&node(nearest), second.map(node).as_deref(), count))
            };
            assert_eq!(look(&children, 1), View::Granted { tell: false });
            assert_eq!(look(&children, 3), ahead(1, None, 1));
            assert_eq!(look(&children, 5), ahead(3, Some(1), 2));
            assert_eq!(look(&children, 9), ahead(5, Some(3), 3));
            assert_eq!(look(&children, 4), View::Missing);
        }
    }

    #[test]
    fn a_node_that_kazoo_made_is_waited_for() {
        let kazoo = "94b6e5cf49364b1f8706ee06e5d07c35__lock__0000000000".to_owned();
        assert!(matches!(look(&[node(1), kazoo], 1), View::Waits(waits) if waits.is_next));
    }

    #[test]
    fn another_kind_of_lock_ahead_is_a_conflict_and_behind_it_is_not_trusted() {
        let writer = |number: i64| format!("_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-__WRIT__{number:010}");
        assert_eq!(look(&[node(1), writer(0)], 1), View::Conflict(Claim::WRITER));
        assert_eq!(look(&[node(1), writer(2)], 1), View::Granted { tell: false });
        assert!(matches!(look(&[node(1), node(0), writer(2)], 1), View::Waits(waits) if !waits.is_next));
    }

    #[test]
    fn a_number_given_twice_is_told() {
        let other = "_c_00000000-0000-0000-0000-000000000000-lock-0000000001".to_owned();
        assert_eq!(look(&[node(1), other], 1), View::Twice);
    }

    fn among(claim: Claim, number: i64) -> String {
        let id = crate::store::RequestId { client: 7, number: number.unsigned_abs() };
        let layout = DIALECTS[0].layout_for(claim).unwrap();
        super::super::layout::numbered(layout.prefix(id, claim, ""), number)
    }

    /// What the last of a queue is told whose first has the number 0.
    fn last_of(queue: &[Claim]) -> View {
        let children: Vec<_> = (0..).zip(queue).map(|(number, claim)| among(*claim, number)).collect();
        let layout = DIALECTS[0].layout_for(*queue.last().unwrap()).unwrap();
        Sorted::of(layout, "", &children).view(&children, children.last().unwrap(), queue.len() as i64 - 1)
    }

    #[test]
    fn a_reader_is_next_behind_one_writer_and_any_readers_and_a_writer_behind_nobody() {
        let (reader, writer) = (Claim::READER, Claim::WRITER);
        let is_next = |queue: &[Claim]| matches!(last_of(queue), View::Waits(waits) if waits.is_next);
        assert!(is_next(&[writer, reader]) && is_next(&[reader, writer, reader, reader]));
        assert!(
            !is_next(&[writer, reader, writer, reader]) && !is_next(&[writer, writer]) && !is_next(&[reader, writer])
        );
        assert_eq!(last_of(&[reader, reader]), View::Granted { tell: false });
    }

    #[test]
    fn a_permit_is_never_next_and_is_not_let_in_beside_another_capacity() {
        let of = |weight, capacity| Claim::new(weight, capacity).unwrap();
        let waits = |queue: &[Claim]| matches!(last_of(queue), View::Waits(waits) if !waits.is_next);
        assert!(waits(&[of(3, 3), of(1, 3)]) && waits(&[of(1, 3), of(3, 3)]) && waits(&[of(3, 3), of(1, 3), of(1, 3)]));
        assert_eq!(last_of(&[of(1, 3), of(1, 4)]), View::Conflict(of(1, 3)));
        assert_eq!(last_of(&[of(1, 4), of(1, 3), of(1, 4)]), View::Conflict(of(1, 3)));
    }

    #[test]
    fn a_writer_that_becomes_a_reader_counts_as_a_writer_until_its_node_is_gone() {
        let layout = DIALECTS[0].layout_for(Claim::READER).unwrap();
        let (light, heavy, mine) = (among(Claim::READER, 0), among(Claim::WRITER, 0), among(Claim::READER, 1));
        let told = |children: &[String]| Sorted::of(layout, "", children).view(children, &mine, 1);
        let both = told(&[light.clone(), mine.clone(), heavy.clone()]);
        assert!(
            matches!(both, View::Waits(waits) if waits.hears == Hears::Departure([heavy.into()].into()) && waits.is_next)
        );
        assert_eq!(told(&[mine.clone(), light]), View::Granted { tell: false });
        let other = "_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-__READ__0000000001".to_owned();
        assert_eq!(told(&[mine.clone(), other]), View::Twice);
    }
}
