//! A session: its places, and the requests that join, withdraw and renew.

use std::future::poll_fn;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fencelock_zookeeper as wire;
use fencelock_zookeeper::{ErrorKind as Wire, WatchEvent};
use futures_core::future::BoxFuture;

use super::config::Config;
use super::doubts::Doubts;
use super::enter;
use super::fault::{fault, is_session_end};
use super::layout::{numbered, own_number};
use super::listing::{Fronts, Listing};
use super::path::LockPath;
use super::places::{Node, Places, RequestState};
use super::queue_view;
use crate::error::{ErrorKind, Result};
use crate::kit::own_places;
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Entered, Entry, Loss, Owner, PlaceId, PlaceList, Renewal, RequestId, Session};
use crate::time::{Clock, Moment};

/// The engine's clock, for the client's evidence of life.
#[derive(Debug)]
pub(super) struct WireClock(pub(super) Arc<dyn Clock>);

impl wire::Clock for WireClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.now().as_nanos())
    }
}

/// A moment by the client's clock.
pub(super) fn moment(at: Duration) -> Moment {
    Moment::from_nanos(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX))
}

/// The state that a session, its places and its events share.
pub(super) struct ZooKeeperSession {
    pub(super) client: wire::Client,
    pub(super) config: Arc<Config>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) owner: Owner,
    /// The `ephemeral_owner` of all nodes of this session.
    pub(super) id: i64,
    pub(super) places: Places,
    pub(super) doubts: Doubts,
    pub(super) fronts: Fronts,
    /// This session created a node below the URL's parent, which another client may have removed since.
    pub(super) parent_was_there: AtomicBool,
    /// The parent of the last lock that this session looked up did not exist.
    pub(super) names_are_new: AtomicBool,
    over: OnceLock<Loss>,
}

impl ZooKeeperSession {
    pub(super) fn new(client: wire::Client, config: Arc<Config>, clock: Arc<dyn Clock>, owner: Owner) -> Self {
        let id = client.session().id;
        let (parent_was_there, names_are_new) = (AtomicBool::new(false), AtomicBool::new(false));
        let places = Places::new(config.max_frame);
        Self {
            client,
            config,
            clock,
            owner,
            id,
            places,
            doubts: Doubts::default(),
            fronts: Fronts::default(),
            parent_was_there,
            names_are_new,
            over: OnceLock::new(),
        }
    }

    /// The path of the node that the request `id` made.
    pub(super) fn path(&self, name: &Name, id: RequestId, node: Node) -> Result<String> {
        let home = self.config.home(name)?;
        let prefix = self.config.layout_for(node.claim)?.prefix(id, node.claim, home.key);
        Ok(home.child(&numbered(prefix, node.number)))
    }

    /// The session has ended, for this reason unless another one is known.
    pub(super) fn end(&self, loss: Loss) {
        let _ = self.over.set(loss);
    }

    /// Returns `answer`, after noting what it says about the session.
    fn noted<T>(&self, answer: Result<T>) -> Result<T> {
        answer.inspect_err(|error| {
            if error.kind() == ErrorKind::Lost {
                self.end(Loss::Expired);
            }
        })
    }

    /// Why the session has ended, if that is known.
    pub(super) fn over(&self) -> Option<Loss> {
        self.over.get().copied()
    }

    /// Deletes a node of ours. Returns whether the node was there. An ended session has no node.
    pub(super) async fn delete(&self, operation: &'static str, path: &str) -> Result<bool> {
        match self.client.delete(path, None).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == Wire::NoNode || is_session_end(&error) => Ok(false),
            Err(error) => Err(fault(operation, &error)),
        }
    }

    /// Deletes the node of a place, and before it the lighter one, if any. Returns whether a node was there.
    pub(super) async fn delete_place(
        &self,
        operation: &'static str,
        name: &Name,
        id: RequestId,
        (node, lighter): (Node, Option<Node>),
    ) -> Result<bool> {
        let mut was_there = false;
        if let Some(lighter) = lighter {
            was_there = self.delete(operation, &self.path(name, id, lighter)?).await?;
        }
        Ok(self.delete(operation, &self.path(name, id, node)?).await? || was_there)
    }

    /// The nodes of our session among the requested ones, and the listing that showed them. Earlier requests on any connection of this
    /// session have taken effect by now, or never will, except the requests in [`Doubts`].
    pub(super) async fn own_nodes(
        &self,
        home: &LockPath<'_>,
        is_asked_for: impl Fn(&str) -> bool,
    ) -> wire::Result<(Listing, Vec<(String, wire::Stat)>)> {
        let listing = Listing::synced(&self.client, home.parent()).await?;
        let mut own = Vec::new();
        for node in listing.children.iter().filter(|node| is_asked_for(node)) {
            let stat = self.client.exists(&home.child(node)).await?;
            own.extend(stat.filter(|stat| stat.ephemeral_owner == self.id).map(|stat| (node.clone(), stat)));
        }
        Ok((listing, own))
    }

    /// Finds the node of a request whose answer was lost, by the id and our session.
    pub(super) async fn find(&self, name: &Name, id: RequestId, claim: Claim) -> Result<Option<Found>> {
        let home = self.config.home(name)?;
        let prefix = self.config.layout_for(claim)?.prefix(id, claim, home.key);
        let found = self.own_nodes(&home, |node| own_number(node, &prefix).is_some()).await;
        let (listing, own) = found.map_err(|error| fault("find request", &error))?;
        let Some((node, stat)) = own.into_iter().next() else {
            self.doubts.note(name, id);
            return Ok(None);
        };
        Ok(Some(Found { path: home.child(&node), stat, listing }))
    }

    /// Lists the queue behind a place of ours, and again whenever it has changed, until a waiter is there.
    async fn waited_for(&self, place: &PlaceId) -> Result<()> {
        let home = self.config.home(&place.name)?;
        let layout = self.config.layout_for(Claim::MUTEX)?;
        loop {
            let Some((node, _)) = self.places.nodes(place.request) else { return Ok(()) };
            let (children, _, mut watch) = match self.client.get_children_watched(home.parent()).await {
                Ok(listed) => listed,
                Err(error) if error.kind() == Wire::NoNode => return Ok(()),
                Err(error) => return Err(fault("look", &error)),
            };
            let (line, _) = queue_view::line(layout, home.key, children);
            if line.iter().any(|(other, _)| other.number > node.number) {
                return Ok(());
            }
            if poll_fn(|cx| watch.poll_fired(cx)).await == WatchEvent::SessionOver {
                return Err(own_places::over("look"));
            }
        }
    }

    async fn delete_doubtful(&self, name: &Name, id: RequestId, claim: Claim) -> Result<()> {
        if let Some(found) = self.find(name, id, claim).await? {
            self.delete("cancel", &found.path).await?;
        }
        Ok(())
    }

    async fn withdraw(&self, name: &Name, id: RequestId) -> Result<()> {
        match self.places.state(id) {
            None => return Ok(()),
            Some(RequestState::Ending) => {}
            Some(RequestState::Placed(placed)) => {
                self.places.unwatch(id);
                self.delete_place("cancel", name, id, (placed.node, placed.lighter)).await?;
            }
            Some(RequestState::Doubtful(claim)) => match self.delete_doubtful(name, id, claim).await {
                Ok(()) => {}
                // No request takes effect in an ended session.
                Err(error) if error.kind() == ErrorKind::Lost => {}
                Err(error) => return Err(error),
            },
        }
        self.places.forget(id);
        Ok(())
    }
}

/// A node found by [`ZooKeeperSession::find`], and the listing that showed it.
pub(super) struct Found {
    pub(super) path: String,
    pub(super) stat: wire::Stat,
    pub(super) listing: Listing,
}

pub(super) struct SessionHandle(pub(super) Arc<ZooKeeperSession>);

impl Session for SessionHandle {
    fn over(&self) -> Option<Loss> {
        self.0.over()
    }

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        Box::pin(async move { self.0.noted(enter::enter(&self.0, entry).await) })
    }

    fn withdraw<'a>(&'a self, name: &'a Name, id: RequestId) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.0.withdraw(name, id))
    }

    fn renew<'a>(&'a self, places: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>> {
        let confirmed = self.0.client.confirm();
        self.0.doubts.renewed();
        Box::pin(async move {
            let confirmed = self.0.noted(confirmed.await.map_err(|error| fault("renew", &error)))?;
            let is_gone = |request| self.0.places.state(request).is_none();
            let gone = own_places::gone(places, |_, request| is_gone(request).then_some(Loss::Removed));
            Ok(Renewal { gone, ..Renewal::at(moment(confirmed)) })
        })
    }

    fn waited_for<'a>(&'a self, place: &'a PlaceId) -> Option<BoxFuture<'a, Result<()>>> {
        if self.0.config.dialect.one_parent { None } else { Some(Box::pin(self.0.waited_for(place))) }
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let closed = self.0.client.close().await;
            self.0.end(Loss::Closed);
            closed.map_err(|error| fault("close session", &error))
        })
    }
}
