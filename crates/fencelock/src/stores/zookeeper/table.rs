//! What a session knows of its own requests and nodes, and how it hears that a holder's node was deleted.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use fencelock_zookeeper::{Watch, WatchEvent};
use futures_util::task::AtomicWaker;

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
    /// What whoever is first gets.
    pub(super) fn grant(self) -> Grant {
        Grant { token: FencingToken::new(self.czxid, 0) }
    }

    /// The same place with another claim.
    pub(super) fn with(self, claim: Claim) -> Self {
        Self { claim, ..self }
    }
}

/// What is known of a request of this session.
enum Known {
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
pub(super) enum Beside {
    Nothing,
    /// A lighter one, which then holds the place.
    Lighter(Node),
}

/// What `enter` has to do for a request.
pub(super) enum Begun {
    Fresh,
    Doubtful,
    Placed(Node),
}

/// The requests of one session whose effect may be in the store.
#[derive(Default)]
pub(super) struct Table {
    inner: Mutex<Inner>,
    bell: Arc<Bell>,
}

#[derive(Default)]
struct Inner {
    requests: HashMap<RequestId, Known>,
    /// Holders since the last [`Table::take_ripe`], whose nodes are not watched yet.
    unwatched: Vec<RequestId>,
    /// Those from before it.
    ripe: Vec<RequestId>,
}

impl Inner {
    /// Notes a holder to be watched; says whether it is the only one.
    fn note_unwatched(&mut self, id: RequestId) -> bool {
        self.unwatched.push(id);
        self.unwatched.len() == 1 && self.ripe.is_empty()
    }
}

/// Rung by whatever the events of the session wait for.
#[derive(Default)]
struct Bell {
    fired: AtomicBool,
    listener: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.fired.store(true, Ordering::Release);
        self.listener.wake();
    }
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that `id` is about to be sent.
    pub(super) fn begin(&self, id: RequestId, claim: Claim) -> Begun {
        match self.lock().requests.entry(id) {
            Slot::Vacant(slot) => {
                slot.insert(Known::Doubtful(claim));
                Begun::Fresh
            }
            Slot::Occupied(slot) => match slot.get() {
                Known::Doubtful(_) | Known::Ending => Begun::Doubtful,
                Known::Placed(placed) => Begun::Placed(placed.node),
            },
        }
    }

    /// What a request may have in the store; `None` for nothing.
    pub(super) fn nodes(&self, id: RequestId) -> Option<Nodes> {
        self.lock().requests.get(&id).map(|known| match known {
            Known::Doubtful(claim) => Nodes::Doubtful(*claim),
            Known::Placed(placed) => Nodes::Placed(placed.node, placed.lighter.map(|claim| placed.node.with(claim))),
            Known::Ending => Nodes::Gone,
        })
    }

    /// What the end of `node` would be news of, if it is where a request is.
    pub(super) fn is_at(&self, id: RequestId, node: Node) -> Option<Beside> {
        match self.nodes(id)? {
            Nodes::Placed(known, None) if known == node => Some(Beside::Nothing),
            Nodes::Placed(known, Some(lighter)) if known == node => Some(Beside::Lighter(lighter)),
            Nodes::Placed(_, Some(lighter)) if lighter == node => Some(Beside::Nothing),
            _ => None,
        }
    }

    /// The node of a request is about to be replaced by one of this claim.
    pub(super) fn lightening(&self, id: RequestId, claim: Claim) {
        if let Some(Known::Placed(placed)) = self.lock().requests.get_mut(&id) {
            placed.lighter = Some(claim);
        }
    }

    /// The node of a request was replaced by one of this claim, which is to be watched.
    pub(super) fn lightened(&self, id: RequestId, claim: Claim) {
        let watch = match self.lock().requests.get_mut(&id) {
            Some(Known::Placed(placed)) => {
                placed.node = placed.node.with(claim);
                placed.lighter = None;
                placed.watch.take()
            }
            _ => None,
        };
        drop(watch);
        self.hold(id, None);
    }

    /// The request made `node`.
    pub(super) fn placed(&self, id: RequestId, name: &Name, node: Node) {
        let placed = Placed { name: name.clone(), node, watch: None, leaving: false, lighter: None };
        self.lock().requests.insert(id, Known::Placed(Box::new(placed)));
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
            (Some(mut watch), Some(Known::Placed(placed))) if !placed.leaving => {
                let waker = Waker::from(Arc::clone(&self.bell));
                let fired = watch.poll_fired(&mut Context::from_waker(&waker)).is_ready();
                placed.watch = Some(watch);
                drop(inner);
                if fired {
                    waker.wake();
                }
            }
            (None, Some(Known::Placed(placed))) => {
                placed.leaving = false;
                let is_only = inner.note_unwatched(id);
                drop(inner);
                if is_only {
                    self.bell.listener.wake();
                }
            }
            _ => {}
        }
    }

    /// Stops watching the node of a holder that leaves: its end is no news.
    pub(super) fn unwatch(&self, id: RequestId) {
        let watch = match self.lock().requests.get_mut(&id) {
            Some(Known::Placed(placed)) => {
                placed.leaving = true;
                placed.watch.take()
            }
            _ => None,
        };
        drop(watch);
    }

    /// Asks to be woken for whatever [`Table::take_fired`] and [`Table::take_ripe`] will return.
    pub(super) fn listen(&self, waker: &Waker) {
        self.bell.listener.register(waker);
    }

    /// Whether somebody waits to be watched.
    pub(super) fn has_unwatched(&self) -> bool {
        let inner = self.lock();
        !(inner.unwatched.is_empty() && inner.ripe.is_empty())
    }

    /// The holders whose nodes are to be watched now: those that were there at the last call, and do not leave. Whoever
    /// holds for less than the time between two calls costs nothing.
    pub(super) fn take_ripe(&self) -> Vec<(PlaceId, Node)> {
        let mut inner = self.lock();
        let ripe = std::mem::take(&mut inner.ripe);
        inner.ripe = std::mem::take(&mut inner.unwatched);
        let held = ripe.into_iter().filter_map(|id| match inner.requests.get(&id)? {
            Known::Placed(placed) if placed.watch.is_none() && !placed.leaving => {
                Some((PlaceId { name: placed.name.clone(), request: id }, placed.node))
            }
            _ => None,
        });
        held.collect()
    }

    /// The node of a request was deleted by somebody else.
    pub(super) fn ending(&self, id: RequestId) {
        self.lock().requests.insert(id, Known::Ending);
    }

    /// The places whose nodes were deleted since; each is to be forgotten once it is told why. A node that was written into is watched anew.
    pub(super) fn take_fired(&self) -> Vec<PlaceId> {
        if !self.bell.fired.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        let mut inner = self.lock();
        let heard = inner.requests.iter().filter_map(|(id, known)| match known {
            Known::Placed(placed) => Some((*id, placed.watch.as_ref()?.heard()?)),
            Known::Doubtful(_) | Known::Ending => None,
        });
        let heard: Vec<_> = heard.collect();
        let (mut gone, mut watches) = (Vec::new(), Vec::new());
        for (id, event) in heard {
            match (event, inner.requests.get_mut(&id)) {
                (WatchEvent::Deleted, Some(Known::Placed(placed))) if placed.lighter.is_none() => {
                    gone.push(PlaceId { name: placed.name.clone(), request: id });
                    watches.push(placed.watch.take());
                    inner.requests.insert(id, Known::Ending);
                }
                (WatchEvent::SessionOver, _) => {}
                (_, Some(Known::Placed(placed))) => {
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
