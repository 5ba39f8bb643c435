//! A session's requests to the store, over the link of its client.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_core::future::BoxFuture;
use tokio::select;

use super::link::{Link, Operation, Tag, unanswered};
use super::state::StoreState;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::reconnect::Dial;
use crate::kit::served::{Enter, Places, Served};
use crate::queue::Claim;
use crate::store::{Entry, Loss, Opening, PlaceId, RequestId};
use crate::time::{Clock, Moment};

/// A session. The store numbers it when it opens.
pub(super) struct MemorySession {
    link: Arc<Link>,
    opening: Opening,
    places: Arc<Places>,
    number: OnceLock<u64>,
}

impl MemorySession {
    pub(super) fn new(link: &Arc<Link>, opening: Opening, places: Places) -> Self {
        Self { link: Arc::clone(link), opening, places: Arc::new(places), number: OnceLock::new() }
    }

    async fn open(&self) -> Result<()> {
        if self.number.get().is_some() {
            return Ok(());
        }
        let (owner, ttl, sent) = (self.opening.owner.clone(), self.opening.ttl, self.opening.clock.now());
        let (places, link) = (Arc::clone(&self.places), Arc::downgrade(&self.link));
        let number =
            self.link.send(Operation::Open, None, move |state, now| state.open(owner, ttl, now, places, link)).await?;
        let _ = self.number.set(number);
        self.places.session.confirm(sent);
        Ok(())
    }

    /// The session's number. Before the session is open, 0, which no session has.
    fn number(&self) -> u64 {
        self.number.get().copied().unwrap_or(0)
    }

    fn tag(&self, id: Option<RequestId>) -> Tag {
        Some((self.number(), id))
    }
}

impl Served for MemorySession {
    type Dial = Way;

    fn places(&self) -> &Arc<Places> {
        &self.places
    }

    fn answers_inline(&self) -> bool {
        !self.link.is_scripted()
    }

    async fn wait_until(&self, clock: &dyn Clock, until: Moment) -> Result<()> {
        let mut over = clock.sleep_until(until);
        loop {
            // A session may expire at `expiry`: a waiter must look then, and this one does.
            let expiry = self.link.shared.with(|state, _| state.next_expiry());
            select! {
                biased;
                () = &mut over => break,
                () = self.link.shared.clock.sleep_until(expiry) => {}
            }
        }
        match self.link.is_cut() {
            true => Err(Error::new(ErrorKind::Unreachable, "next", "the client is cut off from the store").retryable()),
            false => Ok(()),
        }
    }

    async fn enter(&self, link: &Link, entry: &Entry, _: bool) -> Result<Enter> {
        let (session, entry, tag) = (self.number(), entry.clone(), self.tag(Some(entry.id)));
        link.send(Operation::Enter, tag, move |state, _| state.enter(session, &entry)).await
    }

    async fn leave(&self, link: &Link, place: &PlaceId, seq: Option<u64>) -> Result<bool> {
        let (session, place) = (self.number(), place.clone());
        link.send(Operation::Leave, self.tag(None), move |state, _| state.leave(session, &place, seq)).await
    }

    async fn lighten(&self, link: &Link, place: &PlaceId, seq: u64, claim: Claim) -> Result<bool> {
        let name = place.name.clone();
        link.send(Operation::Lighten, self.tag(None), move |state, _| state.lighten(&name, seq, claim)).await
    }

    async fn withdraw(&self, link: &Link, place: &PlaceId) -> Result<Option<u64>> {
        let (session, place) = (self.number(), place.clone());
        let leave = move |state: &mut StoreState, _| state.leave(session, &place, None);
        link.send(Operation::Withdraw, self.tag(None), leave).await.map(|_| None)
    }

    async fn renew(&self, link: &Link, _: &[(PlaceId, u64)]) -> Result<bool> {
        let session = self.number();
        link.send(Operation::Renew, self.tag(None), move |state, now| state.renew(session, now)).await
    }

    fn tells_of_waiters(&self) -> bool {
        true
    }

    async fn watch(&self, link: &Link, place: &PlaceId, seq: u64) -> Result<bool> {
        let name = place.name.clone();
        link.send(Operation::Watch, self.tag(None), move |state, _| state.watch(&name, seq)).await
    }

    async fn close(&self, link: &Link) -> Result<()> {
        let session = self.number();
        // The request has no tag: a close ends the session's held requests, and is none of them.
        link.send(Operation::Other, None, move |state, _| state.end(session, Loss::Closed)).await
    }
}

/// The route to the store: a connection is the client's link, on which its session is opened first.
pub(super) struct Way {
    pub(super) link: Arc<Link>,
    pub(super) session: Option<Arc<MemorySession>>,
}

impl Dial for Way {
    type Connection = Link;

    fn dial(&self, _: u64) -> BoxFuture<'_, Result<Arc<Link>>> {
        Box::pin(async move {
            if let Some(session) = &self.session {
                session.open().await?;
            }
            Ok(Arc::clone(&self.link))
        })
    }

    fn too_slow(&self, _: Duration) -> Error {
        unanswered(Operation::Open)
    }

    fn is_alive(_: &Link) -> bool {
        true
    }
}
