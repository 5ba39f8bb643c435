//! A place: its standing, and its departure.

use std::sync::Arc;

use futures_core::future::BoxFuture;

use super::layout::numbered;
use super::lighten::Lighter;
use super::places::Node;
use super::session::ZooKeeperSession;
use super::wakes::Waiter;
use crate::error::Result;
use crate::queue::Claim;
use crate::store::{Entry, Left, Loss, Place, PlaceId, Standing};
use crate::time::{Moment, outcome_before};

pub(super) struct ZooKeeperPlace {
    pub(super) session: Arc<ZooKeeperSession>,
    pub(super) id: PlaceId,
    pub(super) node: Node,
    pub(super) standing: Standing,
    /// Only while waiting.
    pub(super) waiter: Option<Box<Waiter>>,
    /// For a reader, a writer or a permit, whose nodes' data needs it.
    pub(super) entry: Option<Arc<Entry>>,
    /// A lighter claim under way.
    pub(super) lighter: Option<Box<Lighter>>,
}

impl ZooKeeperPlace {
    /// A place whose node has this standing; a waiting place has a `waiter`.
    pub(super) fn new(
        session: &Arc<ZooKeeperSession>,
        entry: &Arc<Entry>,
        node: Node,
        standing: Standing,
        waiter: Option<Box<Waiter>>,
    ) -> Self {
        let id = PlaceId { name: entry.name.clone(), request: entry.id };
        let entry = (entry.claim != Claim::MUTEX).then(|| Arc::clone(entry));
        Self { session: Arc::clone(session), id, node, standing, waiter, entry, lighter: None }
    }

    pub(super) fn is_mutex(&self) -> bool {
        self.node.claim == Claim::MUTEX
    }

    pub(super) fn path(&self) -> Result<String> {
        self.session.path(&self.id.name, self.id.request, self.node)
    }

    /// The name of its node.
    pub(super) fn own_name(&self, key: &str) -> Result<String> {
        let layout = self.session.config.layout_for(self.node.claim)?;
        Ok(numbered(layout.prefix(self.id.request, self.node.claim, key), self.node.number))
    }

    pub(super) fn is_granted(&mut self) {
        self.standing = Standing::Granted(self.node.grant());
        let waiter = self.waiter.take();
        if let Some(waiter) = &waiter
            && self.is_mutex()
        {
            self.session.fronts.begins_at(&self.id.name, waiter.parent, self.node.number);
        }
        self.session.places.hold(self.id.request, waiter.and_then(|waiter| waiter.own()));
    }

    pub(super) fn is_lost(&mut self, loss: Loss) {
        (self.standing, self.waiter) = (Standing::Lost(loss), None);
        self.session.places.forget(self.id.request);
    }
}

impl Place for ZooKeeperPlace {
    fn id(&self) -> PlaceId {
        self.id.clone()
    }

    fn standing(&self) -> Standing {
        self.standing
    }

    fn next(&mut self, until: Moment) -> BoxFuture<'_, Result<Standing>> {
        Box::pin(async move {
            let clock = Arc::clone(&self.session.clock);
            outcome_before(&*clock, until, self.settle()).await.transpose()?;
            Ok(self.standing)
        })
    }

    fn lighten(&mut self, claim: Claim) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.lighten_to(claim))
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<Left>> {
        Box::pin(async move {
            let (places, request) = (&self.session.places, self.id.request);
            // Not the session's state: the session forgets a place whose node is gone, and the lighter node may have appeared later.
            let lighter = self.lighter.as_ref().map(|lighter| self.node.with(lighter.claim));
            places.unwatch(request);
            if lighter.is_some() {
                self.session.doubts.note(&self.id.name, request);
            }
            let left = match self.session.delete_place("leave", &self.id.name, request, (self.node, lighter)).await {
                Ok(true) => Left::Released,
                Ok(false) => Left::AlreadyGone,
                Err(error) => {
                    places.hold(request, None);
                    return Err(error);
                }
            };
            self.is_lost(Loss::Removed);
            Ok(left)
        })
    }
}
