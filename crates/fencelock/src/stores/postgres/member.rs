//! A session: what lives as long as it does, on whichever connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::future;
use tokio::sync::Notify;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::connection::{Call, Chores, Connection, User, strange};
use super::link::{Dialler, apart};
use super::url::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::bucket::{BUCKETS, bucket_of};
use crate::kit::served::{
    Broken, Enter, Hub, Lightened, Look, Looked, Over, Places, Seen, Served, Withdrawn, portions, repair,
};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Entry, Loss, Opening, PlaceId, RequestId};

/// How many places are given up at once, of those that a session finds in its name and knows nothing of.
const AT_ONCE: usize = 64;
/// How many places of a session that is closed are given up at once.
const CLOSES: usize = 256;
/// Into how many parts the deadline of a renewal falls: after the first one it is also sent on a connection of its own.
const PART: u32 = 3;
/// How often a request is sent that met its place in another state than it was known to be in.
const TRIES: usize = 4;

pub(super) struct Member {
    pub(super) config: Arc<Config>,
    /// Drawn at random, and a secret: whoever knows it can give up its places.
    pub(super) session: u64,
    /// Where it is told of its grants. Drawn at random, too: whoever knew it could say so wrongly.
    pub(super) bell: String,
    pub(super) opening: Opening,
    pub(super) hub: Arc<Hub>,
    /// Which bucket is cleared up next. Clients begin anywhere, so that together they soon have been everywhere.
    swept: Arc<AtomicU64>,
    sweep: Arc<Notify>,
}

/// Numbers of the server are signed. What is above 2^63 is below zero there, and nobody counts on their order.
pub(super) fn signed(number: u64) -> i64 {
    number.cast_signed()
}

pub(super) fn unsigned(number: i64) -> u64 {
    number.cast_unsigned()
}

/// In what time to look, as the server says it: a count of milliseconds, none for a number below 0.
fn look_in(number: i64) -> Option<Duration> {
    Some(Duration::from_millis(u64::try_from(number).ok()?))
}

pub(super) fn whole_milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).clamp(1, i64::from(i32::MAX) * 1000)
}

impl Member {
    pub(super) fn new(config: Arc<Config>, session: u64, bell: u64, opening: Opening, hub: Hub) -> Self {
        Self {
            config,
            session,
            bell: format!("fencelock_{bell:016x}"),
            opening,
            hub: Arc::new(hub),
            swept: Arc::new(AtomicU64::new(session % u64::from(BUCKETS))),
            sweep: Arc::new(Notify::new()),
        }
    }

    fn session(&self) -> i64 {
        signed(self.session)
    }

    fn ttl(&self) -> i64 {
        whole_milliseconds(self.opening.ttl)
    }

    /// Opens the session, or goes on with it on a new connection: whatever is still on its way on an older one is refused.
    async fn open_or_resume(&self, connection: &Arc<Connection>) -> Result<()> {
        if self.hub.over() != Over::No {
            return Ok(());
        }
        let sent = self.opening.clock.now();
        if self.hub.epoch() == 0 {
            let owner = &self.opening.owner;
            let (pid, client) = (i64::from(owner.pid), signed(owner.client));
            let arguments: [&(dyn ToSql + Sync); 6] =
                [&self.session(), &self.bell, &self.ttl(), &owner.host, &pid, &client];
            let epoch: i64 = connection.ask("open session", Call::Open, &arguments).await?;
            self.hub.raise(unsigned(epoch));
            self.hub.confirm(sent);
            return Ok(());
        }
        let epoch: i64 = connection.ask("resume session", Call::Resume, &[&self.session(), &self.ttl()]).await?;
        if epoch == 0 {
            self.hub.end(Over::There, Loss::Expired);
            return Ok(());
        }
        self.hub.raise(unsigned(epoch));
        self.hub.confirm(sent);
        self.reconcile(connection).await
    }

    /// What the server knows of the session after a crash or a failover may be older than what it said: a place that was given up may be
    /// there again, and one that was granted may be missing.
    async fn reconcile(&self, connection: &Connection) -> Result<()> {
        let numbers: Vec<i64> = self.hub.by_name().into_values().flatten().map(|id| signed(id.number)).collect();
        let unknown = connection.call("resume session", Call::Unknown, &[&self.session(), &numbers]).await?;
        for rows in unknown.chunks(AT_ONCE) {
            let given_up = rows.iter().map(async |row| {
                let name: String = row.try_get(0).map_err(|_| strange("resume session"))?;
                let request = RequestId { client: unsigned(row.get(1)), number: unsigned(row.get(2)) };
                let Ok(name) = Name::new(name) else { return Ok(()) };
                tracing::warn!(%name, "a lock that was given up came back with the server, and is given up again");
                self.leave(connection, &PlaceId { name, request }, Some(unsigned(row.get(3)))).await.map(drop)
            });
            future::try_join_all(given_up).await?;
        }
        for held in portions(self.hub.held()) {
            let look = self.look(connection, &held).await?;
            let places = held.iter().flat_map(|(_, ids)| ids).zip(look.names.iter().flat_map(|name| &name.places));
            places.filter(|(_, seen)| !matches!(seen, Seen::Granted(_))).for_each(|(id, _)| self.hub.missing(*id));
        }
        Ok(())
    }

    fn eye(&self) -> Eye {
        Eye { hub: Arc::clone(&self.hub), session: self.session() }
    }

    /// How places of the session stand.
    async fn look(&self, connection: &Connection, asked: &Places) -> Result<Look> {
        self.eye().look(connection, asked).await
    }

    /// Looks after the waiting places, and clears away what dead sessions left.
    fn chores(&self, connection: &Arc<Connection>) -> Chores {
        let weak = Arc::downgrade(connection);
        let eye = self.eye();
        let look = async move |connection: &Connection, asked: &Places| eye.look(connection, asked).await;
        let repair = repair(weak.clone(), Arc::clone(&self.hub), Arc::clone(&self.opening.clock), look);
        let (swept, wanted) = (Arc::clone(&self.swept), Arc::clone(&self.sweep));
        let (hub, bell) = (Arc::clone(&self.hub), self.bell.clone());
        let clear_up = async move {
            loop {
                wanted.notified().await;
                let Some(connection) = weak.upgrade() else { return };
                // Who holds or waits until now listens; who does neither, does not.
                let minded = match hub.has_places() {
                    true => connection.listen(&bell).await,
                    false => connection.deafen(|| hub.has_places()).await,
                };
                if let Err(error) = minded {
                    tracing::debug!(%error, "the session cannot listen");
                }
                // Below 4096.
                let from = swept.load(Ordering::Relaxed) as i32;
                match connection.ask::<i32>("clear up", Call::ClearUp, &[&from]).await {
                    Ok(next) => swept.store(u64::from(next.unsigned_abs()), Ordering::Relaxed),
                    Err(error) => tracing::debug!(%error, "what dead sessions left could not be cleared away"),
                }
            }
        };
        Box::pin(async move {
            future::join(repair, clear_up).await;
        })
    }

    /// What a transaction keeps from ending is waited for on a connection of its own.
    async fn leave_in_time(&self, place: &PlaceId, seq: Option<u64>) -> Result<bool> {
        let connection = apart(&self.config, Some(&self.opening)).await?;
        let answer = self.ask_to_leave(&connection, place, seq, true).await;
        answer.map(|answer| answer == 1).map_err(|error| match error.kind() {
            ErrorKind::Unreachable => kept("leave", &place.name).with("cause", error),
            _ => error,
        })
    }

    async fn ask_to_renew(&self, connection: &Connection, known: &[(PlaceId, u64)]) -> Result<Vec<Option<Broken>>> {
        let heard: Vec<i64> = known.iter().map(|(_, seq)| signed(*seq)).collect();
        let rows = connection.call("renew", Call::Renew, &[&self.session(), &self.ttl(), &heard]).await?;
        rows.iter().map(read_broken).collect()
    }

    /// The same a while later, on another connection: on the first one, a request may wait for somebody else's transaction.
    async fn ask_apart(&self, known: &[(PlaceId, u64)]) -> Result<Vec<Option<Broken>>> {
        let clock = &self.opening.clock;
        clock.sleep_until(clock.now().after(self.opening.patience() / PART)).await;
        match apart(&self.config, Some(&self.opening)).await {
            Ok(connection) => self.ask_to_renew(&connection, known).await,
            // Then the first one is the only hope.
            Err(_) => future::pending().await,
        }
    }

    async fn ask_to_leave(
        &self,
        connection: &Connection,
        place: &PlaceId,
        seq: Option<u64>,
        patient: bool,
    ) -> Result<i32> {
        let (client, number) = (signed(place.request.client), signed(place.request.number));
        let seq = seq.map(signed);
        let arguments: [&(dyn ToSql + Sync); 6] =
            [&self.session(), &place.name.as_str(), &client, &number, &seq, &patient];
        for _ in 0..TRIES {
            match connection.ask("leave", Call::Leave, &arguments).await? {
                3 => {}
                answer => return Ok(answer),
            }
        }
        let message = "the place is granted and waits in turn";
        Err(Error::new(ErrorKind::Unreachable, "leave", message).retryable())
    }
}

/// A grant that somebody broke, as a renewal tells of it; `None` says that the session is over.
fn read_broken(row: &Row) -> Result<Option<Broken>> {
    let told = || -> Result<_, tokio_postgres::Error> {
        let (seq, name): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
        let (client, number): (i64, i64) = (row.try_get(2)?, row.try_get(3)?);
        Ok((seq, name, RequestId { client: unsigned(client), number: unsigned(number) }, row.try_get::<_, String>(4)?))
    };
    let (seq, name, request, reason) = told().map_err(|_| strange("renew"))?;
    let Ok(grant) = u64::try_from(seq) else { return Ok(None) };
    let name = Name::new(name).map_err(|_: Error| strange("renew"))?;
    Ok(Some(Broken { place: PlaceId { name, request }, grant, reason: reason.into() }))
}

/// The error of what waits for a transaction in which the lock is held (`hold`).
pub(super) fn kept(operation: &'static str, name: &Name) -> Error {
    let message = "a transaction holds this grant, which cannot end before it (`hold`); pg_stat_activity shows it";
    Error::new(ErrorKind::Unreachable, operation, message).with("name", name).retryable()
}

/// What looks at places of a session.
struct Eye {
    hub: Arc<Hub>,
    session: i64,
}

impl Eye {
    async fn look(&self, connection: &Connection, asked: &Places) -> Result<Look> {
        let names: Vec<&str> = asked.iter().map(|(name, _)| name.as_str()).collect();
        let counts: Vec<i32> = asked.iter().map(|(_, ids)| i32::try_from(ids.len()).unwrap_or(i32::MAX)).collect();
        let ids = || asked.iter().flat_map(|(_, ids)| ids);
        let clients: Vec<i64> = ids().map(|id| signed(id.client)).collect();
        let numbers: Vec<i64> = ids().map(|id| signed(id.number)).collect();
        let seqs: Vec<i64> = ids().map(|id| signed(self.hub.seq(*id).unwrap_or(0))).collect();
        let arguments: [&(dyn ToSql + Sync); 6] = [&self.session, &names, &counts, &clients, &numbers, &seqs];
        let answer: Vec<i64> = connection.ask("look", Call::Look, &arguments).await?;
        read_look(&answer, &counts, &seqs).ok_or_else(|| strange("look"))
    }
}

fn read_look(answer: &[i64], counts: &[i32], seqs: &[i64]) -> Option<Look> {
    let (alive, mut rest) = answer.split_first()?;
    if *alive == 0 {
        return Some(Look { alive: false, names: Vec::new() });
    }
    let mut seqs = seqs.iter();
    let mut names = Vec::with_capacity(counts.len());
    for count in counts {
        let (told, places) = rest.split_at_checked(1 + usize::try_from(*count).ok()?)?.0.split_first()?;
        rest = &rest[1 + places.len()..];
        let place = |stands: &i64| {
            let seq = unsigned(*seqs.next()?);
            Some(match stands {
                0 => Seen::Granted(seq),
                1 => Seen::Waiting(seq, None),
                _ => Seen::Missing,
            })
        };
        names.push(Looked { look_in: look_in(*told), places: places.iter().map(place).collect::<Option<_>>()? });
    }
    rest.is_empty().then_some(Look { alive: true, names })
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
        let (epoch, client, number) = (signed(self.hub.epoch()), signed(entry.id.client), signed(entry.id.number));
        let (weight, capacity) = (i64::from(entry.claim.weight()), i64::from(entry.claim.capacity()));
        let arguments: [&(dyn ToSql + Sync); 10] = [
            &self.session(),
            &epoch,
            &entry.name.as_str(),
            &client,
            &number,
            &weight,
            &capacity,
            &entry.wait,
            &again,
            &entry.purpose.as_deref(),
        ];
        let answer: Vec<i64> = connection.ask("enter", Call::Enter, &arguments).await?;
        let entered = match *answer.as_slice() {
            [0, seq] => Enter::Granted(unsigned(seq)),
            [1, seq, told] => {
                // Nobody may have been listening when it was granted: it is looked at once somebody is.
                let look_in = if hears {
                    look_in(told)
                } else {
                    // It is in the queue, whatever becomes of this: who does not listen looks.
                    if let Err(error) = connection.listen(&self.bell).await {
                        tracing::debug!(%error, "the session cannot listen");
                    }
                    Some(Duration::ZERO)
                };
                Enter::Waiting { seq: unsigned(seq), ahead: None, look_in }
            }
            [2] => Enter::Busy,
            [3, weight, capacity] => {
                let claim = |number| u32::try_from(number).map_err(|_| strange("enter"));
                Enter::Conflict(Claim::new(claim(weight)?, claim(capacity)?).map_err(|_| strange("enter"))?)
            }
            [4, epoch] => Enter::Stale(unsigned(epoch)),
            [5] => Enter::Gone,
            [6] => Enter::Again,
            _ => return Err(strange("enter")),
        };
        Ok(entered)
    }

    async fn leave(&self, connection: &Connection, place: &PlaceId, seq: Option<u64>) -> Result<bool> {
        match self.ask_to_leave(connection, place, seq, false).await? {
            0 => Ok(false),
            1 => Ok(true),
            _ => self.leave_in_time(place, seq).await,
        }
    }

    async fn lighten(&self, connection: &Connection, place: &PlaceId, seq: u64, claim: Claim) -> Result<Lightened> {
        let (client, number) = (signed(place.request.client), signed(place.request.number));
        let (seq, weight) = (signed(seq), i64::from(claim.weight()));
        let arguments: [&(dyn ToSql + Sync); 6] =
            [&self.session(), &place.name.as_str(), &client, &number, &seq, &weight];
        match connection.ask::<i32>("downgrade", Call::Lighten, &arguments).await? {
            0 => Ok(Lightened::Missing),
            1 => Ok(Lightened::Done),
            _ => Err(kept("downgrade", &place.name)),
        }
    }

    async fn withdraw(&self, connection: &Connection, place: &PlaceId) -> Result<Withdrawn> {
        let (client, number) = (signed(place.request.client), signed(place.request.number));
        let arguments: [&(dyn ToSql + Sync); 4] = [&self.session(), &place.name.as_str(), &client, &number];
        let answer: Vec<i64> = connection.ask("cancel", Call::Withdraw, &arguments).await?;
        let [epoch, found] = *answer.as_slice() else { return Err(strange("cancel")) };
        let was_there = match found {
            0 => false,
            1 => true,
            _ => self.leave_in_time(place, None).await?,
        };
        Ok(Withdrawn { epoch: Some(unsigned(epoch)).filter(|epoch| *epoch != 0), was_there })
    }

    async fn renew(&self, connection: &Connection, known: &[(PlaceId, u64)]) -> Result<bool> {
        let told = tokio::select! {
            biased;
            told = self.ask_to_renew(connection, known) => told?,
            told = self.ask_apart(known) => told?,
        };
        for broken in told {
            let Some(broken) = broken else { return Ok(false) };
            self.hub.told_broken(broken);
        }
        Ok(true)
    }

    /// Has the session listen or not, as it needs to by now, too. On the connection, requests may wait for somebody else's transaction.
    fn tidy_up(&self) {
        self.sweep.notify_one();
    }

    async fn close(&self, connection: &Connection) -> Result<()> {
        let places: Vec<PlaceId> = self
            .hub
            .by_name()
            .into_iter()
            .flat_map(|(name, ids)| ids.into_iter().map(move |request| PlaceId { name: name.clone(), request }))
            .collect();
        for some in places.chunks(CLOSES) {
            let given_up = some.iter().map(async |place| {
                self.leave(connection, place, self.hub.seq(place.request)).await?;
                self.hub.forget(place.request);
                Ok::<_, Error>(())
            });
            future::try_join_all(given_up).await?;
        }
        connection.call("close session", Call::Close, &[&self.session()]).await.map(drop)
    }
}

impl User for Member {
    fn greet<'a>(&'a self, connection: &'a Arc<Connection>) -> BoxFuture<'a, Result<Option<Chores>>> {
        Box::pin(async move {
            self.open_or_resume(connection).await?;
            self.hub.connected(connection.number);
            if self.hub.is_waiting() {
                connection.listen(&self.bell).await?;
            }
            Ok(Some(self.chores(connection)))
        })
    }

    fn heard(&self, connection: u64, message: &str) {
        self.hub.heard(connection, message.as_bytes());
    }

    fn disconnected(&self, connection: u64) {
        self.hub.disconnected(connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_a_look_is_taken_apart_and_one_of_another_length_is_refused() {
        let look = read_look(&[1, 500, 0, 1, -1, 2], &[2, 1], &[7, 8, 9]).unwrap();
        let first = Looked {
            look_in: Some(Duration::from_millis(500)),
            places: vec![Seen::Granted(7), Seen::Waiting(8, None)],
        };
        assert_eq!(look.names, [first, Looked { look_in: None, places: vec![Seen::Missing] }]);
        assert!(!read_look(&[0], &[2, 1], &[7, 8, 9]).unwrap().alive);
        for answer in [&[][..], &[1], &[1, 500, 0, 1, -1], &[1, 500, 0, 1, -1, 2, 0]] {
            assert_eq!(read_look(answer, &[2, 1], &[7, 8, 9]), None, "{answer:?}");
        }
    }

    #[test]
    fn numbers_go_there_and_come_back_as_they_were() {
        for number in [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1] {
            assert_eq!(unsigned(signed(number)), number);
        }
    }
}
