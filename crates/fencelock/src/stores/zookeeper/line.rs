//! Who is ahead, read off a listing of children.

use std::cmp::Reverse;

use super::layout::{Layout, Ticket};
use super::share;
use crate::queue::Claim;

/// What a listing says about one of its nodes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Nobody is ahead.
    First,
    /// Somebody is.
    Behind(Ahead),
    /// The node is not in the listing.
    Missing,
    /// Somebody ahead uses another kind of lock.
    Conflict(Claim),
    /// Another node has the same number: the counter of the parent is at its end.
    Twice,
}

/// Who is ahead of a waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ahead {
    /// The contender right ahead.
    pub(super) nearest: Box<str>,
    /// The one ahead of that.
    pub(super) second: Option<Box<str>>,
    /// How many are ahead.
    pub(super) count: u32,
    /// Whether nobody in the parent uses another kind of lock, some of which may put a node ahead of one already there.
    pub(super) pure: bool,
}

/// The queue of one key as a listing shows it, read once for all who look.
#[derive(Debug)]
pub(super) struct Sorted {
    /// Numbers, and where in the listing their nodes are; front first.
    contenders: Vec<(i64, usize)>,
    /// Those of another kind.
    aliens: Vec<(i64, Claim)>,
}

impl Sorted {
    pub(super) fn of(layout: Layout, key: &str, children: &[String]) -> Self {
        let (mut contenders, mut aliens) = (Vec::new(), Vec::new());
        for (at, child) in children.iter().enumerate() {
            match layout.read(child, key) {
                Some(ticket) if ticket.alien => aliens.push((ticket.number, ticket.claim)),
                Some(ticket) => contenders.push((ticket.number, at)),
                None => {}
            }
        }
        contenders.sort_unstable();
        Self { contenders, aliens }
    }

    /// What the listing says about `mine`, a node with the number `number`.
    pub(super) fn view(&self, children: &[String], mine: &str, number: i64) -> View {
        let node = |(_, at): &(i64, usize)| children.get(*at).map_or("", String::as_str);
        let (ahead, rest) = self.contenders.split_at(self.contenders.partition_point(|(other, _)| *other < number));
        let same = &rest[..rest.partition_point(|(other, _)| *other == number)];
        if same.iter().any(|other| node(other) != mine) {
            return View::Twice;
        }
        let conflict = self.aliens.iter().find(|(other, _)| *other <= number);
        match (same, conflict, ahead) {
            ([], ..) => View::Missing,
            (_, Some((_, claim)), _) => View::Conflict(*claim),
            (_, None, []) => View::First,
            (_, None, [before @ .., nearest]) => View::Behind(Ahead {
                nearest: node(nearest).into(),
                second: before.last().map(|second| node(second).into()),
                count: u32::try_from(ahead.len()).unwrap_or(u32::MAX),
                pure: self.aliens.is_empty(),
            }),
        }
    }

    /// The nodes ahead of `mine`, front first; `None` when it is not in the listing, or when nodes of another kind are.
    pub(super) fn ahead<'a>(&self, children: &'a [String], mine: &str, number: i64) -> Option<Vec<&'a str>> {
        match self.view(children, mine, number) {
            View::First => Some(Vec::new()),
            View::Behind(ahead) if ahead.pure => {
                let ahead = self.contenders.iter().take_while(|(other, _)| *other < number);
                Some(ahead.filter_map(|(_, at)| children.get(*at)).map(String::as_str).collect())
            }
            _ => None,
        }
    }
}

/// The contenders among `children`, front first, and the rest.
pub(super) fn line(layout: Layout, key: &str, children: Vec<String>) -> (Vec<(Ticket, String)>, Vec<String>) {
    let mut contenders = Vec::new();
    let mut others = Vec::new();
    for child in children {
        match layout.read(&child, key) {
            Some(ticket) => contenders.push((ticket, child)),
            None => others.push(child),
        }
    }
    let key = |ticket: &Ticket| (ticket.number, Reverse(ticket.claim.weight()));
    contenders.sort_by(|(a, a_node), (b, b_node)| (key(a), a_node).cmp(&(key(b), b_node)));
    contenders.dedup_by(|(second, other), (first, node)| share::is_one(layout, (first, node), (second, other)));
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
                let second = second.map(|second| node(second).into());
                View::Behind(Ahead { nearest: node(nearest).into(), second, count, pure: true })
            };
            assert_eq!(look(&children, 1), View::First);
            assert_eq!(look(&children, 3), ahead(1, None, 1));
            assert_eq!(look(&children, 5), ahead(3, Some(1), 2));
            assert_eq!(look(&children, 9), ahead(5, Some(3), 3));
            assert_eq!(look(&children, 4), View::Missing);
        }
    }

    #[test]
    fn a_node_that_kazoo_made_is_waited_for() {
        let kazoo = "94b6e5cf49364b1f8706ee06e5d07c35__lock__0000000000".to_owned();
        assert!(matches!(look(&[node(1), kazoo], 1), View::Behind(ahead) if ahead.count == 1 && ahead.pure));
    }

    #[test]
    fn another_kind_of_lock_ahead_is_a_conflict_and_behind_it_is_not_trusted() {
        let writer = |number: i64| format!("_c_fb230995-c2bc-4a6c-98b5-6f506fd9afae-__WRIT__{number:010}");
        assert_eq!(look(&[node(1), writer(0)], 1), View::Conflict(Claim::WRITER));
        assert_eq!(look(&[node(1), writer(2)], 1), View::First);
        assert!(matches!(look(&[node(1), node(0), writer(2)], 1), View::Behind(ahead) if !ahead.pure));
    }

    #[test]
    fn a_number_given_twice_is_told() {
        let other = "_c_00000000-0000-0000-0000-000000000000-lock-0000000001".to_owned();
        assert_eq!(look(&[node(1), other], 1), View::Twice);
    }
}
