//! Requests that made no node when they were looked for, and may make it after all.
//!
//! A server that stood still with a create unread, was left, and was said hello to again can take the session back when it goes
//! on, and apply that create. Its node is of a session that lives and of no place: it keeps others waiting, and nobody leaves it. So
//! a request that was looked for in vain is looked for again, with the renewals that follow. As long as every request is answered
//! there are none, and nothing is asked.

use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;

use futures_util::future;
use futures_util::task::AtomicWaker;

use super::layout::request_of;
use super::session::Core;
use super::table::Nodes;
use crate::name::Name;
use crate::store::RequestId;

/// With how many renewals a request is looked for again: by default with those of two ttl. A server that stands still for longer has
/// been given up by its leader, and takes nobody's session when it goes on.
const LOOKS: u32 = 12;

/// So many queues are listed with one renewal, at most. The others have their turn with the next ones.
const AT_ONCE: usize = 64;

/// The requests of one session that are in doubt.
#[derive(Default)]
pub(super) struct Doubts {
    inner: Mutex<Inner>,
    is_due: AtomicBool,
    listener: AtomicWaker,
}

#[derive(Default)]
struct Inner {
    by_name: HashMap<Name, Doubt>,
    /// Whose queue is listed next.
    turns: VecDeque<Name>,
}

/// Those of one name.
#[derive(Default)]
struct Doubt {
    requests: HashSet<RequestId>,
    /// How many looks are left since the last of them.
    looks: u32,
}

impl Doubts {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing of the request is in the store, and something may be later.
    pub(super) fn note(&self, name: &Name, id: RequestId) {
        let Inner { by_name, turns } = &mut *self.lock();
        let doubt = match by_name.entry(name.clone()) {
            Slot::Occupied(slot) => slot.into_mut(),
            Slot::Vacant(slot) => {
                turns.push_back(name.clone());
                slot.insert(Doubt::default())
            }
        };
        doubt.looks = LOOKS;
        doubt.requests.insert(id);
    }

    /// A renewal is sent: it is time to look.
    pub(super) fn renewed(&self) {
        if !self.lock().turns.is_empty() {
            self.is_due.store(true, Ordering::Release);
            self.listener.wake();
        }
    }

    /// Whether it is time to look; if not, whoever asks is woken when it is.
    pub(super) fn is_due(&self, cx: &Context<'_>) -> bool {
        self.listener.register(cx.waker());
        self.is_due.swap(false, Ordering::AcqRel)
    }

    /// The queues to list now.
    fn take(&self) -> Vec<Name> {
        let Inner { by_name, turns } = &mut *self.lock();
        let count = turns.len().min(AT_ONCE);
        let mut taken: Vec<Name> = turns.drain(..count).collect();
        taken.retain(|name| match by_name.get_mut(name) {
            Some(doubt) if doubt.looks > 0 => {
                doubt.looks -= 1;
                true
            }
            _ => {
                by_name.remove(name);
                false
            }
        });
        turns.extend(taken.iter().cloned());
        taken
    }

    fn has(&self, name: &Name, id: RequestId) -> bool {
        self.lock().by_name.get(name).is_some_and(|doubt| doubt.requests.contains(&id))
    }
}

impl Core {
    /// Looks for the nodes of requests that are in doubt, and deletes them. What fails is left to the next look.
    pub(super) async fn resolve_doubts(self: Arc<Self>) {
        let names = self.doubts.take();
        future::join_all(names.iter().map(|name| self.resolve_doubts_about(name))).await;
    }

    async fn resolve_doubts_about(&self, name: &Name) {
        let Ok(home) = self.config.home(name) else { return };
        let Ok((children, _)) = self.client.get_children(home.parent()).await else { return };
        for child in children.iter().filter(|child| self.doubts.has(name, request_of(child))) {
            let path = home.child(child);
            let is_stray = || self.is_stray(name, request_of(child), &path);
            if !is_stray() {
                continue;
            }
            let Ok(Some(stat)) = self.client.exists(&path).await else { continue };
            // Asked again: from here on, whoever enters with this request and looks for its node does so after the deletion.
            if stat.ephemeral_owner == self.id && is_stray() {
                tracing::debug!(path, "a request took effect after it was given up");
                let _ = self.delete("look for a request", &path).await;
            }
        }
    }

    /// Whether no place has this node, or will have it.
    fn is_stray(&self, name: &Name, id: RequestId, path: &str) -> bool {
        match self.table.nodes(id) {
            None => true,
            Some(Nodes::Placed(node, lighter)) => {
                let is_at = |node| self.path(name, id, node).is_ok_and(|known| known == path);
                ![Some(node), lighter].into_iter().flatten().any(is_at)
            }
            // Who enters or withdraws it looks for its node, and may keep it.
            Some(Nodes::Doubtful(_) | Nodes::Gone) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Name {
        Name::new(format!("job-{number}")).unwrap()
    }

    #[test]
    fn a_request_in_doubt_is_looked_for_with_twelve_renewals_and_then_forgotten() {
        let (doubts, id) = (Doubts::default(), RequestId { client: 1, number: 1 });
        doubts.note(&name(1), id);
        for _ in 0..LOOKS {
            assert_eq!(doubts.take(), [name(1)]);
            assert!(doubts.has(&name(1), id));
        }
        assert!(doubts.take().is_empty() && !doubts.has(&name(1), id));
    }

    #[test]
    fn queues_beyond_those_that_are_listed_at_once_have_their_turn() {
        let (doubts, count) = (Doubts::default(), 3 * AT_ONCE);
        (0..count).for_each(|at| doubts.note(&name(at), RequestId { client: 1, number: 1 }));
        let seen: HashSet<Name> = (0..3).flat_map(|_| doubts.take()).collect();
        assert_eq!(seen.len(), count);
    }
}
