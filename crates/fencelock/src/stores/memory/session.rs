//! Sessions and places: the store's contract, spoken through one link.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::StreamExt;

use super::link::{Link, Operation, Tag};
use super::state::{Joined, StoreState};
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{
    Entered, Entry, Left, Loss, Place, PlaceId, PlaceList, Renewal, RequestId, Session, SessionEvent, Standing,
};
use crate::time::{Clock, Moment};

/// What the session, its places and its events share; the store forgets an ended session with the last of them.
pub(super) struct Core {
    link: Arc<Link>,
    session: u64,
    /// The client's clock, which `until` and `confirmed` are read on.
    clock: Arc<dyn Clock>,
}

impl Drop for Core {
    fn drop(&mut self) {
        self.link.closed(self.session);
        self.link.shared.with(|state, _| state.forget(self.session));
    }
}

impl Core {
    pub(super) fn new(link: Arc<Link>, session: u64, clock: Arc<dyn Clock>) -> Self {
        link.opened(session);
        link.shared.with(|state, _| state.adopt(session));
        Self { link, session, clock }
    }

    fn tag(&self, id: Option<RequestId>) -> Tag {
        Some((self.session, id))
    }

    /// What happens to the session unasked. A client that is cut off hears of it when it is healed.
    pub(super) fn events(self: Arc<Self>) -> BoxStream<'static, SessionEvent> {
        futures_util::stream::poll_fn(move |cx| {
            if !self.link.is_open(cx) {
                return Poll::Pending;
            }
            match self.link.shared.with(|state, _| state.event(self.session, cx.waker())) {
                Ok(event) => Poll::Ready(Some(event)),
                Err(true) => Poll::Ready(None),
                Err(false) => Poll::Pending,
            }
        })
        .boxed()
    }
}

pub(super) struct MemorySession(pub(super) Arc<Core>);

impl MemorySession {
    fn entered(&self, joined: Joined, entry: &Entry) -> Entered {
        match joined {
            Joined::Busy => Entered::Busy,
            Joined::Conflict(claim) => Entered::Conflict(claim),
            Joined::In(number, standing) => {
                let id = PlaceId { name: entry.name.clone(), request: entry.id };
                Entered::In(Box::new(MemoryPlace { core: Arc::clone(&self.0), id, number, standing }))
            }
        }
    }
}

impl Session for MemorySession {
    fn over(&self) -> Option<Loss> {
        let Core { link, session, .. } = &*self.0;
        if link.is_cut() { None } else { link.shared.with(|state, _| state.over(*session)) }
    }

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        Box::pin(async move {
            let (core, session, request) = (&self.0, self.0.session, Arc::clone(&entry));
            let tag = core.tag(Some(entry.id));
            let enter = move |state: &mut StoreState, _| state.enter(session, &request);
            let joined = core.link.send(Operation::Enter, tag, enter).await?;
            Ok(self.entered(joined, &entry))
        })
    }

    fn enter_now(&self, entry: &Arc<Entry>) -> Option<Result<Entered>> {
        let session = self.0.session;
        let joined = self.0.link.send_now(|state, _| state.enter(session, entry))?;
        Some(joined.map(|joined| self.entered(joined, entry)))
    }

    fn withdraw<'a>(&'a self, name: &'a Name, id: RequestId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (session, name) = (self.0.session, name.clone());
            let link = &self.0.link;
            link.send(Operation::Withdraw, self.0.tag(None), move |state, _| {
                state.withdraw(session, &name, id);
                Ok(())
            })
            .await
        })
    }

    fn renew<'a>(&'a self, places: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>> {
        Box::pin(async move {
            let places = places.all();
            let (session, confirmed) = (self.0.session, self.0.clock.now());
            let renew = move |state: &mut StoreState, now| state.renew(session, &places, now);
            let gone = self.0.link.send(Operation::Renew, self.0.tag(None), renew).await?;
            Ok(Renewal { gone, ..Renewal::at(confirmed) })
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let session = self.0.session;
            let close = move |state: &mut StoreState, _| {
                state.end(session, Loss::Closed);
                Ok(())
            };
            // No tag: closing ends the session's held requests, and is not itself one of them.
            self.0.link.send(Operation::Close, None, close).await
        })
    }
}

struct MemoryPlace {
    core: Arc<Core>,
    id: PlaceId,
    number: u64,
    standing: Standing,
}

impl Place for MemoryPlace {
    fn id(&self) -> PlaceId {
        self.id.clone()
    }

    fn standing(&self) -> Standing {
        self.standing
    }

    fn next(&mut self, until: Moment) -> BoxFuture<'_, Result<Standing>> {
        Box::pin(async move {
            let core = Arc::clone(&self.core);
            let mut until_over = (until != Moment::NEVER).then(|| core.clock.sleep_until(until));
            let mut boundary: Option<(Moment, BoxFuture<'_, ()>)> = None;
            poll_fn(|cx| {
                if !core.link.is_open(cx) {
                    // Cut off: nothing is heard any more, and at `until` nothing is known.
                    let over = until_over.as_mut().is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready());
                    return if over { Poll::Ready(Err(out_of_reach())) } else { Poll::Pending };
                }
                loop {
                    let expiry = self.look(cx);
                    let waits = matches!(self.standing, Standing::Waiting(_));
                    let over = until_over.as_mut().is_some_and(|sleep| sleep.as_mut().poll(cx).is_ready());
                    if !waits || over {
                        return Poll::Ready(Ok(self.standing));
                    }
                    // The one ahead may expire then; somebody has to look, and it may as well be us.
                    if boundary.as_ref().is_none_or(|(at, _)| *at != expiry) {
                        boundary = Some((expiry, core.link.shared.clock.sleep_until(expiry)));
                    }
                    if boundary.as_mut().is_none_or(|(_, sleep)| sleep.as_mut().poll(cx).is_pending()) {
                        return Poll::Pending;
                    }
                }
            })
            .await
        })
    }

    fn lighten(&mut self, claim: Claim) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let (session, number, name) = (self.core.session, self.number, self.id.name.clone());
            let lighten = move |state: &mut StoreState, _| state.lighten(session, &name, number, claim);
            self.core.link.send(Operation::Lighten, self.core.tag(None), lighten).await
        })
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<Left>> {
        Box::pin(async move {
            let (session, number, id) = (self.core.session, self.number, self.id.clone());
            let leave = move |state: &mut StoreState, _| Ok(state.leave(session, &id.name, number, id.request));
            let left = self.core.link.send(Operation::Leave, self.core.tag(None), leave).await?;
            self.standing = Standing::Lost(Loss::Removed);
            Ok(left)
        })
    }

    fn leave_now(&mut self) -> Option<Result<Left>> {
        let (session, number, id) = (self.core.session, self.number, &self.id);
        let left = self.core.link.send_now(|state, _| state.leave(session, &id.name, number, id.request))?;
        self.standing = Standing::Lost(Loss::Removed);
        Some(Ok(left))
    }
}

impl MemoryPlace {
    /// Takes the standing anew, asks to be woken when it changes, and says when the next session may expire.
    fn look(&mut self, cx: &Context<'_>) -> Moment {
        let (session, name, number) = (self.core.session, &self.id.name, self.number);
        let (standing, expiry) = self.core.link.shared.with(|state, _| {
            let standing = state.look(session, name, number);
            if matches!(standing, Standing::Waiting(_)) {
                state.watch(name, number, Some(cx.waker()));
            }
            (standing, state.next_expiry())
        });
        self.standing = standing;
        expiry
    }
}

impl Drop for MemoryPlace {
    fn drop(&mut self) {
        if matches!(self.standing, Standing::Waiting(_)) {
            self.core.link.shared.with(|state, _| state.watch(&self.id.name, self.number, None));
        }
    }
}

fn out_of_reach() -> Error {
    Error::new(ErrorKind::Unreachable, "next", "the client is cut off from the store").retryable()
}
