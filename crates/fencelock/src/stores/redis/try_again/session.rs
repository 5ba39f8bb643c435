//! A session of a layout without a queue: its side of the link, and its requests.

use std::sync::Arc;

use futures_util::future::join_all;
use redis::{RedisError, Value};

use super::dialect::Dialect;
use super::inspect;
use crate::error::Result;
use crate::kit::fault::Meaning;
use crate::kit::try_again::{Next, Places, Prolonged, Tried, Try, TryAgainSession, UnqueuedBackend, Work};
use crate::queue::Claim;
use crate::store::{Entry, Loss, Opening, PlaceId};
use crate::stores::redis::wire::{Connection, Dialler, Greeting, LinkUser, RestartWatch, Server};
use crate::token::FencingToken;

/// A client that looks at locks without a session.
pub(crate) struct Reader(pub(crate) Arc<Dialect>);

impl LinkUser for Reader {
    fn only_looks(&self) -> bool {
        true
    }

    fn meaning(&self, error: &RedisError) -> Option<Meaning> {
        self.0.meaning(error)
    }
}

/// The requests of a session, by the scripts of its layout.
pub(super) struct Asking {
    pub(super) dialect: Arc<Dialect>,
    pub(super) opening: Opening,
    pub(super) restarts: RestartWatch,
}

impl UnqueuedBackend for Asking {
    type Dial = Dialler;

    fn check(&self, entry: &Entry) -> Result<String> {
        self.dialect.check_entry(entry, &self.opening)
    }

    async fn take(&self, connection: &Connection, due: &Try, is_new: bool) -> Result<Tried> {
        let (operation, ttl) = (if is_new { "enter" } else { "next" }, self.opening.ttl);
        let at = self.dialect.at(&due.place);
        let quick = self.dialect.quick(&at, &due.said, ttl);
        if let Some(quick) = quick.filter(|_| is_new && due.claim == Claim::MUTEX)
            && connection.command("enter", &quick).await? == Value::Okay
        {
            return Ok(Tried::Granted(None));
        }
        connection.run(operation, &self.dialect.acquire(at, due.claim, &due.said, ttl)).await
    }

    /// A script takes keys of one slot.
    fn locks_per_call(&self) -> usize {
        if self.dialect.is_clustered { 1 } else { 256 }
    }

    async fn renew(&self, connection: &Connection, places: &[PlaceId]) -> Result<Prolonged> {
        let renew = self.dialect.renew(places.iter().map(|place| self.dialect.at(place)).collect(), self.opening.ttl);
        connection.run("renew", &renew).await.map(|lost| Prolonged { lost, unknown: Vec::new() })
    }

    async fn leave(&self, connection: &Connection, operation: &'static str, places: &[PlaceId]) -> Result<usize> {
        let leave = self.dialect.leave(places.iter().map(|place| self.dialect.at(place)).collect());
        connection.run(operation, &leave).await
    }

    async fn pass(&self, connection: &Connection, place: &PlaceId, next: &Next<'_>) -> Result<(usize, Option<Tried>)> {
        let Some(call) = self.dialect.pass(place, next, self.opening.ttl) else { return Ok((0, None)) };
        let (left, tried) = connection.run("leave", &call).await?;
        // The release counts without replicas. The grant to the next place needs their acknowledgement; otherwise that place asks again.
        let counts = tried.is_none() || connection.counts("next", None).await.is_ok();
        Ok((left, tried.filter(|_| counts)))
    }

    async fn lighten(&self, connection: &Connection, place: &PlaceId, _: Claim, said: &str) -> Result<bool> {
        let Some(call) = self.dialect.lighten(place, said, self.opening.ttl) else { return Ok(false) };
        connection.run("lighten", &call).await
    }

    async fn broken(
        &self,
        connection: &Connection,
        place: &PlaceId,
        token: Option<FencingToken>,
    ) -> Result<Option<Arc<str>>> {
        Ok(inspect::reason(inspect::breaks(connection, &self.dialect, &place.name).await?, place, token))
    }

    async fn hear(&self, connection: &Connection, places: &Places, work: &Work) {
        let clock = &self.opening.clock;
        // Unsubscribes first, as a caller may wait again for such a name. A needless subscription costs a message for each release, and
        // nothing else.
        join_all(work.ignore.iter().map(async |channel| drop(connection.unsubscribe(channel).await))).await;
        join_all(work.listen.iter().map(|(name, claim)| async move {
            let Some(channel) = self.dialect.channel(name, *claim) else { return };
            if let Some(before) = places.prepare_subscription(name, &channel, *claim, clock.now()) {
                let _ = connection.unsubscribe(&before).await;
            }
            let subscribed = connection.subscribe(&channel).await;
            if let Err(error) = &subscribed {
                tracing::warn!(%error, %name, "Cannot subscribe to the channel of this lock. It is tried every 0.5 to 1.5 s instead.");
            }
            places.subscribed(name, subscribed.is_ok(), clock.now());
        }))
        .await;
    }
}

/// A session's side of the link.
pub(super) struct SessionUser(pub(super) Arc<TryAgainSession<Asking>>);

impl LinkUser for SessionUser {
    /// A channel without messages: subscribing to it shows whether the user may subscribe.
    fn channel(&self) -> Option<String> {
        let channel = self.0.backend.dialect.channel?;
        Some(channel(&format!("fencelock:{:016x}", self.0.opening.owner.client), Claim::MUTEX))
    }

    fn greet<'a>(&'a self, connection: &'a Arc<Connection>, server: &'a Server) -> Greeting<'a> {
        Box::pin(async move {
            let (confirmed, sent) = (self.0.places.session.confirmed(), self.0.opening.clock.now());
            let loss = self.0.backend.restarts.met(server, sent.since(confirmed));
            if let Some(loss) = loss.filter(|_| self.0.places.session.is_open()) {
                tracing::warn!(server = %connection.server_name(), %loss, "The session and its locks are lost.");
                self.0.places.end(loss);
            }
            if !self.0.places.session.is_open() {
                // Sends a renewal without locks: a user without the right to renew receives the error now, and not while it holds a lock.
                connection.run("open session", &self.0.backend.dialect.renew(Vec::new(), self.0.opening.ttl)).await?;
                if let Some(channel) = self.channel() {
                    // Publishes as a release does, for the same reason.
                    connection.command("open session", redis::cmd("PUBLISH").arg(channel).arg("")).await?;
                }
                self.0.places.session.confirm(sent);
            }
            self.0.places.connected();
            Ok(Some(self.0.tries(connection)))
        })
    }

    fn received(&self, _: u64, channel: &[u8], _: &[u8]) {
        self.0.places.receive_release(channel);
    }

    /// A holder asks at once whether its locks are still there: the server may have restarted.
    fn disconnected(&self, _: u64) {
        self.0.places.disconnected();
        self.0.places.doubt();
    }

    /// Another server grants locks from now on, and may not have this server's grants.
    fn demoted(&self) {
        self.0.places.end(Loss::Demoted);
    }

    fn meaning(&self, error: &RedisError) -> Option<Meaning> {
        self.0.backend.dialect.meaning(error)
    }
}
