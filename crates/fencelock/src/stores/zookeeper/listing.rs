//! The children of a parent as a listing shows them, and how far the fronts of queues of mutexes have moved.

use std::collections::HashMap;

use fencelock_zookeeper as wire;
use futures_util::future;

use super::inspect::or_nothing;
use super::layout::Layout;
use super::queue_view::{self, View};
use crate::name::Name;
use crate::sync::Mutex;

/// The children of a parent. A listing that was sent behind a create on one connection shows the created node and every node before it.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) children: Vec<String>,
    /// The parent's own identity; numbers begin anew with each parent at the path.
    pub(super) parent: Parent,
}

/// The transaction that made a parent. Later parents have greater ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parent(i64);

impl Listing {
    pub(super) fn new(children: Vec<String>, parent: &wire::Stat) -> Self {
        Self { children, parent: Parent(parent.czxid) }
    }

    /// The children after a `sync`, with everything that was committed before. A parent that is not there has no children.
    pub(super) async fn synced(client: &wire::Client, parent: &str) -> wire::Result<Self> {
        let (synced, listed) = future::join(client.sync(parent), client.get_children(parent)).await;
        synced?;
        Ok(or_nothing(listed)?.map_or_else(Self::default, |(children, stat)| Self::new(children, &stat)))
    }

    /// The state of `mine`, one of the nodes with the number `number`, in the queue of `key`.
    pub(super) fn view(&self, layout: Layout, key: &str, mine: &str, number: i64) -> View {
        queue_view::view(layout, key, &self.children, mine, number)
    }
}

/// How many queues' fronts the session keeps. A missing front costs a listing at a hand-over.
const KEPT: usize = 1024;

/// The queues of mutexes in which this session saw a waiter granted: under that parent, all smaller numbers have gone for good.
#[derive(Debug, Default)]
pub(super) struct Fronts(Mutex<HashMap<Name, (Parent, i64)>>);

impl Fronts {
    /// All mutexes below `number` have gone for good under `parent`. A queue that was deleted as a whole begins anew under another parent.
    pub(super) fn begins_at(&self, name: &Name, parent: Parent, number: i64) {
        let mut fronts = self.0.lock();
        if fronts.len() >= KEPT && !fronts.contains_key(name) {
            fronts.clear();
        }
        let front = fronts.entry(name.clone()).or_insert((parent, number));
        *front = (*front).max((parent, number));
    }

    /// Whether no mutex is ahead of `number` under `parent`, as far as this session saw.
    pub(super) fn is_first(&self, name: &Name, parent: Parent, number: i64) -> bool {
        let fronts = self.0.lock();
        fronts.get(name).is_some_and(|(of, front)| *of == parent && number <= *front)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Name {
        Name::new(format!("job-{number}")).unwrap()
    }

    #[test]
    fn the_front_of_a_queue_is_not_believed_of_another_name_or_of_a_queue_that_began_anew() {
        let (fronts, old, new) = (Fronts::default(), Parent(7), Parent(8));
        fronts.begins_at(&name(1), old, 5);
        fronts.begins_at(&name(1), old, 3);
        assert!(fronts.is_first(&name(1), old, 5) && !fronts.is_first(&name(1), old, 6));
        assert!(!fronts.is_first(&name(2), old, 0) && !fronts.is_first(&name(1), new, 0));
        fronts.begins_at(&name(1), new, 2);
        fronts.begins_at(&name(1), old, 9);
        assert!(fronts.is_first(&name(1), new, 2) && !fronts.is_first(&name(1), new, 3));
        assert!(!fronts.is_first(&name(1), old, 0));
    }

    #[test]
    fn fronts_of_many_queues_take_bounded_memory() {
        let fronts = Fronts::default();
        (0..10 * KEPT).for_each(|number| fronts.begins_at(&name(number), Parent(1), 1));
        assert!(fronts.0.lock().len() <= KEPT);
        assert!(fronts.is_first(&name(10 * KEPT - 1), Parent(1), 1));
    }
}
