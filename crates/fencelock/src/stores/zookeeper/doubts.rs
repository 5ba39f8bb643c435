//! Requests that made no node when they were looked for, and may make it after all.
//!
//! A server that stood still with a create unread, was left, and was said hello to again can take the session back when it goes
//! on, and apply that create. Its node is of a session that lives and of no place: it keeps others waiting, and nobody leaves it. So
//! a request that was looked for in vain is looked for again, with the renewals that follow. As long as every request is answered
//! there are none, and nothing is asked.
//!
//! A request is looked for among the nodes of our session, which the servers tell: a parent that somebody filled need not be listed.

use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Context;

use fencelock_zookeeper as wire;
use fencelock_zookeeper::ErrorKind as Wire;
use futures_util::future;
use futures_util::task::AtomicWaker;

use super::fault::fault;
use super::layout::{own_number, request_of};
use super::path::Home;
use super::session::Core;
use super::show::or_nothing;
use super::table::Nodes;
use crate::error::Result;
use crate::name::Name;
use crate::queue::Claim;
use crate::store::RequestId;

/// With how many renewals a request is looked for again: by default with those of two ttl. A server that stands still for longer has
/// been given up by its leader, and takes nobody's session when it goes on.
const LOOKS: u32 = 12;

/// So many queues are asked for with one renewal, at most. The others have their turn with the next ones.
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

    /// Whether it is time to look; if not, the caller is woken when it is.
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

/// How a session learns of its own nodes: servers of 3.6 tell them, and otherwise parents are listed.
#[derive(Default)]
pub(super) struct OwnNodes(Mutex<Asked>);

/// What became of the requests for them.
#[derive(Default)]
struct Asked {
    /// The server said that it does not know the request.
    is_refused: bool,
    /// The connections in a row that answered what was asked before such a request, and not the request, by their epochs.
    unanswered: Vec<u64>,
}

/// On so many connections in a row a request has to go without its answer before it is taken for one that the server does not know:
/// what stands before a server may hang up on such a request, or leave it out. One connection may go at any moment by itself.
const UNANSWERED: usize = 2;

impl OwnNodes {
    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn are_listed(&self) -> bool {
        let asked = self.asked();
        asked.is_refused || asked.unanswered.len() >= UNANSWERED
    }

    /// The request is on its way on this connection. It counts as one without an answer until the answer is there, for its caller may
    /// be gone by the time that it fails.
    fn are_asked_for(&self, epoch: u64) {
        let mut asked = self.asked();
        if !asked.unanswered.contains(&epoch) {
            asked.unanswered.push(epoch);
        }
    }

    fn are_told<T>(&self, epoch: u64, told: &wire::Result<T>) {
        let mut asked = self.asked();
        match told.as_ref().map_err(|error| (error.kind(), error.outcome_unknown(), error.code())) {
            Err((Wire::Unimplemented, ..)) => asked.is_refused = true,
            Ok(_) | Err((Wire::TooLarge, ..) | (.., Some(_))) => asked.unanswered.clear(),
            // It was never sent.
            Err((_, false, None)) => asked.unanswered.retain(|other| *other != epoch),
            Err((_, true, None)) => {}
        }
    }

    /// A list is asked for in their place. Unless it comes, the nodes themselves are asked for again: [`OwnNodes::were_listed`].
    fn begin_to_list(&self) -> Option<u64> {
        self.asked().unanswered.pop()
    }

    fn were_listed(&self, unanswered: Option<u64>) {
        self.asked().unanswered.extend(unanswered);
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
        let is_doubtful = |node: &str| {
            let id = request_of(node);
            self.doubts.has(name, id) && self.is_stray(name, id, &home.child(node))
        };
        let Ok(nodes) = self.own_nodes(&home, "", is_doubtful).await else { return };
        // Asked again: from here on, a contender that enters with this request and looks for its node does so after the deletion.
        for node in nodes.iter().filter(|node| is_doubtful(node)) {
            let path = home.child(node);
            tracing::debug!(path, "a request took effect after it was given up");
            let _ = self.delete("look for a request", &path).await;
        }
    }

    /// Deletes the node that a request made whose answer was lost, as [`Core::find`] finds it, and without listing its parent, which may be
    /// full of others' nodes.
    pub(super) async fn delete_own(&self, name: &Name, id: RequestId, claim: Claim) -> Result<()> {
        let home = self.config.home(name)?;
        let prefix = self.config.layout_for(claim)?.prefix(id, claim, home.key);
        let nodes = self.own_nodes(&home, &prefix, |node| own_number(node, &prefix).is_some()).await;
        let nodes = nodes.map_err(|error| fault("find request", &error))?;
        if nodes.is_empty() {
            self.doubts.note(name, id);
        }
        for node in nodes {
            self.delete("cancel", &home.child(&node)).await?;
        }
        Ok(())
    }

    /// The nodes of our session below the parent whose names begin so, of those that are asked for, once the server has caught up with
    /// its leader.
    async fn own_nodes(
        &self,
        home: &Home<'_>,
        beginning: &str,
        is_asked_for: impl Fn(&str) -> bool,
    ) -> wire::Result<Vec<String>> {
        // Not both at once: where this is answered and the next request is not, that is for the request's own sake.
        self.client.sync(home.parent()).await?;
        if self.own_nodes.are_listed() {
            return self.listed_own_nodes(home, |node| node.starts_with(beginning) && is_asked_for(node)).await;
        }
        let epoch = self.client.connection_epoch();
        self.own_nodes.are_asked_for(epoch);
        let told = self.client.own_ephemerals(&home.child(beginning)).await;
        self.own_nodes.are_told(epoch, &told);
        let above = home.child("");
        // Those of nested locks are deeper.
        let is_meant = |node: &&str| !node.contains('/') && is_asked_for(node);
        let nodes = |paths: Vec<String>| {
            paths.iter().filter_map(|path| path.strip_prefix(&above)).filter(is_meant).map(str::to_owned).collect()
        };
        told.map(nodes)
    }

    /// The same where the server does not tell them: of all children, those whose owner is our session.
    async fn listed_own_nodes(
        &self,
        home: &Home<'_>,
        is_asked_for: impl Fn(&str) -> bool,
    ) -> wire::Result<Vec<String>> {
        let unanswered = self.own_nodes.begin_to_list();
        let listed = or_nothing(self.client.get_children(home.parent()).await)?;
        self.own_nodes.were_listed(unanswered);
        let mut own = Vec::new();
        let (nodes, _) = listed.unwrap_or_default();
        for node in nodes.into_iter().filter(|node| is_asked_for(node)) {
            let stat = self.client.exists(&home.child(&node)).await?;
            own.extend(stat.filter(|stat| stat.ephemeral_owner == self.id).map(|_| node));
        }
        Ok(own)
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
