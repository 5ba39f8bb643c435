//! The state of a session, which outlives its connections, and the tries for waiters.

use std::future::pending;
use std::sync::{Arc, Weak};

use futures_core::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;

use super::places::{Places, TRIES, Try};
use super::{Trying, UnqueuedBackend};
use crate::kit::reconnect::Dial;
use crate::store::{Opening, PlaceId, SessionEvent};
use crate::time::Moment;

/// The connection of a session.
pub(crate) type Wire<A> = <<A as UnqueuedBackend>::Dial as Dial>::Connection;

/// The state of a session. The server keeps no record of the session itself.
pub(crate) struct TryAgainSession<A> {
    pub(crate) backend: A,
    pub(crate) opening: Opening,
    pub(crate) places: Places,
}

impl<A: UnqueuedBackend> TryAgainSession<A> {
    pub(crate) fn new(
        backend: A,
        opening: Opening,
        trying: Trying,
        events: mpsc::UnboundedSender<SessionEvent>,
    ) -> Arc<Self> {
        Arc::new(Self { backend, opening, places: Places::new(trying, events) })
    }

    /// The end of a grant whose request was sent at `sent`.
    pub(super) fn valid_until(&self, sent: Moment) -> Moment {
        sent.after(self.backend.validity(self.opening.ttl))
    }

    /// Tries for the first of each line, when due, until the connection ends. No try waits for the answer to another one.
    pub(crate) fn tries(self: &Arc<Self>, connection: &Arc<Wire<A>>) -> BoxFuture<'static, ()> {
        let (weak, session) = (Arc::downgrade(connection), Arc::clone(self));
        Box::pin(async move {
            let mut under_way = FuturesUnordered::new();
            loop {
                while under_way.len() >= TRIES {
                    under_way.next().await;
                }
                // Checks the connection first, so that no place is marked as tried without a request.
                let Some(connection) = Weak::upgrade(&weak) else { return };
                match session.places.due(session.opening.clock.now()) {
                    Ok(mut work) => {
                        let due = std::mem::take(&mut work.tries).into_iter();
                        under_way.extend(due.map(|due| Arc::clone(&session).try_for(due, Arc::clone(&connection))));
                        tokio::select! {
                            biased;
                            () = async { while under_way.next().await.is_some() {} pending().await } => {}
                            () = session.backend.hear(&connection, &session.places, &work) => {}
                        }
                    }
                    Err(next) => {
                        drop(connection);
                        tokio::select! {
                            biased;
                            Some(()) = under_way.next() => {}
                            () = session.places.session.bell.notified() => {}
                            () = session.opening.clock.sleep_until(next) => {}
                        }
                    }
                }
            }
        })
    }

    async fn try_for(self: Arc<Self>, due: Try, connection: Arc<Wire<A>>) {
        let clock = &*self.opening.clock;
        let valid_until = self.valid_until(clock.now());
        let tried = self.backend.take(&connection, &due, false).await;
        if self.places.answered(due.place.request, tried, valid_until, clock.now()) {
            self.give_back(&connection, &[due.place]).await;
        }
    }

    /// Deletes grants to waiters that had left: their own deletions may have come before these tries.
    pub(super) async fn give_back(&self, connection: &Wire<A>, places: &[PlaceId]) {
        if let Err(error) = self.backend.leave(connection, "withdraw", places).await {
            tracing::warn!(%error, ?places, "a lock was granted to a waiter that had left: it is free after its ttl");
        }
    }
}
