//! A session: what lives as long as it does, on whichever connection.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::{FutureExt, future};
use tokio::sync::Notify;
use tokio_postgres::Row;

use super::connection::{Chores, Connection, User, strange, value};
use super::link::{Dialler, Purpose, apart};
use super::url::Config;
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::kit::bucket::{bucket_of, first_to_clear};
use crate::kit::served::{
    Broken, Enter, Hub, Lightened, Look, Looked, Over, Places, Seen, Served, Withdrawn, portions, repair,
};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Entry, Loss, Opening, PlaceId, RequestId};

/// How many places are given up at once.
const AT_ONCE: usize = 64;
/// Into how many parts the deadline of a renewal falls: after the first one it is also sent on a connection of its own.
const PART: u32 = 3;

/// A session. Numbers of the server are signed: what is above 2^63 is below zero there, and nobody counts on their order.
pub(super) struct Member {
    config: Arc<Config>,
    /// Drawn at random, and a secret: whoever knows it can give up its places.
    session: i64,
    /// Where it is told of its grants. Drawn at random, too: whoever knew it could say so wrongly.
    bell: String,
    ttl: i64,
    pub(super) opening: Opening,
    pub(super) hub: Arc<Hub>,
    /// Which bucket is cleared up next.
    swept: AtomicI32,
    sweep: Notify,
}

/// In what time to look, as the server says it: a count of milliseconds, none for a number below 0.
fn look_in(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().map(Duration::from_millis)
}

impl Member {
    pub(super) fn new(config: Arc<Config>, session: u64, bell: u64, opening: Opening, hub: Hub) -> Self {
        let ttl = i64::try_from(opening.ttl.as_millis()).unwrap_or(i64::MAX).clamp(1, i64::from(i32::MAX) * 1000);
        Self {
            config,
            session: session.cast_signed(),
            bell: format!("fencelock_{bell:016x}"),
            ttl,
            opening,
            hub: Arc::new(hub),
            swept: AtomicI32::new(first_to_clear(session).into()),
            sweep: Notify::new(),
        }
    }

    /// Says the first words on a new connection.
    pub(super) async fn greet(&self, connection: &Connection) -> Result<()> {
        self.open_or_resume(connection).await?;
        self.hub.connected(connection.number);
        if self.hub.is_waiting() { connection.hear(&self.bell, || true).await } else { Ok(()) }
    }

    /// Opens the session, or goes on with it on a new connection: whatever is still on its way on an older one is refused.
    async fn open_or_resume(&self, connection: &Connection) -> Result<()> {
        if self.hub.over() != Over::No {
            return Ok(());
        }
        let sent = self.opening.clock.now();
        let is_new = self.hub.epoch() == 0;
        let epoch: i64 = if is_new {
            let owner = &self.opening.owner;
            let (pid, client) = (i64::from(owner.pid), owner.client.cast_signed());
            let session =
                [&self.session as _, &self.bell as _, &self.ttl as _, &owner.host as _, &pid as _, &client as _];
            connection.ask("open session", "open", &session).await?
        } else {
            connection.ask("resume session", "resume", &[&self.session, &self.ttl]).await?
        };
        if epoch == 0 {
            self.hub.end(Over::There, Loss::Expired);
            return Ok(());
        }
        self.hub.raise(epoch.cast_unsigned());
        self.hub.confirm(sent);
        if is_new { Ok(()) } else { self.reconcile(connection).await }
    }

    /// What the server knows of the session after a crash or a failover may be older than what it said: a place that was given up may be
    /// there again, and one that was granted may be missing.
    async fn reconcile(&self, connection: &Connection) -> Result<()> {
        let known: Vec<i64> = self.hub.by_name().into_values().flatten().map(|id| id.number.cast_signed()).collect();
        let unknown = connection.call("resume session", "unknown", &[&self.session, &known]).await?;
        let unknown = unknown.iter().map(|row| read_place("resume session", row)).collect::<Result<Vec<_>>>()?;
        if let Some((PlaceId { name, .. }, _)) = unknown.first() {
            let count = unknown.len();
            tracing::warn!(%name, count, "locks that were given up came back with the server, and are given up again");
        }
        self.leave_all(connection, unknown).await?;
        for held in portions(self.hub.held()) {
            let look = self.look(connection, &held).await?;
            let places = held.iter().flat_map(|(_, ids)| ids).zip(look.names.iter().flat_map(|name| &name.places));
            places.filter(|(_, seen)| !matches!(seen, Seen::Granted(_))).for_each(|(id, _)| self.hub.missing(*id));
        }
        Ok(())
    }

    /// How places of the session stand.
    async fn look(&self, connection: &Connection, asked: &Places) -> Result<Look> {
        let names: Vec<&str> = asked.iter().map(|(name, _)| name.as_str()).collect();
        let counts: Vec<i32> = asked.iter().map(|(_, ids)| i32::try_from(ids.len()).unwrap_or(i32::MAX)).collect();
        let ids = || asked.iter().flat_map(|(_, ids)| ids);
        let clients: Vec<i64> = ids().map(|id| id.client.cast_signed()).collect();
        let numbers: Vec<i64> = ids().map(|id| id.number.cast_signed()).collect();
        let seqs: Vec<i64> = ids().map(|id| self.hub.seq(*id).unwrap_or(0).cast_signed()).collect();
        let rows =
            connection.call("look", "look", &[&self.session, &names, &counts, &clients, &numbers, &seqs]).await?;
        let mut seqs = seqs.into_iter();
        let looked = rows.iter().map(|row| {
            let stands: Vec<i32> = value("look", row, 1)?;
            let place = |(stands, seq): (i32, i64)| match stands {
                0 => Seen::Granted(seq.cast_unsigned()),
                1 => Seen::Waiting(seq.cast_unsigned(), None),
                _ => Seen::Missing,
            };
            let places = stands.into_iter().zip(&mut seqs).map(place).collect();
            Ok(Looked { look_in: look_in(value("look", row, 0)?), places })
        });
        Ok(Look { alive: !rows.is_empty(), names: looked.collect::<Result<_>>()? })
    }

    /// Looks after the waiting places, and clears away what dead sessions left, until the connection ends.
    pub(super) fn chores(self: Arc<Self>, connection: Weak<Connection>) -> BoxFuture<'static, ()> {
        let (hub, clock, eye) = (Arc::clone(&self.hub), Arc::clone(&self.opening.clock), Arc::clone(&self));
        let look = async move |connection: &Connection, asked: &Places| eye.look(connection, asked).await;
        let repair = repair(connection.clone(), hub, clock, look);
        Box::pin(future::join(repair, self.clear_up(connection)).map(drop))
    }

    async fn clear_up(self: Arc<Self>, connection: Weak<Connection>) {
        loop {
            self.sweep.notified().await;
            let Some(connection) = connection.upgrade() else { return };
            let cleared = async {
                // Who holds or waits until now listens; who does neither, does not.
                connection.hear(&self.bell, || self.hub.has_places()).await?;
                let next = connection.ask("clear up", "clear_up", &[&self.swept.load(Ordering::Relaxed)]).await?;
                self.swept.store(next, Ordering::Relaxed);
                Ok::<_, Error>(())
            };
            if let Err(error) = cleared.await {
                tracing::debug!(%error, "the session cannot listen, or clear away what dead sessions left");
            }
        }
    }

    /// Says 0 where the place was not there, 1 where it was, and 2 where a transaction holds it, which only the patient wait for.
    async fn ask_to_leave(&self, on: &Connection, place: &PlaceId, seq: Option<u64>, patient: bool) -> Result<i32> {
        let (client, number) = (place.request.client.cast_signed(), place.request.number.cast_signed());
        let seq = seq.map(u64::cast_signed);
        on.ask("leave", "leave", &[&self.session, &place.name.as_str(), &client, &number, &seq, &patient]).await
    }

    /// What a transaction keeps from ending is waited for on a connection of its own.
    async fn leave_in_time(&self, place: &PlaceId, seq: Option<u64>) -> Result<bool> {
        let connection = apart(&self.config, Purpose::Patience, Some(&self.opening)).await?;
        match self.ask_to_leave(&connection, place, seq, true).await {
            Ok(2) => Err(kept("leave", &place.name)),
            Ok(answer) => Ok(answer == 1),
            Err(error) => Err(kept_waiting("leave", &place.name, error)),
        }
    }

    async fn leave_all(&self, connection: &Connection, places: Vec<(PlaceId, Option<u64>)>) -> Result<()> {
        for some in places.chunks(AT_ONCE) {
            let given_up = some.iter().map(async |(place, seq)| {
                self.leave(connection, place, *seq).await?;
                self.hub.forget(place.request);
                Ok::<_, Error>(())
            });
            future::try_join_all(given_up).await?;
        }
        Ok(())
    }
}

/// A place and its number, from the first four columns of a row.
fn read_place(operation: &'static str, row: &Row) -> Result<(PlaceId, Option<u64>)> {
    let number = |column| value::<i64>(operation, row, column).map(i64::cast_unsigned);
    let name = Name::new(value::<String>(operation, row, 1)?).map_err(|_: Error| strange(operation))?;
    let request = RequestId { client: number(2)?, number: number(3)? };
    Ok((PlaceId { name, request }, Some(number(0)?)))
}

/// The error of what waits for a transaction in which the lock is held (`hold`).
fn kept(operation: &'static str, name: &Name) -> Error {
    let message = "a transaction holds this grant, which cannot end before it (`hold`); pg_stat_activity shows it";
    Error::new(ErrorKind::Unreachable, operation, message).with("name", name).retryable()
}

/// The same, where the server said after a while that the request waited in vain; any other error as it is.
pub(super) fn kept_waiting(operation: &'static str, name: &Name, error: Error) -> Error {
    match (error.kind(), error.outcome()) {
        (ErrorKind::Unreachable, outcome) if outcome != Outcome::Unknown => kept(operation, name).with("cause", error),
        _ => error,
    }
}

impl User for Member {
    fn greet(self: Arc<Self>, connection: Arc<Connection>) -> BoxFuture<'static, Result<Option<Chores>>> {
        Box::pin(async move {
            Self::greet(&self, &connection).await?;
            Ok(Some(self.chores(Arc::downgrade(&connection))))
        })
    }

    fn heard(&self, connection: u64, message: &[u8]) {
        self.hub.heard(connection, message);
    }

    fn disconnected(&self, connection: u64) {
        self.hub.disconnected(connection);
    }
}

impl Served for Member {
    type Dial = Dialler;

    fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    fn bucket_of(&self, name: &Name) -> u16 {
        bucket_of(name)
    }

    async fn enter(&self, connection: &Connection, entry: &Entry, again: bool) -> Result<Enter> {
        let hears = connection.hears();
        let epoch = self.hub.epoch().cast_signed();
        let (client, number) = (entry.id.client.cast_signed(), entry.id.number.cast_signed());
        let (weight, capacity) = (i64::from(entry.claim.weight()), i64::from(entry.claim.capacity()));
        let (name, purpose) = (entry.name.as_str(), entry.purpose.as_deref());
        let whose = [&self.session as _, &epoch as _, &name as _, &client as _, &number as _];
        let what = [&weight as _, &capacity as _, &entry.wait as _, &again as _, &purpose as _];
        let answer: Vec<i64> = connection.ask("enter", "enter", &[whose, what].concat()).await?;
        let entered = match *answer.as_slice() {
            [0, seq] => Enter::Granted(seq.cast_unsigned()),
            [1, seq, told] => {
                // Nobody may have been listening when it was granted: it is looked at once somebody is.
                let look_in = if hears {
                    look_in(told)
                } else {
                    // It is in the queue, whatever becomes of this: who does not listen looks.
                    if let Err(error) = connection.hear(&self.bell, || true).await {
                        tracing::debug!(%error, "the session cannot listen");
                    }
                    Some(Duration::ZERO)
                };
                Enter::Waiting { seq: seq.cast_unsigned(), ahead: None, look_in }
            }
            [2] => Enter::Busy,
            [3, weight, capacity] => {
                let claim = |number| u32::try_from(number).map_err(|_| strange("enter"));
                Enter::Conflict(Claim::new(claim(weight)?, claim(capacity)?).map_err(|_| strange("enter"))?)
            }
            [4, epoch] => Enter::Stale(epoch.cast_unsigned()),
            [5] => Enter::Gone,
            [6] => Enter::Again,
            _ => return Err(strange("enter")),
        };
        Ok(entered)
    }

    async fn leave(&self, connection: &Connection, place: &PlaceId, seq: Option<u64>) -> Result<bool> {
        match self.ask_to_leave(connection, place, seq, false).await? {
            2 => self.leave_in_time(place, seq).await,
            answer => Ok(answer == 1),
        }
    }

    async fn lighten(&self, connection: &Connection, place: &PlaceId, seq: u64, claim: Claim) -> Result<Lightened> {
        let (client, number) = (place.request.client.cast_signed(), place.request.number.cast_signed());
        let (name, seq, weight) = (place.name.as_str(), seq.cast_signed(), i64::from(claim.weight()));
        let place_and_claim = [&self.session as _, &name as _, &client as _, &number as _, &seq as _, &weight as _];
        match connection.ask::<i32>("downgrade", "lighten", &place_and_claim).await? {
            0 => Ok(Lightened::Missing),
            1 => Ok(Lightened::Done),
            _ => Err(kept("downgrade", &place.name)),
        }
    }

    async fn withdraw(&self, connection: &Connection, place: &PlaceId) -> Result<Withdrawn> {
        let (client, number) = (place.request.client.cast_signed(), place.request.number.cast_signed());
        let answer: Vec<i64> =
            connection.ask("cancel", "withdraw", &[&self.session, &place.name.as_str(), &client, &number]).await?;
        let [epoch, found] = *answer.as_slice() else { return Err(strange("cancel")) };
        let was_there = match found {
            2 => self.leave_in_time(place, None).await?,
            found => found == 1,
        };
        Ok(Withdrawn { epoch: Some(epoch.cast_unsigned()).filter(|epoch| *epoch != 0), was_there })
    }

    async fn renew(&self, connection: &Connection, known: &[(PlaceId, u64)]) -> Result<bool> {
        let heard: Vec<i64> = known.iter().map(|(_, seq)| seq.cast_signed()).collect();
        let session = [&self.session as _, &self.ttl as _, &heard as _];
        // The same a while later, on another connection: on the first one, a request may wait for somebody else's transaction.
        let clock = &self.opening.clock;
        let once_more = async {
            clock.sleep_until(clock.now().after(self.opening.patience() / PART)).await;
            match apart(&self.config, Purpose::Patience, Some(&self.opening)).await {
                Ok(connection) => connection.call("renew", "renew", &session).await,
                // Then the first one is the only hope.
                Err(_) => future::pending().await,
            }
        };
        let told = tokio::select! {
            biased;
            told = connection.call("renew", "renew", &session) => told?,
            told = once_more => told?,
        };
        for row in &told {
            if value::<i64>("renew", row, 0)? < 0 {
                return Ok(false);
            }
            let (place, grant) = read_place("renew", row)?;
            let reason = value::<String>("renew", row, 4)?.into();
            self.hub.told_broken(Broken { place, grant: grant.unwrap_or(0), reason });
        }
        Ok(true)
    }

    /// Has the session listen or not, as it needs to by now, too. On the connection, requests may wait for somebody else's transaction.
    fn tidy_up(&self) {
        self.sweep.notify_one();
    }

    async fn close(&self, connection: &Connection) -> Result<()> {
        let place = |name: &Name, request| (PlaceId { name: name.clone(), request }, self.hub.seq(request));
        let places = self.hub.by_name().into_iter();
        let places = places.flat_map(|(name, ids)| ids.into_iter().map(move |request| place(&name, request)));
        self.leave_all(connection, places.collect()).await?;
        connection.call("close session", "close", &[&self.session]).await.map(drop)
    }
}
