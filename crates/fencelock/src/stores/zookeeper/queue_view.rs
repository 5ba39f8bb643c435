//! A queue as a listing of children shows it: holders, waiters, and the nodes ahead for which each waiter waits.

use std::cmp::Reverse;

use super::dialect::Kind;
use super::layout::{Layout, QueueNode, request_of};
use crate::queue::view::{granted_of, wake_condition_behind};
use crate::queue::{Claim, WakeOn};
use crate::store::Ahead;

/// With more holders than this ahead, their parent is watched instead of each of them.
const WATCHES: usize = 64;

/// The standing of one node in a listing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum View {
    /// The node is granted; `tell` if the waiter behind waits for a mark.
    Granted {
        tell: bool,
    },
    Waits(WaitingView),
    /// The node is not in the listing.
    Missing,
    /// A contender ahead uses another kind of lock, or another capacity.
    Conflict(Claim),
    /// Another node has the same number: the parent's counter is used up.
    Twice,
}

/// The condition of a waiter's next step.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WaitingView {
    /// The nodes to watch, the farthest first, by their names; the parent has none. With a watch on the nearest node, the own node is watched, too.
    pub(super) watched: Vec<(Whose, Box<str>)>,
    /// The departure of the nearest contender is the grant, without a further request.
    pub(super) is_next: bool,
    pub(super) ahead: Ahead,
}

/// The node of a watch. In the order in which fired events count: our own node may have gone before the one ahead; then the order in which
/// the contenders ahead leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    Own,
    /// The node ahead of the nearest one, for a mutex.
    Second,
    /// The departure of this node may be the grant.
    Nearest,
    /// The node whose owner marks it when it is granted.
    Predecessor,
    /// The departure of this node requires a new listing.
    Ahead,
    Parent,
}

/// The queue of one key as a listing shows it. While a contender has two nodes (a downgrade), the heavier counts.
struct ListedQueue<'a> {
    /// Front first.
    contenders: Vec<(QueueNode, &'a str)>,
    /// The lighter nodes of contenders with two.
    lighter: Vec<(QueueNode, &'a str)>,
    /// Nodes of another kind of lock.
    aliens: Vec<QueueNode>,
}

/// The state of `mine`, a node with the number `number`, in the queue of `key`.
pub(super) fn view(layout: Layout, key: &str, children: &[String], mine: &str, number: i64) -> View {
    let read = |child: &'_ String| layout.read(child, key);
    let aliens = children.iter().filter_map(read).filter(|ticket| ticket.alien).collect();
    let found = children.iter().filter_map(|child| Some((layout.read(child, key)?, child.as_str())));
    let mut contenders: Vec<_> = found.filter(|(ticket, _)| !ticket.alien).collect();
    let lighter = put_in_order(layout, &mut contenders, |child| child);
    if layout.kind() == Kind::Mutex {
        // kazoo's readers queue with mutexes as mutexes do.
        contenders.iter_mut().for_each(|(ticket, _)| ticket.claim = Claim::MUTEX);
    }
    ListedQueue { contenders, lighter, aliens }.view(mine, number)
}

impl ListedQueue<'_> {
    fn view(&self, mine: &str, number: i64) -> View {
        let position = self.contenders.partition_point(|(other, _)| other.number < number);
        let same = self.contenders[position..].iter().chain(&self.lighter);
        let same = || same.clone().filter(|(other, _)| other.number == number).map(|(_, node)| *node);
        if same().all(|node| node != mine) {
            return View::Missing;
        }
        match self.conflict(position, number) {
            Some(theirs) => View::Conflict(theirs),
            None if same().any(|node| node != mine && request_of(node) != request_of(mine)) => View::Twice,
            None => self.judge(position),
        }
    }

    fn claims(&self) -> impl DoubleEndedIterator<Item = Claim> + ExactSizeIterator + Clone {
        self.contenders.iter().map(|(ticket, _)| ticket.claim)
    }

    /// The claim of a contender ahead of `position` that cannot share a queue with it.
    fn conflict(&self, position: usize, number: i64) -> Option<Claim> {
        let alien = self.aliens.iter().find(|other| other.number <= number).map(|other| other.claim);
        let differs = |other: &Claim| other.capacity() != self.contenders[position].0.claim.capacity();
        alien.or_else(|| self.claims().take(position).find(differs))
    }

    fn judge(&self, position: usize) -> View {
        let (claim, ahead) = (self.contenders[position].0.claim, self.claims().take(position));
        let node = |at: usize| self.contenders[at].1;
        let watch = |whose, at: usize| (whose, node(at).into());
        let waits = |watched, is_next| {
            let ahead = Ahead::of(position, granted_of(ahead.clone()));
            View::Waits(WaitingView { watched, is_next, ahead })
        };
        match wake_condition_behind(ahead.clone(), claim) {
            None => {
                let is_part = |claim: &Claim| !claim.is_whole() && !claim.is_reader();
                let next = self.claims().nth(position + 1);
                View::Granted { tell: is_part(&claim) && next.is_some_and(|next| is_part(&next)) }
            }
            Some(WakeOn::Departure(at)) if claim == Claim::MUTEX => {
                let is_pure = self.aliens.is_empty();
                let second = at.checked_sub(1).filter(|_| is_pure).map(|at| watch(Whose::Second, at));
                let watched = second.into_iter().chain([watch(Whose::Nearest, at)]).collect();
                View::Waits(WaitingView { watched, is_next: position == 1 && is_pure, ahead: Ahead::of(position, 1) })
            }
            Some(WakeOn::Departure(at)) => {
                // Readers ahead do not exclude a reader. A writer that becomes a reader would still exclude a writer.
                let only_readers_before = || self.claims().take(at).all(|claim| claim.is_reader());
                let is_next = claim.is_reader() && self.aliens.is_empty() && only_readers_before();
                waits(vec![watch(if is_next { Whose::Nearest } else { Whose::Ahead }, at)], is_next)
            }
            Some(WakeOn::GrantOrDeparture(at)) => waits(vec![watch(Whose::Predecessor, at)], false),
            Some(WakeOn::AnyDepartureAhead) if position > WATCHES => waits(vec![(Whose::Parent, "".into())], false),
            Some(WakeOn::AnyDepartureAhead) => waits((0..position).map(|at| watch(Whose::Ahead, at)).collect(), false),
        }
    }
}

/// Sorts contenders, front first. Takes out and returns the lighter one of two nodes that are one contender during a downgrade.
fn put_in_order<T: Clone>(
    layout: Layout,
    contenders: &mut Vec<(QueueNode, T)>,
    node: impl Fn(&T) -> &str,
) -> Vec<(QueueNode, T)> {
    let key = |ticket: &QueueNode| (ticket.number, Reverse(ticket.claim.weight()));
    contenders.sort_by(|(a, a_node), (b, b_node)| (key(a), node(a_node)).cmp(&(key(b), node(b_node))));
    let is_one = |a: &T, b: &T| match layout.kind() {
        Kind::Mutex => false,
        // Curator's two nodes have different ids.
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
        view(DIALECTS[0].mutex(), "", children, &node(number), number)
    }

    #[test]
    fn the_two_nearest_ahead_are_found_in_any_order_of_the_list() {
        for numbers in [[1, 5, 3, 9], [9, 5, 3, 1], [3, 1, 9, 5], [5, 9, 1, 3]] {
            let children: Vec<_> = numbers.iter().map(|number| node(*number)).chain(["x".to_owned()]).collect();
            let ahead = |nearest, second: Option<i64>, count| {
                let second = second.map(|second| (Whose::Second, node(second).into()));
                let watched = second.into_iter().chain([(Whose::Nearest, node(nearest).into())]).collect();
                View::Waits(WaitingView { watched, is_next: count == 1, ahead: Ahead::of(count, 1) })
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
    fn a_number_given_twice_is_reported() {
        let other = "_c_00000000-0000-0000-0000-000000000000-lock-0000000001".to_owned();
        assert_eq!(look(&[node(1), other], 1), View::Twice);
    }

    fn among(claim: Claim, number: i64) -> String {
        let id = crate::store::RequestId { client: 7, number: number.unsigned_abs() };
        let layout = DIALECTS[0].layout_for(claim).unwrap();
        super::super::layout::numbered(layout.prefix(id, claim, ""), number)
    }

    /// The view of the last in a queue whose first has the number 0.
    fn last_of(queue: &[Claim]) -> View {
        let children: Vec<_> = (0..).zip(queue).map(|(number, claim)| among(*claim, number)).collect();
        let layout = DIALECTS[0].layout_for(*queue.last().unwrap()).unwrap();
        view(layout, "", &children, children.last().unwrap(), queue.len() as i64 - 1)
    }

    #[test]
    fn a_reader_is_next_behind_one_writer_and_any_readers_and_a_writer_only_at_the_front() {
        let (reader, writer) = (Claim::READER, Claim::WRITER);
        let is_next = |queue: &[Claim]| matches!(last_of(queue), View::Waits(waits) if waits.is_next);
        assert!(is_next(&[writer, reader]) && is_next(&[reader, writer, reader, reader]));
        assert!(
            !is_next(&[writer, reader, writer, reader]) && !is_next(&[writer, writer]) && !is_next(&[reader, writer])
        );
        assert_eq!(last_of(&[reader, reader]), View::Granted { tell: false });
    }

    #[test]
    fn a_permit_is_never_next_and_is_not_let_in_with_another_capacity() {
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
        let view_of = |children: &[String]| view(layout, "", children, &mine, 1);
        let both = view_of(&[light.clone(), mine.clone(), heavy.clone()]);
        assert!(
            matches!(both, View::Waits(waits) if waits.watched == [(Whose::Nearest, heavy.into())] && waits.is_next)
        );
        assert_eq!(view_of(&[mine.clone(), light]), View::Granted { tell: false });
        let other = "_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-__READ__0000000001".to_owned();
        assert_eq!(view_of(&[mine.clone(), other]), View::Twice);
    }
}
