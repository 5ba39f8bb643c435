//! What happens to a session unasked: its end, doubtful reconnects, and the deletion of a holder's node by somebody else.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use fencelock_zookeeper as wire;
use fencelock_zookeeper::{ErrorKind as Wire, WatchEvent};
use futures_core::Stream;
use futures_core::future::BoxFuture;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;

use super::session::{Core, Node};
use crate::store::{Loss, PlaceId, RequestId, SessionEvent};

type Watched = wire::Answer<(Vec<u8>, wire::Stat, wire::Watch)>;

/// The node of a holder, and how its deletion will be heard.
pub(super) struct Held {
    place: PlaceId,
    node: Arc<Node>,
    watched: Watching,
}

/// A place, and the node of it that somebody deleted.
type Gone = (PlaceId, Arc<Node>);

enum Watching {
    /// The watch was asked for; nobody has waited for the answer.
    Asked(Watched),
    Set(wire::Watch),
}

impl Held {
    /// Asks for a watch on the node.
    pub(super) fn new(core: &Core, place: PlaceId, node: &Arc<Node>) -> Self {
        let watched = Watching::Asked(core.client.get_data_watched(&node.path));
        Self { place, node: Arc::clone(node), watched }
    }

    /// A node that is watched already.
    pub(super) fn watched(place: PlaceId, node: &Arc<Node>, watch: wire::Watch) -> Self {
        Self { place, node: Arc::clone(node), watched: Watching::Set(watch) }
    }

    /// Waits until the node is gone; `None` when that will never be known.
    async fn gone(self, client: wire::Client) -> Option<Gone> {
        let mut watched = self.watched;
        loop {
            let mut watch = match watched {
                Watching::Set(watch) => watch,
                Watching::Asked(answer) => match answer.await {
                    Ok((_, _, watch)) => watch,
                    Err(error) => match error.kind() {
                        Wire::NoNode => return Some((self.place, self.node)),
                        // Each of these takes a while, or a new connection: it is no loop without a pause.
                        Wire::ConnectionLoss | Wire::Deadline | Wire::SessionMoved => {
                            watched = Watching::Asked(client.get_data_watched(&self.node.path));
                            continue;
                        }
                        _ => return None,
                    },
                },
            };
            match watch.fired().await {
                WatchEvent::Deleted => return Some((self.place, self.node)),
                WatchEvent::SessionOver => return None,
                // Somebody wrote into it (Curator asks holders that way to give up): it is still ours.
                _ => watched = Watching::Asked(client.get_data_watched(&self.node.path)),
            }
        }
    }
}

/// The events of one session.
pub(super) struct Events {
    wire: wire::Events,
    core: Weak<Core>,
    client: wire::Client,
    held: mpsc::UnboundedReceiver<Held>,
    watched: FuturesUnordered<BoxFuture<'static, Option<Gone>>>,
    ended: bool,
}

impl Events {
    pub(super) fn new(wire: wire::Events, core: &Arc<Core>, held: mpsc::UnboundedReceiver<Held>) -> Self {
        let client = core.client.clone();
        Self { wire, core: Arc::downgrade(core), client, held, watched: FuturesUnordered::new(), ended: false }
    }

    /// What the client says of the session as a whole; `Some(None)` for its end.
    fn poll_session(&mut self, cx: &mut Context<'_>) -> Poll<Option<SessionEvent>> {
        loop {
            match self.wire.poll_next_unpin(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None | Some(wire::Event::Closed)) => return Poll::Ready(None),
                Poll::Ready(Some(wire::Event::Disconnected { why })) => tracing::debug!(%why, "disconnected"),
                Poll::Ready(Some(wire::Event::Reconnected { server })) => {
                    tracing::debug!(%server, "reconnected");
                    return Poll::Ready(Some(SessionEvent::Doubtful));
                }
                // Without credentials no request will do any good: the session is as good as over, and expires soon.
                Poll::Ready(Some(wire::Event::Expired | wire::Event::AuthFailed)) => {
                    self.ended = true;
                    self.core.upgrade().inspect(|core| core.end());
                    return Poll::Ready(Some(SessionEvent::Expired));
                }
                Poll::Ready(Some(_)) => {}
            }
        }
    }

    /// The next node of a holder that somebody else deleted.
    fn poll_removed(&mut self, cx: &mut Context<'_>) -> Poll<PlaceId> {
        while let Poll::Ready(Some(held)) = self.held.poll_recv(cx) {
            self.watched.push(Box::pin(held.gone(self.client.clone())));
        }
        while let Poll::Ready(Some(gone)) = self.watched.poll_next_unpin(cx) {
            let Some((place, node)) = gone else { continue };
            let left = |core: &Arc<Core>, id: RequestId| !core.gone(id, &node);
            if self.core.upgrade().is_some_and(|core| !left(&core, place.request)) {
                return Poll::Ready(place);
            }
        }
        Poll::Pending
    }
}

impl Stream for Events {
    type Item = SessionEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<SessionEvent>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match self.poll_session(cx) {
            Poll::Ready(Some(event)) => return Poll::Ready(Some(event)),
            Poll::Ready(None) => {
                self.ended = true;
                return Poll::Ready(None);
            }
            Poll::Pending => {}
        }
        self.poll_removed(cx).map(|place| Some(SessionEvent::Gone(place, Loss::Removed)))
    }
}
