//! The client's half of a store whose server keeps the queues: one request joins a queue and brings the standing, one leaves it, and the
//! server tells a session that it was granted, or broken. What a session knows of its own places, how it waits and how it looks at them
//! anew are the same whatever language the server's half is written in.
//!
//! A store says how it asks its server: about a session and its places in [`Served`], about queues in [`Server`](super::server::Server). The way there is a
//! [`Reconnect`](super::reconnect::Reconnect). Everything else of the contract is here, once.

mod answers;
mod enter;
mod messages;
mod places;
mod repair;
mod session;
mod slot;

use std::future::Future;
use std::sync::Arc;

pub(crate) use self::answers::{Broken, Enter, Lightened, Look, Looked, Seen, Withdrawn};
#[cfg(test)]
pub(crate) use self::messages::{News, news};
pub(crate) use self::messages::{place_id, request_id};
pub(crate) use self::places::{HeldIn, Places, REPAIR};
pub(crate) use self::repair::{PlacesByName, portions, repair};
use super::reconnect::Dial;
use crate::error::Result;
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Entry, PlaceId, RequestId};
use crate::time::{Clock, Moment};

/// A session of such a store: what lives as long as it does, on whichever connection, and what its server is asked.
pub(crate) trait Served: Send + Sync + 'static {
    /// How a connection to the server is made.
    type Dial: Dial;

    /// What it knows of its own places.
    fn places(&self) -> &Arc<Places>;

    /// The bucket of a name.
    fn bucket_of(&self, name: &Name) -> u16;

    /// Whether the server answers within the call ([`Session::answers_inline`]). By default it is far away.
    fn answers_inline(&self) -> bool {
        false
    }

    /// Sleeps for as long as a place waits; an error says that nothing was heard of the server. A server without a thread of its own uses
    /// the time to end what is due.
    fn wait_until(&self, clock: &dyn Clock, until: Moment) -> impl Future<Output = Result<()>> + Send {
        async move {
            clock.sleep_until(until).await;
            Ok(())
        }
    }

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

    /// Prolongs the session and all that it holds: whether it lives. Its places are told what was broken or lost; the server need not tell
    /// again of the broken grants that are `known`.
    fn renew(
        &self,
        connection: &Connection<Self>,
        known: &[(PlaceId, u64)],
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Whether a session is told of the first who comes to wait behind a grant, where that was asked for. By default it is not.
    fn tells_of_waiters(&self) -> bool {
        false
    }

    /// Asks to be told of the first who comes to wait behind the grant `seq`. Says whether somebody waits, or the grant is gone.
    fn watch(
        &self,
        connection: &Connection<Self>,
        place: &PlaceId,
        seq: u64,
    ) -> impl Future<Output = Result<bool>> + Send {
        let _ = (connection, place, seq);
        async { Ok(true) }
    }

    /// Which of these grants others wait behind, where the session is not told.
    fn waited_for(
        &self,
        connection: &Connection<Self>,
        grants: &[PlaceId],
    ) -> impl Future<Output = Result<Vec<RequestId>>> + Send {
        let _ = (connection, grants);
        async { Ok(Vec::new()) }
    }

    /// Has some of what the dead left be cleared away, soon. Nobody waits for it.
    fn tidy_up(&self);

    /// Ends the session and all of its places. What was given up is forgotten: it is not asked for again when this is cut off and tried
    /// once more.
    fn close(&self, connection: &Connection<Self>) -> impl Future<Output = Result<()>> + Send;
}

/// What requests of a session are sent on.
pub(crate) type Connection<S> = <<S as Served>::Dial as Dial>::Connection;
