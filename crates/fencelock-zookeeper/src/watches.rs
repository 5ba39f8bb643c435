//! Watches: the watchers of each node, and their events.
//!
//! The path is kept once, however many watch it; a watch without an event takes about two hundred bytes with a path of seventy.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The event of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WatchEvent {
    /// The node was created.
    Created,
    /// The node was deleted. A fact, not a hint: this very node, the one that was there when the watch was set, is gone for ever.
    Deleted,
    /// The node's data was set.
    DataChanged,
    /// A child was created or deleted.
    ChildrenChanged,
    /// The session has ended: the watch will never fire.
    SessionOver,
}

impl WatchEvent {
    /// The event by its number on the wire.
    pub(crate) fn from_number(number: i32) -> Option<Self> {
        match number {
            1 => Some(Self::Created),
            2 => Some(Self::Deleted),
            3 => Some(Self::DataChanged),
            4 => Some(Self::ChildrenChanged),
            _ => None,
        }
    }
}

/// The kind of watch requested from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchKind {
    /// The data of a node that is there.
    Data,
    /// A node that is not there.
    Absent,
    /// The children of a node.
    Children,
}

impl WatchKind {
    fn is_fired_by(self, event: WatchEvent) -> bool {
        match event {
            WatchEvent::Created | WatchEvent::DataChanged => self != Self::Children,
            WatchEvent::ChildrenChanged => self == Self::Children,
            WatchEvent::Deleted | WatchEvent::SessionOver => true,
        }
    }
}

/// No further slot in a chain.
const END: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(crate) struct WatchTable {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The first slot of each path that is watched; the path's further slots follow in a chain.
    by_path: HashMap<Arc<str>, u32>,
    slots: Vec<WatchSlot>,
    free: Vec<u32>,
    over: bool,
}

#[derive(Debug)]
struct WatchSlot {
    kind: WatchKind,
    event: Option<WatchEvent>,
    next: u32,
    waker: Option<Waker>,
}

/// Receives one event of one node. The watch survives reconnects: events missed meanwhile are reported after them. Dropping it ends it.
///
/// The watch is set only when the read that asked for it succeeded: a read that found no node leaves no watch.
/// [`Client::exists_watched`](crate::Client::exists_watched) succeeds without a node, too.
pub struct Watch {
    table: Arc<WatchTable>,
    path: Arc<str>,
    slot: u32,
    chroot: u32,
}

impl WatchTable {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to watch; `chroot` is how much of the path the user does not see.
    pub(crate) fn register(self: &Arc<Self>, path: &str, kind: WatchKind, chroot: usize) -> Watch {
        let mut inner = self.lock();
        let path = inner.by_path.get_key_value(path).map_or_else(|| Arc::from(path), |(path, _)| Arc::clone(path));
        let event = inner.over.then_some(WatchEvent::SessionOver);
        let next = inner.by_path.get(&path).copied().unwrap_or(END);
        let slot = inner.put(WatchSlot { kind, event, next, waker: None });
        if event.is_none() {
            inner.by_path.insert(Arc::clone(&path), slot);
        }
        drop(inner);
        Watch { table: Arc::clone(self), path, slot, chroot: u32::try_from(chroot).unwrap_or(0) }
    }

    /// Notifies every watch of `path` that waits for such an event.
    pub(crate) fn tell(&self, path: &str, event: WatchEvent) {
        let wakers = self.lock().tell(path, event);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Notifies every watch that the session has ended, now and for ever.
    pub(crate) fn end(&self) {
        let mut inner = self.lock();
        inner.over = true;
        let paths: Vec<Arc<str>> = inner.by_path.keys().cloned().collect();
        let wakers: Vec<Waker> = paths.iter().flat_map(|path| inner.tell(path, WatchEvent::SessionOver)).collect();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Calls `each` with every path watched, and how.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&Arc<str>, WatchKind)) {
        let inner = self.lock();
        for (path, first) in &inner.by_path {
            let mut seen = [false; 3];
            let mut at = *first;
            while let Some(slot) = inner.slots.get(at as usize) {
                if !std::mem::replace(&mut seen[slot.kind as usize], true) {
                    each(path, slot.kind);
                }
                at = slot.next;
            }
        }
    }

    /// How many watches are set and have not fired.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let mut count = 0;
        self.for_each(|_, _| count += 1);
        count
    }
}

impl Inner {
    fn put(&mut self, slot: WatchSlot) -> u32 {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = slot;
            return index;
        }
        self.slots.push(slot);
        u32::try_from(self.slots.len() - 1).unwrap_or(END)
    }

    /// Takes the watches that wait for `event` off their chain, and returns the wakers.
    fn tell(&mut self, path: &str, event: WatchEvent) -> Vec<Waker> {
        let mut wakers = Vec::new();
        self.retain(path, |_, slot| {
            if !slot.kind.is_fired_by(event) {
                return true;
            }
            slot.event = Some(event);
            wakers.extend(slot.waker.take());
            false
        });
        wakers
    }

    /// Keeps on the chain of `path` the slots that `keep` says, and the path only if one remains.
    fn retain(&mut self, path: &str, mut keep: impl FnMut(u32, &mut WatchSlot) -> bool) {
        let Some(first) = self.by_path.get(path).copied() else { return };
        let (mut kept, mut at) = (END, first);
        while at != END {
            let slot = &mut self.slots[at as usize];
            let next = slot.next;
            if keep(at, slot) {
                slot.next = kept;
                kept = at;
            }
            at = next;
        }
        if kept == END {
            self.by_path.remove(path);
            self.shrink();
        } else if let Some(first) = self.by_path.get_mut(path) {
            *first = kept;
        }
    }

    /// Gives memory back after a crowd has gone.
    fn shrink(&mut self) {
        const WORTH_IT: usize = 1024;
        if self.by_path.capacity() > WORTH_IT && self.by_path.len() < self.by_path.capacity() / 8 {
            self.by_path.shrink_to(self.by_path.len() * 2);
        }
        if self.by_path.is_empty() && self.free.len() == self.slots.len() && self.slots.capacity() > WORTH_IT {
            self.slots = Vec::new();
            self.free = Vec::new();
        }
    }

    /// Gives the slot of a watch that was dropped back.
    fn remove(&mut self, path: &str, index: u32) -> Option<Waker> {
        let slot = &mut self.slots[index as usize];
        let waker = slot.waker.take();
        if slot.event.is_none() {
            self.retain(path, |at, _| at != index);
        }
        self.free.push(index);
        self.shrink();
        waker
    }
}

impl Watch {
    /// Waits for the event; returns at once when it has arrived already.
    ///
    /// # Cancel safety
    /// May be dropped and called again: the event is kept.
    pub async fn fired(&mut self) -> WatchEvent {
        poll_fn(|context| self.poll_fired(context)).await
    }

    /// As [`Watch::fired`], as a function to poll. Only the newest waker is kept.
    pub fn poll_fired(&mut self, context: &mut Context<'_>) -> Poll<WatchEvent> {
        let mut inner = self.table.lock();
        let slot = &mut inner.slots[self.slot as usize];
        if let Some(event) = slot.event {
            return Poll::Ready(event);
        }
        // The old waker is dropped outside the lock: the waker may belong to a future that owns a watch.
        let old = match &slot.waker {
            Some(waker) if waker.will_wake(context.waker()) => None,
            _ => slot.waker.replace(context.waker().clone()),
        };
        drop(inner);
        drop(old);
        Poll::Pending
    }

    /// The event so far, without waiting.
    #[must_use]
    pub fn event(&self) -> Option<WatchEvent> {
        self.table.lock().slots[self.slot as usize].event
    }

    /// The node, relative to the chroot.
    #[must_use]
    pub fn path(&self) -> &str {
        match self.path.get(self.chroot as usize..) {
            Some("") | None => "/",
            Some(path) => path,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let waker = self.table.lock().remove(&self.path, self.slot);
        drop(waker);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("path", &self.path()).field("event", &self.event()).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dropped_and_fired_watches_leave_nothing_behind() {
        let table = Arc::new(WatchTable::default());
        let mut watches: Vec<_> =
            (0..5000).map(|n| table.register(&format!("/{}", n / 2), WatchKind::Data, 0)).collect();
        table.tell("/7", WatchEvent::Deleted);
        assert_eq!(watches[14].fired().now_or_never(), Some(WatchEvent::Deleted));
        watches.clear();
        assert_eq!(table.len(), 0);
        let inner = table.lock();
        assert!(inner.by_path.capacity() < 2048 && inner.slots.capacity() == 0, "the room is given back");
    }

    #[test]
    fn every_watch_is_notified_of_the_end() {
        let table = Arc::new(WatchTable::default());
        let mut before = table.register("/a", WatchKind::Children, 0);
        table.end();
        let mut after = table.register("/a", WatchKind::Data, 0);
        assert_eq!(before.fired().now_or_never(), Some(WatchEvent::SessionOver));
        assert_eq!(after.fired().now_or_never(), Some(WatchEvent::SessionOver));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Register(u8, WatchKind),
        Drop(usize),
        Tell(u8, WatchEvent),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let kind = prop_oneof![Just(WatchKind::Data), Just(WatchKind::Absent), Just(WatchKind::Children)];
        let event = (1..5).prop_map(|number| WatchEvent::from_number(number).unwrap());
        let step = prop_oneof![
            (0_u8..4, kind).prop_map(|(path, kind)| Step::Register(path, kind)),
            (0_usize..20).prop_map(Step::Drop),
            (0_u8..4, event).prop_map(|(path, event)| Step::Tell(path, event)),
        ];
        proptest::collection::vec(step, 0..100)
    }

    proptest! {
        #[test]
        fn the_table_agrees_with_a_plain_list(steps in steps()) {
            let table = Arc::new(WatchTable::default());
            let mut list: Vec<(u8, WatchKind, Option<WatchEvent>, Watch)> = Vec::new();
            for step in steps {
                match step {
                    Step::Register(path, kind) => {
                        list.push((path, kind, None, table.register(&format!("/{path}"), kind, 0)));
                    }
                    Step::Drop(index) if index < list.len() => drop(list.swap_remove(index)),
                    Step::Drop(_) => {}
                    Step::Tell(path, event) => {
                        table.tell(&format!("/{path}"), event);
                        for (_, _, fired, _) in list.iter_mut().filter(|(at, kind, ..)| *at == path && kind.is_fired_by(event)) {
                            fired.get_or_insert(event);
                        }
                    }
                }
                for (_, _, fired, watch) in &list {
                    prop_assert_eq!(*fired, watch.event());
                }
            }
        }
    }
}
