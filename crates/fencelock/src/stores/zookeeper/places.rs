//! What a session knows of its own requests and nodes, and how it hears that a holder's node was deleted.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use fencelock_zookeeper::{Watch, WatchEvent};

use crate::error::{Error, ErrorKind, Result};
use crate::kit::bell::Bell;
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Grant, PlaceId, RequestId};
use crate::token::FencingToken;

/// One node of ours. Its path follows from the lock, the request and the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) number: i64,
    /// The transaction that made it, or the heavier one before it.
    pub(super) czxid: u64,
    pub(super) claim: Claim,
}

impl Node {
    /// What the first in the queue gets.
    pub(super) fn grant(self) -> Grant {
        Grant::new(FencingToken::new(self.czxid))
    }

    /// The same place with another claim.
    pub(super) fn with(self, claim: Claim) -> Self {
        Self { claim, ..self }
    }
}

/// The most contenders of one client. A server lists the paths of all ephemeral nodes of a session in the transaction that closes it
/// (ZooKeeper 3.6 and newer), and does not start again with one in its log that is longer than `jute.maxbuffer` and
/// `zookeeper.jute.maxbuffer.extrasize` together: ZOOKEEPER-4306, open in 3.9.5. With long names they are fewer: all of them fit into
/// `jute.maxbuffer`, and the second nodes of downgrades into the extra size.
const MOST: usize = 10_000;

/// What stands beside each path in that list, in bytes: its length before it, and the longest number of a node at its end.
const BESIDE_PATH: usize = 4 + 11;

/// What is known of a request of this session.
enum RequestFate {
    /// It was sent and not answered yet, or never: it may have made a node for this claim.
    Doubtful(Claim),
    /// It made a node that nobody has left yet. Boxed: a map has room for more than is in it.
    Placed(Box<Placed>),
    /// Its node was deleted by somebody else, and why is being asked.
    Ending,
}

struct Placed {
    name: Name,
    node: Node,
    /// On the node, once it is a holder's.
    watch: Option<Watch>,
    /// Its deletion was asked for.
    leaving: bool,
    /// The claim of a second node, while this one is about to be replaced by it: the place ends with the last of them.
    lighter: Option<Claim>,
}

/// The nodes that a request may have made.
pub(super) enum Nodes {
    /// One for this claim, or none.
    Doubtful(Claim),
    /// This one, and perhaps a lighter one beside it.
    Placed(Node, Option<Node>),
    /// None any more.
    Gone,
}

/// What may be where a node was.
pub(super) enum Successor {
    Nothing,
    /// A lighter one, which then holds the place.
    Lighter(Node),
}

/// What `enter` has to do for a request.
pub(super) enum Entering {
    Fresh,
    Doubtful,
    Placed(Node),
}

/// The requests of one session whose effect may be in the store.
pub(super) struct Places {
    inner: Mutex<Inner>,
    /// As the servers' `jute.maxbuffer`.
    max_frame: usize,
    /// Rung by whatever the events of the session wait for.
    bell: Arc<Bell>,
}

#[derive(Default)]
struct Inner {
    requests: HashMap<RequestId, RequestFate>,
    /// The length of the longest path of a node so far.
    longest: usize,
    /// Holders since the last [`Places::take_ripe`], whose nodes are not watched yet.
    unwatched: Vec<RequestId>,
    /// Those from before it.
    ripe: Vec<RequestId>,
}

impl Inner {
    /// The node of a request is gone, and why is being asked; what was known of it.
    fn end(&mut self, id: RequestId) -> Option<RequestFate> {
        self.requests.insert(id, RequestFate::Ending)
    }

    /// Notes a holder to be watched; says whether it is the only one.
    fn note_unwatched(&mut self, id: RequestId) -> bool {
        self.unwatched.push(id);
        self.unwatched.len() == 1 && self.ripe.is_empty()
    }
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn new(max_frame: usize) -> Self {
        Self { inner: Mutex::default(), max_frame, bell: Arc::default() }
    }

    /// Notes that `id` is about to be sent, for a node whose path is `path` and a number.
    ///
    /// # Errors
    /// [`ErrorKind::Exhausted`] when this client has as many contenders as a session may have.
    pub(super) fn begin(&self, id: RequestId, claim: Claim, path: &str) -> Result<Entering> {
        let Inner { requests, longest, .. } = &mut *self.lock();
        let count = requests.len();
        match requests.entry(id) {
            Slot::Vacant(slot) => {
                let longest_now = path.len().max(*longest);
                if count >= MOST.min(self.max_frame / (longest_now + BESIDE_PATH)) {
                    return Err(self.full(count));
                }
                *longest = longest_now;
                slot.insert(RequestFate::Doubtful(claim));
                Ok(Entering::Fresh)
            }
            Slot::Occupied(slot) => Ok(match slot.get() {
                RequestFate::Doubtful(_) | RequestFate::Ending => Entering::Doubtful,
                RequestFate::Placed(placed) => Entering::Placed(placed.node),
            }),
        }
    }

    fn full(&self, contenders: usize) -> Error {
        let message = "this client has as many contenders, held and waiting, as the servers can close a session with (ZOOKEEPER-4306): use several clients; with long names, raise jute.maxbuffer on all servers and then max_frame_bytes here";
        Error::new(ErrorKind::Exhausted, "enter", message)
            .with("contenders", contenders)
            .with("max_frame_bytes", self.max_frame)
    }

    /// What a request may have in the store; `None` for nothing.
    pub(super) fn nodes(&self, id: RequestId) -> Option<Nodes> {
        self.lock().requests.get(&id).map(|known| match known {
            RequestFate::Doubtful(claim) => Nodes::Doubtful(*claim),
            RequestFate::Placed(placed) => {
                Nodes::Placed(placed.node, placed.lighter.map(|claim| placed.node.with(claim)))
            }
            RequestFate::Ending => Nodes::Gone,
        })
    }

    /// What the end of `node` would be news of, if it is where a request is.
    pub(super) fn is_at(&self, id: RequestId, node: Node) -> Option<Successor> {
        match self.nodes(id)? {
            Nodes::Placed(known, None) if known == node => Some(Successor::Nothing),
            Nodes::Placed(known, Some(lighter)) if known == node => Some(Successor::Lighter(lighter)),
            Nodes::Placed(_, Some(lighter)) if lighter == node => Some(Successor::Nothing),
            _ => None,
        }
    }

    /// The node of a request is about to be replaced by one of this claim.
    pub(super) fn lightening(&self, id: RequestId, claim: Claim) {
        if let Some(RequestFate::Placed(placed)) = self.lock().requests.get_mut(&id) {
            placed.lighter = Some(claim);
        }
    }

    /// The node of a request was replaced by one of this claim, which is to be watched.
    pub(super) fn lightened(&self, id: RequestId, claim: Claim) {
        let watch = match self.lock().requests.get_mut(&id) {
            Some(RequestFate::Placed(placed)) => {
                (placed.node, placed.lighter) = (placed.node.with(claim), None);
                placed.watch.take()
            }
            _ => None,
        };
        drop(watch);
        self.hold(id, None);
    }

    /// The request made `node`.
    pub(super) fn placed(&self, id: RequestId, name: &Name, node: Node) {
        let mut inner = self.lock();
        let placed = Placed { name: name.clone(), node, watch: None, leaving: false, lighter: None };
        let before = inner.requests.insert(id, RequestFate::Placed(Box::new(placed)));
        drop((inner, before));
    }

    /// Nothing of the request is in the store; `false` when that was known before.
    pub(super) fn forget(&self, id: RequestId) -> bool {
        let mut inner = self.lock();
        let known = inner.requests.remove(&id);
        if inner.requests.capacity() > 1024 && inner.requests.len() < inner.requests.capacity() / 8 {
            inner.requests.shrink_to_fit();
        }
        drop(inner);
        known.is_some()
    }

    /// The place is a holder's: its node is to be watched, by `watch` if there is one.
    pub(super) fn hold(&self, id: RequestId, watch: Option<Watch>) {
        let mut inner = self.lock();
        match (watch, inner.requests.get_mut(&id)) {
            (Some(mut watch), Some(RequestFate::Placed(placed))) if !placed.leaving => {
                let waker = Waker::from(Arc::clone(&self.bell));
                let fired = watch.poll_fired(&mut Context::from_waker(&waker)).is_ready();
                placed.watch = Some(watch);
                drop(inner);
                if fired {
                    waker.wake();
                }
            }
            (None, Some(RequestFate::Placed(placed))) => {
                placed.leaving = false;
                let is_only = inner.note_unwatched(id);
                drop(inner);
                if is_only {
                    self.bell.stir();
                }
            }
            _ => {}
        }
    }

    /// Stops watching the node of a holder that leaves: its end is no news.
    pub(super) fn unwatch(&self, id: RequestId) {
        let watch = match self.lock().requests.get_mut(&id) {
            Some(RequestFate::Placed(placed)) => {
                placed.leaving = true;
                placed.watch.take()
            }
            _ => None,
        };
        drop(watch);
    }

    /// Asks to be woken for whatever [`Places::take_fired`] and [`Places::take_ripe`] will return.
    pub(super) fn listen(&self, waker: &Waker) {
        self.bell.listen(waker);
    }

    /// Whether somebody waits to be watched.
    pub(super) fn has_unwatched(&self) -> bool {
        let inner = self.lock();
        !(inner.unwatched.is_empty() && inner.ripe.is_empty())
    }

    /// The holders whose nodes are to be watched now: those that were there at the last call, and do not leave. A session that
    /// holds for less than the time between two calls costs nothing.
    pub(super) fn take_ripe(&self) -> Vec<(PlaceId, Node)> {
        let mut inner = self.lock();
        let ripe = std::mem::take(&mut inner.ripe);
        inner.ripe = std::mem::take(&mut inner.unwatched);
        let held = ripe.into_iter().filter_map(|id| match inner.requests.get(&id)? {
            RequestFate::Placed(placed) if placed.watch.is_none() && !placed.leaving => {
                Some((PlaceId { name: placed.name.clone(), request: id }, placed.node))
            }
            _ => None,
        });
        held.collect()
    }

    /// The node of a request was deleted by somebody else.
    pub(super) fn ending(&self, id: RequestId) {
        let before = self.lock().end(id);
        drop(before);
    }

    /// The places whose nodes were deleted since; each is to be forgotten once it is told why. A node that was written into is watched anew.
    pub(super) fn take_fired(&self) -> Vec<(PlaceId, Node)> {
        if !self.bell.take() {
            return Vec::new();
        }
        let mut inner = self.lock();
        let heard = inner.requests.iter().filter_map(|(id, known)| match known {
            RequestFate::Placed(placed) => Some((*id, placed.watch.as_ref()?.heard()?)),
            RequestFate::Doubtful(_) | RequestFate::Ending => None,
        });
        let heard: Vec<_> = heard.collect();
        let (mut gone, mut watches) = (Vec::new(), Vec::new());
        for (id, event) in heard {
            match (event, inner.requests.get_mut(&id)) {
                (WatchEvent::Deleted, Some(RequestFate::Placed(placed))) if placed.lighter.is_none() => {
                    gone.push((PlaceId { name: placed.name.clone(), request: id }, placed.node));
                    watches.push(placed.watch.take());
                    inner.end(id);
                }
                (WatchEvent::SessionOver, _) => {}
                (_, Some(RequestFate::Placed(placed))) => {
                    watches.push(placed.watch.take());
                    inner.note_unwatched(id);
                }
                _ => {}
            }
        }
        drop(inner);
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> RequestId {
        RequestId { client: 1, number }
    }

    #[test]
    fn what_is_in_doubt_placed_or_ending_counts_until_it_is_forgotten() {
        let path = "/locks/job/_c_00000000-0000-0000-0000-000000000000-lock-";
        let places = Places::new(2 * (path.len() + BESIDE_PATH) + 1);
        let begin = |number| places.begin(id(number), Claim::WRITER, path);
        let is_full = |number| begin(number).is_err_and(|error| error.kind() == ErrorKind::Exhausted);
        let node = Node { number: 7, czxid: 100, claim: Claim::WRITER };
        assert!(matches!((begin(1), begin(2)), (Ok(Entering::Fresh), Ok(Entering::Fresh))));
        assert!(is_full(3) && matches!(begin(1), Ok(Entering::Doubtful)));
        places.placed(id(1), &Name::new("job").unwrap(), node);
        assert!(is_full(3) && matches!(begin(1), Ok(Entering::Placed(_))));
        places.ending(id(2));
        assert!(is_full(3));
        places.forget(id(2));
        assert!(places.begin(id(3), Claim::WRITER, &"x".repeat(200)).is_err(), "it is too long beside the others");
        assert!(matches!(begin(3), Ok(Entering::Fresh)));
    }

    #[test]
    fn a_client_has_ten_thousand_contenders_at_most() {
        let places = Places::new(usize::MAX);
        assert!((0..10_000).all(|number| places.begin(id(number), Claim::MUTEX, "/locks/job").is_ok()));
        let full = places.begin(id(10_000), Claim::MUTEX, "/locks/job").err().unwrap();
        assert!(!full.is_retryable() && full.to_string().contains("contenders 10000"), "{full}");
    }
}
