//! The client's half of a store whose server keeps the queues: one request joins a queue and brings the standing, one leaves it, and the
//! server tells a session that it was granted, or broken. What a session knows of its own places, how it waits and how it looks at them
//! anew are the same whatever language the server's half is written in.
//!
//! A store says how it asks its server ([`Served`]); the way there is a [`Reconnect`].

mod answers;
mod enter;
mod hub;
mod messages;
mod place;
mod repair;
mod slot;

use std::future::Future;
use std::sync::Arc;

pub(crate) use self::answers::{Broken, Enter, Lightened, Look, Looked, Seen, Withdrawn};
pub(crate) use self::enter::enter;
pub(crate) use self::hub::{HeldIn, Hub, Over, REPAIR};
#[cfg(test)]
pub(crate) use self::messages::{News, news};
pub(crate) use self::messages::{place_id, request_id};
pub(crate) use self::repair::{Places, portions, repair};
use super::own_places::over;
use super::reconnect::{Dial, Reconnect};
use crate::error::Result;
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Entry, PlaceId, RequestId};

/// A session of such a store: what lives as long as it does, on whichever connection, and what its server is asked.
pub(crate) trait Served: Send + Sync + 'static {
    /// How a connection to the server is made.
    type Dial: Dial;

    /// What it knows of its own places.
    fn hub(&self) -> &Arc<Hub>;

    /// The bucket of a name.
    fn bucket_of(&self, name: &Name) -> u16;

    /// The session has this epoch, at least: requests that carry an older one are refused.
    fn raise(&self, epoch: u64);

    /// Joins a queue at its tail. `again` says that this request may have been sent before.
    fn enter(
        &self,
        connection: &Connection<Self>,
        entry: &Entry,
        again: bool,
    ) -> impl Future<Output = Result<Enter>> + Send;

    /// Gives up a place, that with the number `seq` unless it is `None`: whether it was there.
    fn leave(
        &self,
        connection: &Connection<Self>,
        place: &PlaceId,
        seq: Option<u64>,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Replaces the claim of the grant `seq` by a lighter one.
    fn lighten(
        &self,
        connection: &Connection<Self>,
        place: &PlaceId,
        seq: u64,
        claim: Claim,
    ) -> impl Future<Output = Result<Lightened>> + Send;

    /// Takes a request back, so that it has no effect from now on, whenever it arrives.
    fn withdraw(
        &self,
        connection: &Connection<Self>,
        place: &PlaceId,
    ) -> impl Future<Output = Result<Withdrawn>> + Send;
}

/// What requests of a session are sent on.
pub(crate) type Connection<S> = <<S as Served>::Dial as Dial>::Connection;

/// What a session and its places share.
pub(crate) struct Core<S: Served> {
    pub(crate) link: Arc<Reconnect<S::Dial>>,
    pub(crate) member: Arc<S>,
}

impl<S: Served> Core<S> {
    /// Refuses what only a living session can do.
    pub(crate) fn alive(&self, operation: &'static str) -> Result<()> {
        match self.member.hub().over() {
            Over::No => Ok(()),
            Over::Here | Over::There => Err(over(operation)),
        }
    }

    /// Takes a request back.
    pub(crate) async fn withdraw(&self, name: &Name, id: RequestId) -> Result<()> {
        // Nothing takes effect in a session that the server has no more.
        if self.member.hub().over() != Over::There {
            let connection = self.link.connection().await?;
            let place = PlaceId { name: name.clone(), request: id };
            let withdrawn = self.member.withdraw(&connection, &place).await?;
            withdrawn.epoch.into_iter().for_each(|epoch| self.member.raise(epoch));
        }
        self.member.hub().forget(id);
        Ok(())
    }
}
