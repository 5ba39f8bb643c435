//! A session of this layout, and a reader without a session: their greetings on a connection, and the messages that they receive.

use std::sync::Arc;

use futures_util::future;
use redis::{RedisError, Value};

use super::fault;
use super::janitor::{Janitor, clear_up};
use super::layout::{KeySpace, VERSION};
use super::scripts::{self, BUCKETS_PER_CALL, Open, Renewed};
use crate::error::{Error, ErrorKind, Result};
use crate::kit::fault::Meaning;
use crate::kit::served::{Enter, HeldIn, Places, PlacesByName, Served, portions, repair};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Entry, Loss, Opening, PlaceId, RequestId};
use crate::stores::redis::wire::{Chores, Connection, Dialler, Greeting, LinkUser, RestartWatch, Server};

/// How many requests of a closing session are in flight concurrently. The server takes in a few of these requests at a time, at 8 KiB and a
/// millisecond each, and serves other clients in between.
const CLOSES: usize = 8;

/// A client that looks at queues without a session.
pub(super) struct Reader {
    layout: Arc<KeySpace>,
}

impl Reader {
    pub(super) fn new(layout: Arc<KeySpace>) -> Self {
        Self { layout }
    }
}

impl LinkUser for Reader {
    fn only_looks(&self) -> bool {
        true
    }

    fn greet<'a>(&'a self, connection: &'a Arc<Connection>, server: &'a Server) -> Greeting<'a> {
        Box::pin(async {
            let version = connection.command("connect", &scripts::version(&self.layout)).await?;
            if let Value::BulkString(found) = version
                && found != VERSION.as_bytes()
            {
                return Err(unknown_layout(String::from_utf8_lossy(&found).into_owned()));
            }
            if server.is_replica() {
                tracing::warn!(server = %connection.server_name(), "This server is a replica. It shows locks as old as its copy.");
            }
            Ok(None)
        })
    }

    fn meaning(&self, error: &RedisError) -> Option<Meaning> {
        fault::meaning(error)
    }
}

/// The state of a session, which outlives its connections.
pub(super) struct FairSession {
    pub(super) layout: Arc<KeySpace>,
    /// Drawn at random.
    pub(super) session: u64,
    pub(super) opening: Opening,
    pub(super) places: Arc<Places>,
    pub(super) janitor: Arc<Janitor>,
    restarts: RestartWatch,
}

impl FairSession {
    pub(super) fn new(layout: Arc<KeySpace>, session: u64, opening: Opening, places: Places) -> Self {
        Self {
            layout,
            session,
            opening,
            places: Arc::new(places),
            janitor: Arc::new(Janitor::new(session)),
            restarts: RestartWatch::default(),
        }
    }

    pub(super) fn sees_restarts(&self) -> bool {
        self.restarts.sees_restarts()
    }

    /// Ends the session if the server restarted, or is another server, which may have forgotten grants or remember ended ones. Also
    /// ends the session if the user may not ask whether the server restarted.
    fn end_if_restarted(&self, server: &Server, connection: &Connection) {
        let ago = self.opening.clock.now().since(self.places.session.confirmed());
        let Some(loss) = self.restarts.met(server, ago).filter(|_| self.places.epoch() != 0) else { return };
        tracing::warn!(server = %connection.server_name(), %loss, "The session and its locks are lost.");
        self.places.end(loss);
    }

    /// Opens the session, or resumes it on a new connection. The server then refuses requests that are still on their way on an older one.
    async fn open_or_resume(&self, connection: &Connection) -> Result<()> {
        if self.places.session.has_ended() {
            return Ok(());
        }
        let sent = self.opening.clock.now();
        if self.places.epoch() == 0 {
            let open = scripts::open(&self.layout, self.session, self.opening.ttl, &self.opening.owner);
            match connection.run("open session", &open).await? {
                Open::Opened(epoch) => self.places.raise(epoch),
                Open::Layout(found) => return Err(unknown_layout(found)),
            }
        } else {
            let resume = scripts::resume(&self.layout, self.session, self.opening.ttl);
            match connection.run("resume session", &resume).await? {
                Some(epoch) => self.places.raise(epoch),
                None => {
                    self.places.end(Loss::Expired);
                    return Ok(());
                }
            }
        }
        self.places.session.confirm(sent);
        Ok(())
    }

    /// Renews, and asks about some of the buckets in which the session holds. Returns whether the session lives.
    async fn renew_portion(&self, connection: &Connection, held: &[HeldIn], known: &[(PlaceId, u64)]) -> Result<bool> {
        let renew = scripts::renew(&self.layout, self.session, self.opening.ttl, held, known);
        let Renewed::Alive { broken, lost } = connection.run("renew", &renew).await? else { return Ok(false) };
        broken.into_iter().for_each(|broken| self.places.receive_break(broken));
        for lost in lost {
            if let Some(held) = held.get(lost.index) {
                tracing::warn!(bucket = held.bucket, loss = %Loss::Removed, "The server lost a key of locks that were held. Their holders are notified.");
                self.places.lost_bucket(*held, lost.born);
            }
        }
        Ok(true)
    }

    /// Gives up these places, and the session with the last of them. A second try after a cut does not repeat finished requests.
    async fn give_up(&self, connection: &Connection, mut left: Vec<PlacesByName>) -> Result<()> {
        let last = left.pop().unwrap_or_default();
        for batch in left.chunks(CLOSES) {
            future::try_join_all(batch.iter().map(|portion| self.give_up_portion(connection, portion, false))).await?;
        }
        self.give_up_portion(connection, &last, true).await
    }

    /// Passes over a name with damaged keys: without the session, no client holds it.
    async fn give_up_portion(
        &self,
        connection: &Connection,
        portion: &[(Name, Vec<RequestId>)],
        last: bool,
    ) -> Result<()> {
        let close = scripts::close(&self.layout, self.session, portion, last);
        match connection.run("close session", &close).await {
            Ok(()) => portion.iter().flat_map(|(_, ids)| ids).for_each(|id| self.places.forget(*id)),
            // The script continued with the other names.
            Err(error) if error.kind() == ErrorKind::Layout => {
                tracing::warn!(%error, "Some locks of a session that closes cannot be released, because their keys are not whole.");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Looks at the waiting places, and clears away remains of dead sessions.
    fn chores(&self, connection: &Arc<Connection>) -> Chores {
        let weak = Arc::downgrade(connection);
        let clear_up = clear_up(weak.clone(), Arc::clone(&self.layout), Arc::clone(&self.janitor));
        let (layout, session) = (Arc::clone(&self.layout), self.session);
        let look = async move |connection: &Connection, asked: &PlacesByName| {
            connection.run("look", &scripts::look(&layout, session, asked, false)).await
        };
        let repair = repair(weak, Arc::clone(&self.places), Arc::clone(&self.opening.clock), look);
        Box::pin(async move {
            future::join(repair, clear_up).await;
        })
    }
}

impl Served for FairSession {
    type Dial = Dialler;

    fn places(&self) -> &Arc<Places> {
        &self.places
    }

    fn bucket_of(&self, name: &Name) -> u16 {
        self.layout.bucket_of(name)
    }

    /// The script always checks whether the request is there already.
    async fn enter(&self, connection: &Connection, entry: &Entry, _again: bool) -> Result<Enter> {
        connection.run("enter", &scripts::enter(&self.layout, self.session, self.places.epoch(), entry)).await
    }

    async fn leave(&self, connection: &Connection, place: &PlaceId, seq: Option<u64>) -> Result<bool> {
        connection.run("leave", &scripts::leave(&self.layout, (&place.name, place.request), seq)).await
    }

    async fn lighten(&self, connection: &Connection, place: &PlaceId, seq: u64, claim: Claim) -> Result<bool> {
        let lighten = scripts::lighten(&self.layout, self.session, (&place.name, place.request), seq, claim);
        connection.run("downgrade", &lighten).await
    }

    async fn withdraw(&self, connection: &Connection, place: &PlaceId) -> Result<Option<u64>> {
        let withdraw = scripts::withdraw(&self.layout, self.session, (&place.name, place.request));
        Ok(connection.run("cancel", &withdraw).await?.0)
    }

    async fn renew(&self, connection: &Connection, known: &[(PlaceId, u64)]) -> Result<bool> {
        let held = self.places.held_in();
        let mut portions: Vec<&[HeldIn]> = held.chunks(BUCKETS_PER_CALL).collect();
        if portions.is_empty() {
            portions.push(&[]);
        }
        // All requests are in flight concurrently, so that a renewal takes one round trip.
        let calls = portions.iter().map(|portion| self.renew_portion(connection, portion, known));
        Ok(!future::try_join_all(calls).await?.contains(&false))
    }

    fn tells_of_waiters(&self) -> bool {
        true
    }

    async fn watch(&self, connection: &Connection, place: &PlaceId, seq: u64) -> Result<bool> {
        connection.run("look", &scripts::watch(&self.layout, (&place.name, place.request), seq)).await
    }

    fn tidy_up(&self) {
        self.janitor.call();
    }

    async fn close(&self, connection: &Connection) -> Result<()> {
        self.give_up(connection, portions(self.places.by_name())).await
    }
}

impl LinkUser for FairSession {
    fn channel(&self) -> Option<String> {
        Some(self.layout.session_key(self.session))
    }

    fn greet<'a>(&'a self, connection: &'a Arc<Connection>, server: &'a Server) -> Greeting<'a> {
        Box::pin(async move {
            self.end_if_restarted(server, connection);
            self.open_or_resume(connection).await?;
            self.places.connected(connection.number);
            Ok(Some(self.chores(connection)))
        })
    }

    fn received(&self, connection: u64, _channel: &[u8], message: &[u8]) {
        self.places.receive(connection, message);
    }

    fn disconnected(&self, connection: u64) {
        self.places.disconnected(connection);
    }

    /// The session is lost, even if this server later becomes the primary again with the other server's data.
    fn demoted(&self) {
        if self.places.end(Loss::Demoted) {
            tracing::warn!(loss = %Loss::Demoted, "The session and its locks are lost.");
        }
    }

    fn meaning(&self, error: &RedisError) -> Option<Meaning> {
        fault::meaning(error)
    }
}

fn unknown_layout(found: String) -> Error {
    let message = "the keys under this prefix have a layout that this release does not know: use another prefix, or the release that made them";
    Error::new(ErrorKind::Layout, "connect", message).with("layout", found).with("known", VERSION)
}
