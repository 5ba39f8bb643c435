//! Requests held back on their way to the store.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::link::Shared;
use super::state::StoreState;
use crate::store::RequestId;
use crate::time::Moment;

/// What a held request does once it arrives.
type Effect = Box<dyn FnOnce(&mut StoreState, Moment) + Send>;

/// One request that is held back, or a trap that waits for one.
pub(super) struct Held {
    pub(super) trap: u64,
    /// The session and, of an `enter`, the request id: what a withdrawal or the session's end refuses.
    pub(super) tag: Option<(u64, Option<RequestId>)>,
    pub(super) effect: Option<Effect>,
    caught: bool,
    listener: Option<Waker>,
}

impl Held {
    pub(super) fn trap(trap: u64) -> Self {
        Self { trap, tag: None, effect: None, caught: false, listener: None }
    }

    /// Whether this is a request of `session`, and of `id` where one is given.
    pub(super) fn is_of(&self, session: u64, id: Option<RequestId>) -> bool {
        match self.tag {
            Some((of, request)) => of == session && (id.is_none() || request == id),
            None => false,
        }
    }

    pub(super) fn catch(&mut self, tag: Option<(u64, Option<RequestId>)>, effect: Effect) -> Option<Waker> {
        (self.tag, self.effect, self.caught) = (tag, Some(effect), true);
        self.listener.take()
    }
}

/// A request that [`MemoryStore::delay_next`](super::MemoryStore::delay_next) holds back.
///
/// Dropping this loses the request for good, as if the connection had broken.
#[must_use = "dropping it loses the request"]
pub struct DelayedRequest {
    pub(super) shared: Arc<Shared>,
    pub(super) trap: u64,
}

impl DelayedRequest {
    /// Completes once the request is on its way and held back.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn caught(&self) {
        poll_fn(|cx| {
            self.shared.with(|state, _| match state.held.iter_mut().find(|held| held.trap == self.trap) {
                Some(held) if !held.caught => {
                    held.listener = Some(cx.waker().clone());
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            })
        })
        .await;
    }

    /// Lets the request arrive now. Says whether it took effect: not when it was withdrawn, its place was left or its
    /// session ended meanwhile, or when no request had been caught yet.
    pub fn release(self) -> bool {
        self.shared.with(|state, now| {
            let index = state.held.iter().position(|held| held.trap == self.trap);
            match index.and_then(|index| state.held.remove(index).effect) {
                Some(effect) => {
                    effect(state, now);
                    true
                }
                None => false,
            }
        })
    }
}

impl Drop for DelayedRequest {
    fn drop(&mut self) {
        let lost = self.shared.with(|state, _| {
            let index = state.held.iter().position(|held| held.trap == self.trap);
            index.map(|index| state.held.remove(index))
        });
        // Dropped outside the lock: it may own whatever the caller gave it.
        drop(lost);
    }
}

impl fmt::Debug for DelayedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DelayedRequest({})", self.trap)
    }
}
