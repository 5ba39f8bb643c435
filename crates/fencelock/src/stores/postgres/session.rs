//! A session: what it asks the functions. What is the same in every database is `kit/database/lease.rs`.

use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use tokio_postgres::Row;

use super::connection::{Connection, strange, value};
use super::link::{Dialler, Purpose, apart};
use super::url::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::bucket::bucket_of;
use crate::kit::database::lease::{self, Lease, Leased, entered, looked, random};
use crate::kit::database::{Chores, User};
use crate::kit::served::{Broken, Enter, Lightened, Look, Places, PlacesByName, Served, Withdrawn};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Entry, Opening, PlaceId, RequestId};

/// A session. Numbers of the server are signed: what is above 2^63 is below zero there, and nobody counts on their order.
pub(super) struct PostgresSession {
    config: Arc<Config>,
    pub(super) lease: Lease,
    session: i64,
    /// Where it is told of its grants. Drawn at random: whoever knew it could say so wrongly.
    bell: String,
    ttl: i64,
    places: Arc<Places>,
}

fn signed(numbers: &[u64]) -> Vec<i64> {
    numbers.iter().map(|number| number.cast_signed()).collect()
}

impl PostgresSession {
    pub(super) fn new(config: Arc<Config>, opening: Opening, places: Places) -> Result<Self> {
        let ttl = i64::try_from(opening.ttl.as_millis()).unwrap_or(i64::MAX).clamp(1, i64::from(i32::MAX) * 1000);
        let (lease, bell, places) = (Lease::new(opening)?, format!("fencelock_{:016x}", random()?), Arc::new(places));
        Ok(Self { config, session: lease.session.cast_signed(), lease, bell, ttl, places })
    }

    /// Says 0 where the place was not there, 1 where it was, and 2 where a transaction holds it, which only the patient wait for.
    async fn ask_to_leave(&self, on: &Connection, place: &PlaceId, seq: Option<u64>, patient: bool) -> Result<i32> {
        let (client, number) = (place.request.client.cast_signed(), place.request.number.cast_signed());
        let seq = seq.map(u64::cast_signed);
        on.ask("leave", "leave", &[&self.session, &place.name.as_str(), &client, &number, &seq, &patient]).await
    }

    /// What a transaction keeps from ending is waited for on a connection of its own.
    async fn leave_in_time(&self, place: &PlaceId, seq: Option<u64>) -> Result<bool> {
        let connection = self.apart().await?;
        match self.ask_to_leave(&connection, place, seq, true).await {
            Ok(2) => Err(kept("leave", &place.name)),
            Ok(answer) => Ok(answer == 1),
            Err(error) => Err(kept_waiting("leave", &place.name, error)),
        }
    }
}

/// A place and its number, from the first four columns of a row.
fn read_place(operation: &'static str, row: &Row) -> Result<(PlaceId, u64)> {
    let number = |column| value::<i64>(operation, row, column).map(i64::cast_unsigned);
    let name = Name::new(value::<String>(operation, row, 1)?).map_err(|_: Error| strange(operation))?;
    let request = RequestId { client: number(2)?, number: number(3)? };
    Ok((PlaceId { name, request }, number(0)?))
}

/// The error of what waits for a transaction in which the lock is held (`hold`).
fn kept(operation: &'static str, name: &Name) -> Error {
    let message = "a transaction holds this grant, which cannot end before it (`hold`); pg_stat_activity shows it";
    Error::new(ErrorKind::Unreachable, operation, message).with("name", name).retryable()
}

/// The same, where the server said after a while that the request waited in vain; any other error as it is.
pub(super) fn kept_waiting(operation: &'static str, name: &Name, error: Error) -> Error {
    if error.kind() == ErrorKind::Busy { kept(operation, name).with("cause", error) } else { error }
}

impl Leased for PostgresSession {
    const AT_ONCE: usize = 64;

    fn lease(&self) -> &Lease {
        &self.lease
    }

    async fn open(&self, connection: &Connection, is_new: bool) -> Result<u64> {
        let epoch: i64 = if is_new {
            let owner = &self.lease.opening.owner;
            let (pid, client) = (i64::from(owner.pid), owner.client.cast_signed());
            let session =
                [&self.session as _, &self.bell as _, &self.ttl as _, &owner.host as _, &pid as _, &client as _];
            connection.ask("open session", "open", &session).await?
        } else {
            connection.ask("resume session", "resume", &[&self.session, &self.ttl]).await?
        };
        Ok(epoch.cast_unsigned())
    }

    async fn unknown(&self, connection: &Connection, known: &[u64]) -> Result<Vec<(PlaceId, u64)>> {
        let unknown = connection.call("resume session", "unknown", &[&self.session, &signed(known)]).await?;
        unknown.iter().map(|row| read_place("resume session", row)).collect()
    }

    async fn ask_to_look(&self, connection: &Connection, asked: &PlacesByName, seqs: &[Vec<u64>]) -> Result<Look> {
        let names: Vec<&str> = asked.iter().map(|(name, _)| name.as_str()).collect();
        let counts: Vec<i32> = asked.iter().map(|(_, ids)| i32::try_from(ids.len()).unwrap_or(i32::MAX)).collect();
        let ids = || asked.iter().flat_map(|(_, ids)| ids);
        let clients: Vec<i64> = ids().map(|id| id.client.cast_signed()).collect();
        let numbers: Vec<i64> = ids().map(|id| id.number.cast_signed()).collect();
        let all: Vec<i64> = signed(&seqs.concat());
        let rows = connection.call("look", "look", &[&self.session, &names, &counts, &clients, &numbers, &all]).await?;
        let looked = rows.iter().zip(seqs).map(|(row, seqs)| {
            let stands: Vec<i32> = value("look", row, 1)?;
            looked(value("look", row, 0)?, seqs, stands.into_iter().map(i64::from)).ok_or_else(|| strange("look"))
        });
        Ok(Look { alive: !rows.is_empty(), names: looked.collect::<Result<_>>()? })
    }

    async fn ask_to_renew(&self, connection: &Connection, heard: &[u64]) -> Result<Option<Vec<Broken>>> {
        let rows = connection.call("renew", "renew", &[&self.session, &self.ttl, &signed(heard)]).await?;
        let mut broken = Vec::new();
        for row in &rows {
            if value::<i64>("renew", row, 0)? < 0 {
                return Ok(None);
            }
            let (place, grant) = read_place("renew", row)?;
            broken.push(Broken { place, grant, reason: value::<String>("renew", row, 4)?.into() });
        }
        Ok(Some(broken))
    }

    async fn apart(&self) -> Result<Arc<Connection>> {
        apart(&self.config, Purpose::Patience, Some(&self.lease.opening)).await
    }

    async fn clear_up(&self, connection: &Connection, from: u16) -> Result<u16> {
        // Who holds or waits until now listens; who does neither, does not.
        connection.hear(&self.bell, || self.places.has_places()).await?;
        let next: i32 = connection.ask("clear up", "clear_up", &[&i32::from(from)]).await?;
        u16::try_from(next).map_err(|_| strange("clear up"))
    }

    async fn end(&self, connection: &Connection) -> Result<()> {
        connection.call("close session", "close", &[&self.session]).await.map(drop)
    }
}

impl User<Connection> for PostgresSession {
    fn greet(self: Arc<Self>, connection: Arc<Connection>) -> BoxFuture<'static, Result<Option<Chores>>> {
        Box::pin(async move {
            lease::open_or_resume(&*self, &connection).await?;
            self.places.connected(connection.number);
            if self.places.is_waiting() {
                connection.hear(&self.bell, || true).await?;
            }
            Ok(Some(lease::chores(&self, &connection)))
        })
    }

    fn heard(&self, connection: u64, message: &[u8]) {
        self.places.heard(connection, message);
    }

    fn disconnected(&self, connection: u64) {
        self.places.disconnected(connection);
    }
}

impl Served for PostgresSession {
    type Dial = Dialler;

    fn places(&self) -> &Arc<Places> {
        &self.places
    }

    fn bucket_of(&self, name: &Name) -> u16 {
        bucket_of(name)
    }

    async fn enter(&self, connection: &Connection, entry: &Entry, again: bool) -> Result<Enter> {
        let hears = connection.hears();
        let epoch = self.places.epoch().cast_signed();
        let (client, number) = (entry.id.client.cast_signed(), entry.id.number.cast_signed());
        let (weight, capacity) = (i64::from(entry.claim.weight()), i64::from(entry.claim.capacity()));
        let (name, purpose) = (entry.name.as_str(), entry.purpose.as_deref());
        let whose = [&self.session as _, &epoch as _, &name as _, &client as _, &number as _];
        let what = [&weight as _, &capacity as _, &entry.wait as _, &again as _, &purpose as _];
        let answer: Vec<i64> = connection.ask("enter", "enter", &[whose, what].concat()).await?;
        let mut entered = entered(&answer).ok_or_else(|| strange("enter"))?;
        if let Enter::Waiting { look_in, .. } = &mut entered
            && !hears
        {
            // Nobody may have been listening when it was granted: it is looked at once somebody is.
            *look_in = Some(Duration::ZERO);
            // It is in the queue, whatever becomes of this: who does not listen looks.
            if let Err(error) = connection.hear(&self.bell, || true).await {
                tracing::debug!(%error, "the session cannot listen");
            }
        }
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
        lease::renew(self, connection, known).await
    }

    /// Has the session listen or not, as it needs to by now, too. On the connection, requests may wait for somebody else's transaction.
    fn tidy_up(&self) {
        self.lease.tidy_up();
    }

    async fn close(&self, connection: &Connection) -> Result<()> {
        lease::close(self, connection).await
    }
}
