//! The client's half of a store whose server keeps the queues: a request joins a queue and brings the standing, another request leaves it.
//! The server notifies a session of its grants and breaks. This module keeps a session's places, waits, and looks again, for server halves
//! in every language.
//!
//! A store defines the requests to its server: about a session and its places in [`Served`], about queues in [`Server`](super::server::Server). The
//! way there is a [`Reconnect`](super::reconnect::Reconnect). Everything else of the contract is here, once.

mod answers;
mod enter;
mod messages;
mod places;
mod repair;
mod session;
mod slot;

use std::future::Future;
use std::sync::Arc;

pub(crate) use self::answers::{Broken, Enter, Look, Looked, Seen};
#[cfg(any(test, fencelock_fuzzing))]
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

/// A session of such a store, which outlives its connections, and its requests to the server.
pub(crate) trait Served: Send + Sync + 'static {
    /// The way in which the session connects to its server.
    type Dial: Dial;

    /// The places of the session.
    fn places(&self) -> &Arc<Places>;

    /// The bucket of a name. By default there is a single one.
    fn bucket_of(&self, _name: &Name) -> u16 {
        0
    }

    /// Whether the server answers within the call ([`Session::answers_inline`]). By default it is far away.
    fn answers_inline(&self) -> bool {
        false
    }

    /// Sleeps for as long as a place waits; an error reports that the server sent nothing. A server without a thread of its own meanwhile
    /// ends what is due.
    fn wait_until(&self, clock: &dyn Clock, until: Moment) -> impl Future<Output = Result<()>> + Send {
        futures_util::FutureExt::map(clock.sleep_until(until), Ok)
    }

    /// Joins a queue at its tail. `again` says that this request may have been sent before.
    fn enter(
        &self,
        connection: &Connection<Self>,
        entry: &Entry,
        again: bool,
    ) -> impl Future<Output = Result<Enter>> + Send;

    /// Gives up a place, only with the number `seq` unless that is `None`. Returns whether the place was there.
    fn leave(
        &self,
        connection: &Connection<Self>,
        place: &PlaceId,
        seq: Option<u64>,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Replaces the claim of the grant `seq` by a lighter one. Returns whether there is such a grant.
    fn lighten(
        &self,
        connection: &Connection<Self>,
        place: &PlaceId,
        seq: u64,
        claim: Claim,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Withdraws a request: from now on it has no effect, even if it arrives later. Returns the epoch that requests need from now on; `None` if
    /// the session has ended, which admits no request.
    fn withdraw(
        &self,
        connection: &Connection<Self>,
        place: &PlaceId,
    ) -> impl Future<Output = Result<Option<u64>>> + Send;

    /// Prolongs the session and its places, and returns whether the session lives. Passes breaks and losses on to the places. The server
    /// need not report the broken grants in `known` again.
    fn renew(
        &self,
        connection: &Connection<Self>,
        known: &[(PlaceId, u64)],
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Whether the server notifies a session of the first waiter behind a grant, on request. By default it does not.
    fn tells_of_waiters(&self) -> bool {
        false
    }

    /// Asks for a notification of the first waiter behind the grant `seq`. Returns whether a waiter is there already, or the grant is gone.
    fn watch(
        &self,
        connection: &Connection<Self>,
        place: &PlaceId,
        seq: u64,
    ) -> impl Future<Output = Result<bool>> + Send {
        let _ = (connection, place, seq);
        async { Ok(true) }
    }

    /// Returns the grants that have waiters, from a server that sends no notification of waiters.
    fn waited_for(
        &self,
        connection: &Connection<Self>,
        grants: &[PlaceId],
    ) -> impl Future<Output = Result<Vec<RequestId>>> + Send {
        let _ = (connection, grants);
        async { Ok(Vec::new()) }
    }

    /// Starts to clear away some remains of dead sessions, if they leave any. No caller waits for the end.
    fn tidy_up(&self) {}

    /// Ends the session and all of its places. Forgets each place that it gave up, so that a second try after a cut does not repeat that
    /// request.
    fn close(&self, connection: &Connection<Self>) -> impl Future<Output = Result<()>> + Send;
}

/// The connection of a session.
pub(crate) type Connection<S> = <<S as Served>::Dial as Dial>::Connection;
