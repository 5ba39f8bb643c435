//! Contenders of other clients: the client and its kind of lock, and whether they wait for contenders ahead.
//!
//! Each client looks for the node names of its own family and skips all others, so two clients may hold one lock. Each client's behaviour
//! was recorded with the real clients: `interop/who-waits-zookeeper.md`.

use super::dialect::{LOCK, READ, RLOCK, WRIT};
use super::layout::{QueueNode, head_of, leading_id, ours};
use crate::store::{Foreign, ForeignLock, Waits};

/// The text before a node's number, by which a client of a family finds the others. Our permits, and keys under one parent, have none.
const MARKS: [&str; 6] = ["lock-", READ, WRIT, LOCK, RLOCK, ""];

/// Which of [`MARKS`] a node has.
fn mark_of(node: &str) -> usize {
    let head = head_of(node).unwrap_or(node);
    MARKS.iter().position(|mark| head.ends_with(mark)).unwrap_or_default()
}

/// A client and its kind of lock, by the names of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Ours,
    CuratorMutex,
    CuratorReadWrite,
    GoZk,
    KazooLock,
    KazooReader,
    ZkLock,
    Plain,
}

impl Family {
    fn of(node: &str, one_parent: bool) -> Self {
        let mark = MARKS[mark_of(node)];
        let (id, has_mark) = node.strip_prefix("_c_").map_or((node, false), |id| (id, true));
        let is_dashed = id.as_bytes().get(8) == Some(&b'-');
        match leading_id(id) {
            Some(_) if ours(id).is_some() => Self::Ours,
            Some(_) if one_parent && has_mark => Self::ZkLock,
            _ if one_parent => Self::Plain,
            _ if [READ, WRIT].contains(&mark) => Self::CuratorReadWrite,
            _ if mark == RLOCK => Self::KazooReader,
            _ if mark == LOCK => Self::KazooLock,
            Some(_) if has_mark && is_dashed => Self::CuratorMutex,
            Some(_) if has_mark => Self::GoZk,
            _ => Self::Plain,
        }
    }

    /// The usual name of the client or its recipe; `None` for a fencelock's.
    const fn what(self) -> Option<&'static str> {
        match self {
            Self::Ours => None,
            Self::CuratorMutex => Some("Curator InterProcessMutex"),
            Self::CuratorReadWrite => Some("Curator InterProcessReadWriteLock"),
            Self::GoZk => Some("go-zk Lock"),
            Self::KazooLock => Some("kazoo Lock or WriteLock"),
            Self::KazooReader => Some("kazoo ReadLock"),
            Self::ZkLock => Some("zk-lock"),
            Self::Plain => Some("lock by a recipe of its own"),
        }
    }

    /// Whether a client of this family waits for a node ahead with this mark.
    fn heeds(self, mark: &str) -> Waits {
        match (self, mark) {
            (Self::Ours | Self::GoZk | Self::ZkLock, _)
            | (Self::CuratorMutex, "lock-")
            | (Self::CuratorReadWrite, READ | WRIT)
            | (Self::KazooLock | Self::KazooReader, LOCK) => Waits::Yes,
            // kazoo's caller passes further names to look for, and there are many recipes.
            (Self::KazooLock | Self::KazooReader | Self::Plain, _) => Waits::Perhaps,
            (Self::CuratorMutex | Self::CuratorReadWrite, _) => Waits::No,
        }
    }
}

/// The kind of each contender of `line`, front first, that another client made.
pub(super) fn foreign(line: &[(QueueNode, String)], one_parent: bool) -> Vec<Option<Foreign>> {
    // For each mark, the number of nodes ahead: all of them, and the ones that are no readers.
    let mut ahead = [(0_usize, 0_usize); MARKS.len()];
    line.iter()
        .map(|(ticket, node)| {
            let family = Family::of(node, one_parent);
            let is_reader = ticket.claim.is_reader();
            let in_its_way = ahead
                .iter()
                .zip(MARKS)
                .filter(|((contenders, writers), _)| *(if is_reader { writers } else { contenders }) > 0);
            // The contender waits if its client waits for one of these marks, and holds at once if its client skips all.
            let waits = in_its_way.map(|(_, mark)| family.heeds(mark)).max();
            let (contenders, writers) = &mut ahead[mark_of(node)];
            *contenders += 1;
            *writers += usize::from(!is_reader);
            family.what().map(|what| Foreign { what, waits: waits.unwrap_or(Waits::Yes) })
        })
        .collect()
}

/// Whether the text in the node is the client's identity.
pub(super) fn is_kazoo(foreign: Foreign) -> bool {
    [Family::KazooLock, Family::KazooReader].iter().any(|family| family.what() == Some(foreign.what))
}

/// The contenders that may hold the lock together with the one at its head, by kind.
pub(super) fn foreign_locks(foreign: &[Option<Foreign>]) -> Vec<ForeignLock> {
    let mut found: Vec<ForeignLock> = Vec::new();
    for Foreign { what, waits } in foreign.iter().flatten().filter(|foreign| foreign.waits != Waits::Yes) {
        match found.iter_mut().find(|lock| lock.what == *what && lock.waits == *waits) {
            Some(lock) => lock.contenders += 1,
            None => found.push(ForeignLock { what, contenders: 1, waits: *waits }),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::dialect::DIALECTS;
    use super::super::queue_view;
    use super::*;

    /// A node of each family, in the order in which the tables name them.
    fn node(of: &str, number: i64) -> String {
        let (dashed, plain) = ("fb230995-c2bc-4a6c-98b5-6f506fd9afae", "94b6e5cf49364b1f8706ee06e5d07c35");
        let head = match of {
            "ours" => "_c_a0000000-0000-0005-0123-456789abcdef-lock-".to_owned(),
            "our writer" => "_c_b0000000-0000-0005-0123-456789abcdef-__WRIT__".to_owned(),
            "our permit" => "_c_c0000000000000050123456789abcdef-__PERM__2of5__".to_owned(),
            "our kazoo" => "a0000000000000050123456789abcdef__lock__".to_owned(),
            "curator" => format!("_c_{dashed}-lock-"),
            "curator writer" => format!("_c_{dashed}-__WRIT__"),
            "curator reader" => format!("_c_{dashed}-__READ__"),
            "go-zk" => format!("_c_{plain}-lock-"),
            "kazoo" => format!("{plain}__lock__"),
            "kazoo reader" => format!("{plain}__rlock__"),
            _ => "lock-".to_owned(),
        };
        format!("{head}{number:010}")
    }

    /// Whether `second` waits for `first`, which is ahead of it.
    fn waits(first: &str, second: &str) -> Waits {
        let nodes = vec![node(first, 1), node(second, 2)];
        let layout = DIALECTS[0].layout_of(&nodes);
        let (line, others) = queue_view::line(layout, "", nodes);
        assert!(others.is_empty(), "{others:?}");
        foreign(&line, false)[1].map_or(Waits::Yes, |foreign| foreign.waits)
    }

    #[test]
    fn a_contender_that_holds_too_by_the_tables_is_not_taken_for_a_waiter() {
        for (first, second, expected) in [
            ("ours", "ours", Waits::Yes),
            ("ours", "curator", Waits::Yes),
            ("ours", "go-zk", Waits::Yes),
            ("ours", "curator writer", Waits::No),
            ("ours", "curator reader", Waits::No),
            ("ours", "kazoo", Waits::Perhaps),
            ("ours", "kazoo reader", Waits::Perhaps),
            ("ours", "plain", Waits::Perhaps),
            ("our kazoo", "curator", Waits::No),
            ("our kazoo", "curator writer", Waits::No),
            ("our kazoo", "kazoo", Waits::Yes),
            ("our kazoo", "kazoo reader", Waits::Yes),
            ("our kazoo", "go-zk", Waits::Yes),
            ("our writer", "curator writer", Waits::Yes),
            ("our writer", "curator reader", Waits::Yes),
            ("our writer", "curator", Waits::No),
            ("our writer", "kazoo", Waits::Perhaps),
            ("our permit", "curator", Waits::No),
            ("our permit", "kazoo", Waits::Perhaps),
            ("our permit", "go-zk", Waits::Yes),
            ("curator", "curator writer", Waits::No),
            ("curator", "kazoo", Waits::Perhaps),
            ("kazoo", "curator", Waits::No),
            ("curator reader", "curator reader", Waits::Yes),
            ("kazoo", "ours", Waits::Yes),
        ] {
            assert_eq!(waits(first, second), expected, "{second} behind {first}");
        }
    }

    #[test]
    fn a_contender_that_waits_for_any_place_ahead_is_a_waiter() {
        let nodes = ["ours", "curator writer", "curator writer"];
        let nodes = nodes.iter().zip(1..).map(|(of, number)| node(of, number)).collect();
        let (line, _) = queue_view::line(DIALECTS[0].mutex(), "", nodes);
        let seen = foreign(&line, false);
        let waits = seen.iter().map(|foreign| foreign.map(|foreign| foreign.waits)).collect::<Vec<_>>();
        assert_eq!(waits, [None, Some(Waits::No), Some(Waits::Yes)]);
        let locks = foreign_locks(&seen);
        assert_eq!((locks.len(), locks[0].contenders, locks[0].waits), (1, 1, Waits::No));
    }

    #[test]
    fn under_one_parent_a_recipe_may_count_by_itself() {
        let nodes = [
            "_c_a0000000000000050123456789abcdef-job0000000001",
            "_c_9043e340783bca239f63470b2f5c0243-job0000000002",
            "job0000000003",
        ];
        let (line, _) =
            queue_view::line(DIALECTS[2].mutex(), "job", nodes.iter().map(|node| (*node).to_owned()).collect());
        let waits = |foreign: Option<Foreign>| foreign.map(|foreign| foreign.waits);
        let seen: Vec<_> = foreign(&line, true).into_iter().map(waits).collect();
        assert_eq!(seen, [None, Some(Waits::Yes), Some(Waits::Perhaps)]);
    }
}
