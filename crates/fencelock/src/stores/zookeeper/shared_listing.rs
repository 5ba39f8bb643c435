//! What the places of one session share of a queue: listings, and how far the front of one of mutexes has moved.
//!
//! A listing serves everybody whose own node was asked for before the listing was: requests of one connection take effect in
//! their order, so each finds itself in it, and it comes from one prefix of the commit order. So a crowd on one name needs
//! not list once for each.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use fencelock_zookeeper as wire;
use futures_util::FutureExt;
use futures_util::future::Either;
use tokio::sync::Semaphore;

use super::dialect::Kind;
use super::layout::Layout;
use super::queue_view::{Sorted, View};
use crate::kit::share_call::{Joined, SharedCall};
use crate::name::Name;

/// The children of a parent, or why they are not known.
pub(super) type Listed = wire::Result<Arc<Listing>>;

/// The children of a parent, for everybody who shares them.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) children: Vec<String>,
    /// Which of the nodes at the path the parent was; numbers begin anew with each.
    pub(super) parent: Parent,
    sorted: OnceLock<Sorted>,
}

/// The transaction that made a parent; later ones are greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parent(i64);

impl Parent {
    pub(super) fn of(stat: &wire::Stat) -> Self {
        Self(stat.czxid)
    }
}

impl Listing {
    pub(super) fn new(children: Vec<String>, parent: Parent) -> Self {
        Self { children, parent, sorted: OnceLock::new() }
    }

    /// What it says about `mine`, one of the nodes with the number `number`, in the queue that it was asked for.
    pub(super) fn view(&self, layout: Layout, key: &str, mine: &str, number: i64) -> View {
        let sorted = self.sorted.get_or_init(|| Sorted::of(layout, key, &self.children));
        sorted.view(&self.children, mine, number)
    }
}

/// How many listings of one queue are on their way at most; later callers share the next one. A few that come at once,
/// such as permits, wait for nobody.
const AT_ONCE: usize = 8;

/// How long the next one waits for one of those to be over. The task that asked for one may stand still, polled by nobody, after its
/// answer has come.
const PATIENCE: Duration = Duration::from_millis(250);

/// Names are looked through for those that nobody uses any more when there are so many, at least.
const FEW: usize = 64;

/// The queues that places of one session are in, or look at.
#[derive(Default)]
pub(super) struct SharedListings {
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    /// A listing is read as a queue of one kind.
    by_name: HashMap<(Name, Kind), Weak<Queue>>,
    /// Those that nobody uses are swept out when there are so many: twice what the last sweep left.
    many: usize,
}

pub(super) struct Queue {
    turns: Semaphore,
    /// The listing that is asked for as soon as one of those on their way was answered.
    next: SharedCall<Listed>,
    /// Under this parent, all numbers below have gone.
    front: Mutex<(Parent, i64)>,
}

/// A listing on its way.
struct Turn(Arc<Queue>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.turns.add_permits(1);
    }
}

impl SharedListings {
    pub(super) fn queue(&self, name: &Name, kind: Kind) -> Arc<Queue> {
        let key = (name.clone(), kind);
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.by_name.get(&key).and_then(Weak::upgrade) {
            return queue;
        }
        if queues.by_name.len() >= queues.many.max(FEW) {
            queues.by_name.retain(|_, queue| queue.strong_count() > 0);
            queues.by_name.shrink_to(FEW);
            queues.many = 2 * queues.by_name.len();
        }
        let front = Mutex::new((Parent::default(), i64::MIN));
        let queue = Arc::new(Queue { turns: Semaphore::new(AT_ONCE), next: SharedCall::default(), front });
        match queues.by_name.entry(key) {
            Slot::Occupied(mut slot) => drop(slot.insert(Arc::downgrade(&queue))),
            Slot::Vacant(slot) => drop(slot.insert(Arc::downgrade(&queue))),
        }
        queue
    }
}

impl Queue {
    /// Lists the children of `parent`. What was asked for before this call is in the listing; when it can be sent at once, it is
    /// sent by the call.
    pub(super) fn list(
        self: &Arc<Self>,
        client: &wire::Client,
        parent: &str,
    ) -> impl Future<Output = Listed> + Send + use<> {
        match self.turns.try_acquire() {
            Ok(permit) => {
                permit.forget();
                Either::Left(ask(Some(Turn(Arc::clone(self))), client, parent))
            }
            Err(_) => Either::Right(self.join(client, parent)),
        }
    }

    /// The listing that is still to be asked for.
    fn join(self: &Arc<Self>, client: &wire::Client, parent: &str) -> Joined<Listed> {
        self.next.join(|| {
            let (queue, client, parent) = (Arc::clone(self), client.clone(), parent.to_owned());
            let listed = async move {
                let turn = match tokio::time::timeout(PATIENCE, queue.turns.acquire()).await {
                    Ok(Ok(permit)) => {
                        permit.forget();
                        Some(Turn(Arc::clone(&queue)))
                    }
                    Ok(Err(_)) | Err(_) => None,
                };
                // Later arrivals may not be in what is listed now.
                queue.next.close();
                ask(turn, &client, &parent).await
            };
            listed.boxed()
        })
    }

    /// All mutexes below `number` have gone for good under `parent`: nobody appears ahead of who is there. A queue that was
    /// deleted as a whole begins anew under another parent, of which this says nothing.
    pub(super) fn begins_at(&self, parent: Parent, number: i64) {
        let mut front = self.front.lock().unwrap_or_else(PoisonError::into_inner);
        *front = (*front).max((parent, number));
    }

    /// Whether it is known that nobody is ahead of `number` under `parent`.
    pub(super) fn is_first(&self, parent: Parent, number: i64) -> bool {
        let front = self.front.lock().unwrap_or_else(PoisonError::into_inner);
        front.0 == parent && number <= front.1
    }
}

/// Sends the request, and returns what waits for the answer.
fn ask(turn: Option<Turn>, client: &wire::Client, parent: &str) -> impl Future<Output = Listed> + Send + use<> {
    let answer = client.get_children(parent);
    async move {
        let listed = answer.await;
        drop(turn);
        listed.map(|(children, stat)| Arc::new(Listing::new(children, Parent::of(&stat))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Name {
        Name::new(format!("job-{number}")).unwrap()
    }

    #[test]
    fn places_of_one_queue_share_what_they_know_and_it_goes_with_the_last() {
        let listings = SharedListings::default();
        let (one, same, other) = (
            listings.queue(&name(1), Kind::Mutex),
            listings.queue(&name(1), Kind::Mutex),
            listings.queue(&name(2), Kind::Mutex),
        );
        let parent = Parent(1);
        one.begins_at(parent, 5);
        same.begins_at(parent, 3);
        assert!(same.is_first(parent, 5) && !same.is_first(parent, 6) && !other.is_first(parent, 0));
        drop((one, same));
        assert!(!listings.queue(&name(1), Kind::Mutex).is_first(parent, 5));
    }

    #[test]
    fn what_is_known_of_a_queue_is_not_believed_of_one_that_began_anew() {
        let queue = SharedListings::default().queue(&name(1), Kind::Mutex);
        let (old, new) = (Parent(7), Parent(8));
        queue.begins_at(old, 5);
        assert!(!queue.is_first(new, 0));
        queue.begins_at(new, 2);
        queue.begins_at(old, 9);
        assert!(queue.is_first(new, 2) && !queue.is_first(new, 3) && !queue.is_first(old, 0));
    }

    #[test]
    fn queues_that_nobody_is_in_leave_nothing_behind() {
        let listings = SharedListings::default();
        let kept: Vec<_> = (0..100).map(|number| listings.queue(&name(number), Kind::Mutex)).collect();
        (100..10_000).for_each(|number| drop(listings.queue(&name(number), Kind::Mutex)));
        assert!(listings.queues.lock().unwrap().by_name.len() <= 2 * kept.len());
    }
}
