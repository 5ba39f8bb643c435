//! A session's record of its own requests and nodes, and its watches for the deletion of a holder's node.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Waker};

use fencelock_zookeeper::{Watch, WatchEvent};

use crate::error::{Error, ErrorKind, Result};
use crate::kit::bell::Bell;
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Grant, PlaceId, RequestId};
use crate::sync::Mutex;
use crate::token::FencingToken;

/// A node of ours. Its path follows from the lock, the request and the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) number: i64,
    /// The transaction that made it, or the heavier one before it.
    pub(super) czxid: u64,
    pub(super) claim: Claim,
}

impl Node {
    /// The grant of the first in the queue.
    pub(super) fn grant(self) -> Grant {
        Grant::new(FencingToken::new(self.czxid))
    }

    /// The same place with another claim.
    pub(super) fn with(self, claim: Claim) -> Self {
        Self { claim, ..self }
    }
}

/// The most contenders of one client. A server lists the paths of all ephemeral nodes of a session in the transaction that closes it
/// (ZooKeeper 3.6 and newer). The server does not start again with one in its log that is longer than `jute.maxbuffer` and
/// `zookeeper.jute.maxbuffer.extrasize` together: ZOOKEEPER-4306, open in 3.9.5. With long names they are fewer: all of them fit into
/// `jute.maxbuffer`, and the second nodes of downgrades into the extra size.
const MOST: usize = 10_000;

/// The bytes next to each path in that list: its length before it, and the longest number of a node at its end.
const BESIDE_PATH: usize = 4 + 11;

/// The state of a request of this session.
#[derive(Clone)]
pub(super) enum RequestState {
    /// The request has no answer yet, or never gets one. Its effect may be a node for this claim.
    Doubtful(Claim),
    /// The request made a node that its place has not left yet. Boxed: a map has room for more than is in it.
    Placed(Box<Placed>),
    /// Another client deleted its node; a request for the cause is in flight.
    Ending,
}

#[derive(Clone)]
pub(super) struct Placed {
    name: Name,
    pub(super) node: Node,
    /// The deletion of the node was requested.
    pub(super) leaving: bool,
    /// A second node, while the first one is about to be replaced by it: the place ends with the last of them.
    pub(super) lighter: Option<Node>,
}

/// The requests of one session whose effect may be in the store.
pub(super) struct Places {
    inner: Mutex<Inner>,
    /// The servers' `jute.maxbuffer`.
    max_frame: usize,
    /// Rings at every event for which the session waits.
    bell: Arc<Bell>,
}

#[derive(Default)]
struct Inner {
    requests: HashMap<RequestId, RequestState>,
    /// On the nodes of holders.
    watches: HashMap<RequestId, Watch>,
    /// The length of the longest path of a node so far.
    longest: usize,
    /// Holders since the last [`Places::take_ripe`]: their nodes are not watched yet.
    unwatched: Vec<RequestId>,
    /// The holders from before the last call.
    ripe: Vec<RequestId>,
}

impl Inner {
    fn placed(&mut self, id: RequestId) -> Option<&mut Placed> {
        match self.requests.get_mut(&id)? {
            RequestState::Placed(placed) => Some(placed),
            RequestState::Doubtful(_) | RequestState::Ending => None,
        }
    }

    /// Notes a holder to be watched. Returns whether the holder is the only one.
    fn note_unwatched(&mut self, id: RequestId) -> bool {
        self.unwatched.push(id);
        self.unwatched.len() == 1 && self.ripe.is_empty()
    }
}

impl Places {
    pub(super) fn new(max_frame: usize) -> Self {
        Self { inner: Mutex::default(), max_frame, bell: Arc::default() }
    }

    /// Notes that `id` is about to be sent, for a node whose path is `path` and a number; returns its earlier state.
    ///
    /// # Errors
    /// [`ErrorKind::Exhausted`] when this client has as many contenders as a session may have.
    pub(super) fn begin(&self, id: RequestId, claim: Claim, path: &str) -> Result<Option<RequestState>> {
        let inner = &mut *self.inner.lock();
        if let Some(known) = inner.requests.get(&id) {
            return Ok(Some(known.clone()));
        }
        let (count, longest) = (inner.requests.len(), path.len().max(inner.longest));
        if count >= MOST.min(self.max_frame / (longest + BESIDE_PATH)) {
            return Err(self.full(count));
        }
        inner.longest = longest;
        inner.requests.insert(id, RequestState::Doubtful(claim));
        Ok(None)
    }

    fn full(&self, contenders: usize) -> Error {
        let message = "this client has as many contenders, held and waiting, as the servers can close a session with (ZOOKEEPER-4306): use several clients; with long names, raise jute.maxbuffer on all servers and then max_frame_bytes here";
        Error::new(ErrorKind::Exhausted, "enter", message)
            .with("contenders", contenders)
            .with("max_frame_bytes", self.max_frame)
    }

    /// The state of a request; `None` when the store holds nothing of it.
    pub(super) fn state(&self, id: RequestId) -> Option<RequestState> {
        self.inner.lock().requests.get(&id).cloned()
    }

    /// The nodes of a place, the lighter one of two last.
    pub(super) fn nodes(&self, id: RequestId) -> Option<(Node, Option<Node>)> {
        self.inner.lock().placed(id).map(|placed| (placed.node, placed.lighter))
    }

    /// The node of a request is about to be replaced by one of this claim.
    pub(super) fn lightening(&self, id: RequestId, claim: Claim) {
        if let Some(placed) = self.inner.lock().placed(id) {
            placed.lighter = Some(placed.node.with(claim));
        }
    }

    /// The node of a request was replaced by one of this claim, which is to be watched.
    pub(super) fn lightened(&self, id: RequestId, claim: Claim) {
        let mut inner = self.inner.lock();
        if let Some(placed) = inner.placed(id) {
            (placed.node, placed.lighter) = (placed.node.with(claim), None);
        }
        let watch = inner.watches.remove(&id);
        drop((inner, watch));
        self.hold(id, None);
    }

    /// The request made `node`.
    pub(super) fn placed(&self, id: RequestId, name: &Name, node: Node) {
        let placed = Placed { name: name.clone(), node, leaving: false, lighter: None };
        self.inner.lock().requests.insert(id, RequestState::Placed(Box::new(placed)));
    }

    /// Nothing of the request is in the store.
    pub(super) fn forget(&self, id: RequestId) {
        let mut inner = self.inner.lock();
        inner.requests.remove(&id);
        let watch = inner.watches.remove(&id);
        if inner.requests.capacity() > 1024 && inner.requests.len() < inner.requests.capacity() / 8 {
            inner.requests.shrink_to_fit();
            inner.watches.shrink_to_fit();
        }
        drop((inner, watch));
    }

    /// The place is a holder's: its node is to be watched, by `watch` if there is one.
    pub(super) fn hold(&self, id: RequestId, watch: Option<Watch>) {
        let mut inner = self.inner.lock();
        let Some(placed) = inner.placed(id) else { return };
        let Some(mut watch) = watch else {
            placed.leaving = false;
            if inner.note_unwatched(id) {
                drop(inner);
                self.bell.stir();
            }
            return;
        };
        if !placed.leaving {
            let waker = Waker::from(Arc::clone(&self.bell));
            let fired = watch.poll_fired(&mut Context::from_waker(&waker)).is_ready();
            let before = inner.watches.insert(id, watch);
            drop((inner, before));
            if fired {
                waker.wake();
            }
        }
    }

    /// Stops watching the node of a holder that leaves: its end needs no event.
    pub(super) fn unwatch(&self, id: RequestId) {
        let mut inner = self.inner.lock();
        if let Some(placed) = inner.placed(id) {
            placed.leaving = true;
        }
        let watch = inner.watches.remove(&id);
        drop((inner, watch));
    }

    /// Asks to be woken for the results of [`Places::take_fired`] and [`Places::take_ripe`].
    pub(super) fn listen(&self, waker: &Waker) {
        self.bell.listen(waker);
    }

    /// Whether a holder's node waits for its watch.
    pub(super) fn has_unwatched(&self) -> bool {
        let inner = self.inner.lock();
        !(inner.unwatched.is_empty() && inner.ripe.is_empty())
    }

    /// The holders whose nodes are to be watched now: the holders that the last call saw already, and that do not leave. A session that
    /// holds for less than the time between two calls costs nothing.
    pub(super) fn take_ripe(&self) -> Vec<(PlaceId, Node)> {
        let mut inner = self.inner.lock();
        let ripe = std::mem::take(&mut inner.ripe);
        inner.ripe = std::mem::take(&mut inner.unwatched);
        let inner = &mut *inner;
        let unwatched = ripe.into_iter().filter(|id| !inner.watches.contains_key(id)).collect::<Vec<_>>();
        let held = unwatched.into_iter().filter_map(|id| {
            let placed = inner.placed(id).filter(|placed| !placed.leaving)?;
            Some((PlaceId { name: placed.name.clone(), request: id }, placed.node))
        });
        held.collect()
    }

    /// Another client deleted the node of a request.
    pub(super) fn ending(&self, id: RequestId) {
        let mut inner = self.inner.lock();
        inner.requests.insert(id, RequestState::Ending);
        let watch = inner.watches.remove(&id);
        drop((inner, watch));
    }

    /// The places whose nodes were deleted since; forget each once its cause is reported. A node that was written into is watched anew.
    pub(super) fn take_fired(&self) -> Vec<(PlaceId, Node)> {
        if !self.bell.take() {
            return Vec::new();
        }
        let mut inner = self.inner.lock();
        let fired = inner.watches.iter().filter_map(|(id, watch)| Some((*id, watch.event()?)));
        let fired: Vec<_> = fired.filter(|(_, event)| *event != WatchEvent::SessionOver).collect();
        let (mut gone, mut watches) = (Vec::new(), Vec::new());
        for (id, event) in fired {
            watches.extend(inner.watches.remove(&id));
            let Some(placed) = inner.placed(id) else { continue };
            if event == WatchEvent::Deleted && placed.lighter.is_none() {
                gone.push((PlaceId { name: placed.name.clone(), request: id }, placed.node));
                inner.requests.insert(id, RequestState::Ending);
            } else {
                inner.note_unwatched(id);
            }
        }
        drop((inner, watches));
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
    fn a_place_in_doubt_placed_or_ending_counts_until_it_is_forgotten() {
        let path = "/locks/job/_c_00000000-0000-0000-0000-000000000000-lock-";
        let places = Places::new(2 * (path.len() + BESIDE_PATH) + 1);
        let begin = |number| places.begin(id(number), Claim::WRITER, path);
        let is_full = |number| begin(number).is_err_and(|error| error.kind() == ErrorKind::Exhausted);
        let node = Node { number: 7, czxid: 100, claim: Claim::WRITER };
        assert!(matches!((begin(1), begin(2)), (Ok(None), Ok(None))));
        assert!(is_full(3) && matches!(begin(1), Ok(Some(RequestState::Doubtful(_)))));
        places.placed(id(1), &Name::new("job").unwrap(), node);
        assert!(is_full(3) && matches!(begin(1), Ok(Some(RequestState::Placed(_)))));
        places.ending(id(2));
        assert!(is_full(3));
        places.forget(id(2));
        assert!(places.begin(id(3), Claim::WRITER, &"x".repeat(200)).is_err(), "it is too long with the others");
        assert!(matches!(begin(3), Ok(None)));
    }

    #[test]
    fn a_client_has_ten_thousand_contenders_at_most() {
        let places = Places::new(usize::MAX);
        assert!((0..10_000).all(|number| places.begin(id(number), Claim::MUTEX, "/locks/job").is_ok()));
        let full = places.begin(id(10_000), Claim::MUTEX, "/locks/job").err().unwrap();
        assert!(!full.is_retryable() && full.to_string().contains("contenders 10000"), "{full}");
    }
}
