//! Lighter claims: a writer that becomes a reader, a permit that gives a part back.
//!
//! A lighter claim is another node with the same number, created before the heavier one is deleted, as Curator's downgrade does it: a
//! waiter behind always sees one of the two.

use std::sync::Arc;

use fencelock_zookeeper as wire;
use fencelock_zookeeper::{CreateMode, ErrorKind as Wire};
use futures_util::future;

use super::data;
use super::fault::fault;
use super::place::ZooKeeperPlace;
use super::session::ZooKeeperSession;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::own_places::not_there;
use crate::queue::Claim;
use crate::store::{Entry, Standing};

/// A lighter claim under way.
pub(super) struct Lighter {
    pub(super) claim: Claim,
    /// The transaction that made its node, set once a listing showed the heavier one as well: from then on the place always has a node. If
    /// the heavier one is gone, the client need not know which client deleted it.
    made_by: Option<i64>,
}

impl ZooKeeperPlace {
    /// Takes the lighter claim; the next call continues after a failure half-way.
    pub(super) async fn lighten_to(&mut self, claim: Claim) -> Result<()> {
        let half_way = self.lighter.as_ref().map(|lighter| lighter.claim);
        if claim == self.node.claim && half_way.is_none() {
            return Ok(());
        }
        self.session.config.layout_for(claim)?;
        if !matches!(self.standing, Standing::Granted(_)) {
            return Err(Error::new(ErrorKind::Lost, "downgrade", "the place is not held"));
        }
        if half_way.is_some_and(|other| other != claim) {
            self.go_on_lightening().await?;
            return Box::pin(self.lighten_to(claim)).await;
        }
        self.lighter.get_or_insert_with(|| Box::new(Lighter { claim, made_by: None }));
        self.go_on_lightening().await
    }

    async fn go_on_lightening(&mut self) -> Result<()> {
        let (Some(entry), Some(lighter)) = (&self.entry, &mut self.lighter) else { return Ok(()) };
        let (session, request) = (Arc::clone(&self.session), self.id.request);
        let path = |claim: Claim| session.path(&self.id.name, request, self.node.with(claim));
        let (heavy, light) = (path(self.node.claim)?, path(lighter.claim)?);
        session.places.lightening(request, lighter.claim);
        if lighter.made_by.is_none() {
            let note = data::lighter(&session.owner, entry, lighter.claim, self.node.czxid);
            let made = session.make_lighter(&light, &heavy, &note).await;
            lighter.made_by = made.inspect_err(|_| session.doubts.note(&self.id.name, request))?;
        }
        let is_there = match lighter.made_by {
            Some(made_by) => session.replace(&heavy, &light, made_by).await?,
            None => false,
        };
        if !is_there {
            session.delete("downgrade", &light).await?;
            return Err(not_there());
        }
        self.node = self.node.with(lighter.claim);
        self.lighter = None;
        session.places.lightened(request, self.node.claim);
        Ok(())
    }
}

impl ZooKeeperSession {
    /// Marks a node of ours as granted; `false` if the node is gone.
    pub(super) async fn mark(&self, operation: &'static str, path: &str, entry: &Entry) -> Result<bool> {
        match self.client.set_data(path, &data::granted(&self.owner, entry), None).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == Wire::NoNode => Ok(false),
            Err(error) => Err(fault(operation, &error)),
        }
    }

    /// Creates the node of a lighter claim, or finds the node of a request whose answer was lost. Returns the transaction that created it;
    /// `None` if the heavier node was gone before: another client may have been granted.
    async fn make_lighter(&self, light: &str, heavy: &str, note: &[u8]) -> Result<Option<i64>> {
        let failed = |error: wire::Error| fault("downgrade", &error);
        let created = self.client.create(light, note, CreateMode::Ephemeral, &self.config.node_acl());
        // Requests of one connection are answered in order, so these reads show the state after the create.
        let (made, beside) = (self.client.exists(light), self.client.exists(heavy));
        let (created, made, beside) = future::join3(created, made, beside).await;
        if let Err(error) = created
            && !matches!(error.kind(), Wire::NodeExists | Wire::NoNode)
        {
            return Err(failed(error));
        }
        let (made, beside) = (made.map_err(failed)?, beside.map_err(failed)?);
        let made = made.filter(|stat| stat.ephemeral_owner == self.id && beside.is_some());
        Ok(made.map(|stat| stat.czxid))
    }

    /// Deletes the heavier node. Returns whether the lighter one holds the place then.
    async fn replace(&self, heavy: &str, light: &str, made_by: i64) -> Result<bool> {
        match self.client.delete(heavy, None).await {
            Ok(()) => Ok(true),
            // A request of ours without a reply deleted the node, or a client that breaks the grant, which then deletes the lighter node as well.
            Err(error) if error.kind() == Wire::NoNode => {
                let stat = self.client.exists(light).await.map_err(|error| fault("downgrade", &error))?;
                Ok(stat.is_some_and(|stat| stat.czxid == made_by))
            }
            Err(error) => Err(fault("downgrade", &error)),
        }
    }
}
