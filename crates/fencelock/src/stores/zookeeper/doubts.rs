//! Requests whose node a search did not find, and that may still create it.
//!
//! A server may stand still with a create unread, be left by the client, and receive its hello again. When the server resumes, it can take
//! the session back and apply that create. Its node then belongs to a live session but to no place: the node blocks other contenders, and
//! no place deletes it. So the renewals that follow repeat a search that found nothing. While every request is answered, nothing is in
//! doubt and nothing is asked.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::task::Context;

use futures_util::future;

use super::layout::request_of;
use super::places::RequestState;
use super::session::ZooKeeperSession;
use crate::kit::bell::Bell;
use crate::name::Name;
use crate::store::RequestId;
use crate::sync::Mutex;

/// The number of renewals that repeat the search for a request: by default the renewals of two ttl. After a longer standstill the leader
/// has given up the server, which then takes no session when it resumes.
const LOOKS: u32 = 12;

/// The most names that one renewal searches. The next renewals search the remaining ones.
const AT_ONCE: usize = 64;

/// The requests of one session that are in doubt.
#[derive(Default)]
pub(super) struct Doubts {
    /// The names in the order of the next search.
    waiting: Mutex<VecDeque<Doubt>>,
    /// Rung when a search is due.
    bell: Bell,
}

struct Doubt {
    name: Name,
    request: RequestId,
    /// How many searches are left.
    looks: u32,
}

impl Doubts {
    /// The store has no node of the request now, and may have one later.
    pub(super) fn note(&self, name: &Name, request: RequestId) {
        self.waiting.lock().push_back(Doubt { name: name.clone(), request, looks: LOOKS });
    }

    /// A renewal is sent, so a search is due.
    pub(super) fn renewed(&self) {
        if !self.waiting.lock().is_empty() {
            self.bell.ring();
        }
    }

    /// Whether a search is due; if not, the caller is woken when it is.
    pub(super) fn is_due(&self, cx: &Context<'_>) -> bool {
        self.bell.listen(cx.waker());
        self.bell.take()
    }

    /// The doubts to search for now, sorted by name.
    fn take(&self) -> Vec<(Name, RequestId)> {
        let mut waiting = self.waiting.lock();
        // By name: a single listing serves all doubts of a name.
        let mut names = HashSet::new();
        let is_now =
            |doubt: &Doubt| names.contains(&doubt.name) || names.len() < AT_ONCE && names.insert(doubt.name.clone());
        let (taken, rest): (VecDeque<Doubt>, VecDeque<Doubt>) = waiting.drain(..).partition(is_now);
        *waiting = rest;
        let mut now: Vec<_> = taken.iter().map(|doubt| (doubt.name.clone(), doubt.request)).collect();
        let left = taken.into_iter().filter(|doubt| doubt.looks > 1);
        waiting.extend(left.map(|doubt| Doubt { looks: doubt.looks - 1, ..doubt }));
        drop(waiting);
        now.sort_by(|(one, _), (other, _)| one.cmp(other));
        now
    }
}

impl ZooKeeperSession {
    /// Searches for the nodes of requests in doubt, and deletes them. After a failure the next search tries again.
    pub(super) async fn resolve_doubts(self: Arc<Self>) {
        let doubts = self.doubts.take();
        let by_name = doubts.chunk_by(|(one, _), (other, _)| one == other);
        future::join_all(by_name.map(|some| self.resolve_doubts_about(&some[0].0, some))).await;
    }

    async fn resolve_doubts_about(&self, name: &Name, doubts: &[(Name, RequestId)]) {
        let Ok(home) = self.config.home(name) else { return };
        let is_stray = |node: &str| {
            let request = request_of(node);
            doubts.iter().any(|(_, doubt)| *doubt == request) && self.is_stray(name, request, &home.child(node))
        };
        let Ok((_, nodes)) = self.own_nodes(&home, is_stray).await else { return };
        // Checks once more: from here on, a contender that enters with this request looks for its node after the deletion.
        for (node, _) in nodes.iter().filter(|(node, _)| is_stray(node)) {
            let path = home.child(node);
            tracing::debug!(path, "a request took effect after it was given up");
            let _ = self.delete("look for a request", &path).await;
        }
    }

    /// Whether no place has this node, or will have it.
    fn is_stray(&self, name: &Name, id: RequestId, path: &str) -> bool {
        match self.places.state(id) {
            None => true,
            Some(RequestState::Placed(placed)) => {
                let is_at = |node| self.path(name, id, node).is_ok_and(|known| known == path);
                ![Some(placed.node), placed.lighter].into_iter().flatten().any(is_at)
            }
            // The call that enters or withdraws the request looks for its node, and may keep it.
            Some(RequestState::Doubtful(_) | RequestState::Ending) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn name(number: usize) -> Name {
        Name::new(format!("job-{number}")).unwrap()
    }

    #[test]
    fn a_request_in_doubt_is_looked_for_with_twelve_renewals_and_then_forgotten() {
        let (doubts, id) = (Doubts::default(), RequestId { client: 1, number: 1 });
        doubts.note(&name(1), id);
        for _ in 0..LOOKS {
            assert_eq!(doubts.take(), [(name(1), id)]);
        }
        assert!(doubts.take().is_empty());
    }

    #[test]
    fn requests_beyond_those_that_are_looked_for_at_once_have_their_turn() {
        let (doubts, count) = (Doubts::default(), 3 * AT_ONCE);
        (0..count).for_each(|at| doubts.note(&name(at), RequestId { client: 1, number: 1 }));
        let seen: HashSet<Name> = (0..3).flat_map(|_| doubts.take()).map(|(name, _)| name).collect();
        assert_eq!(seen.len(), count);
    }
}
