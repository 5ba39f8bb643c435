//! The unrequested events of a session: its end, doubtful reconnects, and the deletion of a holder's node by another client.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use fencelock_zookeeper as wire;
use fencelock_zookeeper::ErrorKind as Wire;
use futures_core::Stream;
use futures_core::future::BoxFuture;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::breaks;
use super::places::Node;
use super::session::ZooKeeperSession;
use crate::store::{GrantId, Loss, PlaceId, SessionEvent};
use crate::time::outcome_before;

/// How often the session looks for holders whose nodes need a watch: a holder gets one if the last look found it already. A shorter section
/// costs no watch; a deletion of its node is noticed a moment later.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How long the client waits for the reason before it reports the loss of a grant.
const REASON_WITHIN: Duration = Duration::from_millis(500);

/// The node of a holder, and the watch on it.
type Watched = (PlaceId, Node, wire::Result<(Vec<u8>, wire::Stat, wire::Watch)>);

/// The events of one session.
pub(super) struct Events {
    wire: wire::Events,
    /// The session timeout in the validity of guards.
    ttl: Duration,
    session: Weak<ZooKeeperSession>,
    /// The timer, which runs while a holder waits for its watch.
    timer: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    asked: FuturesUnordered<BoxFuture<'static, Watched>>,
    /// Places whose nodes another client deleted, and why.
    removed: FuturesUnordered<BoxFuture<'static, (GrantId, Option<Arc<str>>)>>,
    /// A search for requests in doubt.
    look: Option<BoxFuture<'static, ()>>,
    ended: bool,
}

impl Events {
    /// `ttl` is what the servers granted.
    pub(super) fn new(wire: wire::Events, ttl: Duration, session: &Arc<ZooKeeperSession>) -> Self {
        let (asked, removed) = (FuturesUnordered::new(), FuturesUnordered::new());
        Self { wire, ttl, session: Arc::downgrade(session), timer: None, asked, removed, look: None, ended: false }
    }

    /// The client's next event of the whole session; `None` for its end.
    fn poll_session(&mut self, cx: &mut Context<'_>) -> Poll<Option<SessionEvent>> {
        loop {
            match self.wire.poll_next_unpin(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None | Some(wire::Event::Closed)) => return Poll::Ready(None),
                Poll::Ready(Some(wire::Event::Disconnected { why })) => {
                    tracing::debug!(%why, "disconnected");
                }
                Poll::Ready(Some(wire::Event::Reconnected { server })) => {
                    tracing::debug!(%server, "reconnected");
                    return Poll::Ready(Some(if self.ends_earlier() { self.end() } else { SessionEvent::Doubtful }));
                }
                // Without credentials no request succeeds: the session has ended for the client, and expires soon.
                Poll::Ready(Some(wire::Event::Expired | wire::Event::AuthFailed)) => {
                    return Poll::Ready(Some(self.end()));
                }
                Poll::Ready(Some(_)) => {}
            }
        }
    }

    /// Whether the session resumes with a shorter timeout than guards assume: servers may differ in their limits.
    fn ends_earlier(&self) -> bool {
        self.session.upgrade().is_some_and(|session| session.client.session().timeout < self.ttl)
    }

    fn end(&mut self) -> SessionEvent {
        self.ended = true;
        self.session.upgrade().inspect(|session| session.end(Loss::Expired));
        SessionEvent::Over
    }

    /// The next node of a holder that another client deleted.
    fn poll_removed(&mut self, session: &Arc<ZooKeeperSession>, cx: &mut Context<'_>) -> Poll<SessionEvent> {
        session.places.listen(cx.waker());
        self.removed
            .extend(session.places.take_fired().into_iter().map(|(place, node)| why_removed(session, place, node)));
        self.ask_in_time(session, cx);
        while let Poll::Ready(Some(watched)) = self.asked.poll_next_unpin(cx) {
            self.answered(session, watched);
        }
        let Poll::Ready(Some((grant, reason))) = self.removed.poll_next_unpin(cx) else { return Poll::Pending };
        session.places.forget(grant.place.request);
        Poll::Ready(match reason {
            Some(reason) => SessionEvent::Broken(grant, reason),
            None => SessionEvent::Gone(grant, Loss::Removed),
        })
    }

    /// Searches for requests in doubt, when due; never two searches at a time.
    fn poll_look(&mut self, session: &Arc<ZooKeeperSession>, cx: &mut Context<'_>) {
        let is_due = session.doubts.is_due(cx);
        if self.look.is_none() && is_due {
            self.look = Some(Box::pin(Arc::clone(session).resolve_doubts()));
        }
        if self.look.as_mut().is_some_and(|look| look.as_mut().poll(cx).is_ready()) {
            self.look = None;
        }
    }

    /// Asks for the watches that are due.
    fn ask_in_time(&mut self, session: &Arc<ZooKeeperSession>, cx: &mut Context<'_>) {
        while self.timer.is_some() || session.places.has_unwatched() {
            let timer = self.timer.get_or_insert_with(|| {
                let (clock, at) = (Arc::clone(&session.clock), session.clock.now().after(LOOK_EVERY));
                Box::pin(async move { clock.sleep_until(at).await })
            });
            if timer.as_mut().poll(cx).is_pending() {
                return;
            }
            self.timer = None;
            for (place, node) in session.places.take_ripe() {
                self.ask(session, place, node);
            }
        }
    }

    fn ask(&self, session: &ZooKeeperSession, place: PlaceId, node: Node) {
        // A name that was entered has a path.
        if let Ok(path) = session.path(&place.name, place.request, node) {
            let answer = session.client.get_data_watched(&path);
            self.asked.push(Box::pin(async move { (place, node, answer.await) }));
        }
    }

    fn answered(&mut self, session: &Arc<ZooKeeperSession>, (place, node, watched): Watched) {
        // The place was left meanwhile, or its node replaced.
        let Some((heavier, lighter)) = session.places.nodes(place.request) else { return };
        if node != heavier && Some(node) != lighter {
            return;
        }
        match watched {
            Ok((_, _, watch)) => session.places.hold(place.request, Some(watch)),
            Err(error) => match (error.kind(), lighter.filter(|_| node == heavier)) {
                (Wire::NoNode, Some(lighter)) => self.ask(session, place, lighter),
                (Wire::NoNode, None) => {
                    session.places.ending(place.request);
                    self.removed.push(why_removed(session, place, node));
                }
                // Each of these takes time or a new connection, so the loop always pauses.
                (Wire::ConnectionLoss | Wire::Deadline | Wire::SessionMoved | Wire::Unreachable, _) => {
                    self.ask(session, place, node);
                }
                // The session has ended, or reading is not allowed.
                _ => {}
            },
        }
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
        let Some(session) = self.session.upgrade() else { return Poll::Pending };
        self.poll_look(&session, cx);
        self.poll_removed(&session, cx).map(Some)
    }
}

/// Looks for the record of a break, no longer than the loss may wait for its reason.
fn why_removed(
    session: &Arc<ZooKeeperSession>,
    place: PlaceId,
    node: Node,
) -> BoxFuture<'static, (GrantId, Option<Arc<str>>)> {
    let grant = GrantId { place, token: node.grant().token };
    let (client, config, clock) = (session.client.clone(), Arc::clone(&session.config), Arc::clone(&session.clock));
    Box::pin(async move {
        let at_the_latest = clock.now().after(REASON_WITHIN);
        let reason = outcome_before(&*clock, at_the_latest, breaks::reason(&client, &config, &grant)).await;
        (grant, reason.and_then(Result::ok).flatten())
    })
}
