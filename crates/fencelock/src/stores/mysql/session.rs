//! A session: what it asks the procedures. What is the same in every database is `kit/database/lease.rs`.

use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::future;
use mysql_async::{Row, Value};

use super::bell::{Bell, POLL, listen};
use super::connection::{Connection, column, strange};
use super::fault::cut_short;
use super::link::{Dialler, apart};
use super::url::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::bucket::bucket_of;
use crate::kit::database::lease::{self, Lease, Leased, entered, looked, random};
use crate::kit::database::{Chores, User};
use crate::kit::served::{Broken, Enter, Lightened, Look, Places, PlacesByName, Served, Withdrawn};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Entry, Opening, PlaceId, RequestId};

/// How often a release is tried that a transaction kept, each time once that was over.
const TRIES: usize = 4;

pub(super) struct MysqlSession {
    pub(super) config: Arc<Config>,
    pub(super) lease: Lease,
    pub(super) bell: Bell,
    pub(super) places: Arc<Places>,
}

fn microseconds(duration: Duration) -> Value {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4).clamp(1, i64::MAX / 4).into()
}

/// Numbers as procedures take a list of them.
fn list(numbers: &[u64]) -> Value {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",").into()
}

fn place(operation: &'static str, row: &Row, from: usize) -> Result<PlaceId> {
    let name = Name::new(column::<String>(operation, row, from)?).map_err(|_: Error| strange(operation))?;
    let request = RequestId { client: column(operation, row, from + 1)?, number: column(operation, row, from + 2)? };
    Ok(PlaceId { name, request })
}

impl MysqlSession {
    pub(super) fn new(config: Arc<Config>, opening: Opening, places: Places) -> Result<Self> {
        Ok(Self { config, lease: Lease::new(opening)?, bell: Bell::new(random()?), places: Arc::new(places) })
    }

    /// The request of a place, as procedures take it: session, name, client and number.
    fn request(&self, place: &PlaceId) -> Vec<Value> {
        let RequestId { client, number } = place.request;
        vec![self.lease.session.into(), place.name.as_str().into(), client.into(), number.into()]
    }

    /// Calls a procedure that may grant other places of this session, and tells them: the last column lists them. Their waiters look by
    /// themselves when the answer is lost.
    async fn ask_and_tell(
        &self,
        connection: &Connection,
        operation: &'static str,
        procedure: &str,
        name: &Name,
        arguments: Vec<Value>,
    ) -> Result<Row> {
        let mut unheard = Unheard { places: &self.places, name: Some(name) };
        let row = connection.ask(operation, procedure, arguments).await?;
        let granted = granted(&column::<String>(operation, &row, row.len() - 1)?).ok_or_else(|| strange(operation))?;
        granted.into_iter().for_each(|(place, grant)| self.places.told_granted(place, grant));
        unheard.name = None;
        Ok(row)
    }

    async fn ask_to_leave(
        &self,
        connection: &Connection,
        place: &PlaceId,
        seq: Option<u64>,
        withdraw: bool,
    ) -> Result<(Left, u64)> {
        let mut arguments = self.request(place);
        arguments.extend([seq.into(), withdraw.into()]);
        let operation = if withdraw { "cancel" } else { "leave" };
        let row = self.ask_and_tell(connection, operation, "leave", &place.name, arguments).await?;
        let left = match column::<i64>(operation, &row, 0)? {
            0 => Left::Missing,
            1 => Left::Done,
            _ => Left::Kept(column(operation, &row, 2)?),
        };
        Ok((left, column(operation, &row, 1)?))
    }

    /// What a transaction keeps from ending is waited for on a connection of its own, and without the bucket: other names go on.
    async fn leave_in_time(&self, place: &PlaceId, mut kept_seq: u64) -> Result<bool> {
        let connection = self.apart().await?;
        for _ in 0..TRIES {
            let awaited = vec![place.name.as_str().into(), kept_seq.into()];
            if let Err(error) = connection.ask("leave", "await", awaited).await {
                return Err(kept("leave", &place.name).with("cause", error));
            }
            match self.ask_to_leave(&connection, place, Some(kept_seq), false).await?.0 {
                Left::Missing => return Ok(false),
                Left::Done => return Ok(true),
                Left::Kept(seq) => kept_seq = seq,
            }
        }
        Err(kept("leave", &place.name))
    }
}

/// The wait for an answer that may tell of grants of the name to this session. If it is dropped before the answer was read, the session looks at
/// its waiting places of that name; once it was read, there is no name.
struct Unheard<'a> {
    places: &'a Places,
    name: Option<&'a Name>,
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.name {
            self.places.look_at(name);
        }
    }
}

/// Places and their numbers, as in `client-number-seq,client-number-seq,`.
fn granted(told: &str) -> Option<Vec<(RequestId, u64)>> {
    let place = |place: &str| {
        let mut numbers = place.split('-').map(|number| number.parse().ok());
        let (client, number, seq) = (numbers.next()??, numbers.next()??, numbers.next()??);
        numbers.next().is_none().then_some((RequestId { client, number }, seq))
    };
    told.split_terminator(',').map(place).collect()
}

/// What became of a place that was to be given up.
enum Left {
    Missing,
    Done,
    /// A transaction holds the grant of this number.
    Kept(u64),
}

/// The error of what waits for a transaction that keeps the row of a grant.
pub(super) fn kept(operation: &'static str, name: &Name) -> Error {
    let message = "another transaction keeps the row of this grant, which cannot end before it; information_schema.innodb_trx shows it";
    Error::new(ErrorKind::Unreachable, operation, message).with("name", name).retryable()
}

fn read_look(answer: &str, seqs: &[Vec<u64>]) -> Option<Look> {
    let numbers: Option<Vec<i64>> = answer.split(',').map(|number| number.parse().ok()).collect();
    let mut numbers = numbers?.into_iter();
    let alive = numbers.next()? != 0;
    let mut names = Vec::new();
    for seqs in seqs.iter().filter(|_| alive) {
        names.push(looked(numbers.next()?, seqs, &mut numbers)?);
    }
    (!alive || numbers.next().is_none()).then_some(Look { alive, names })
}

impl Leased for MysqlSession {
    const AT_ONCE: usize = 1;

    fn lease(&self) -> &Lease {
        &self.lease
    }

    async fn open(&self, connection: &Connection, is_new: bool) -> Result<u64> {
        let (session, ttl) = (self.lease.session.into(), microseconds(self.lease.opening.ttl));
        if !is_new {
            let epoch = connection.ask("resume session", "resume", vec![session, ttl]).await?;
            return column("resume session", &epoch, 0);
        }
        let owner = &self.lease.opening.owner;
        let whose = [owner.host.as_str().into(), owner.pid.into(), owner.client.into()];
        let arguments = [session, self.bell.name.as_str().into(), ttl].into_iter().chain(whose).collect();
        column("open session", &connection.ask("open session", "open", arguments).await?, 0)
    }

    async fn unknown(&self, connection: &Connection, known: &[u64]) -> Result<Vec<(PlaceId, u64)>> {
        let arguments = vec![self.lease.session.into(), list(known)];
        let rows = connection.answered("resume session", "unknown", arguments).await?;
        let place = |row| Ok((place("resume session", row, 0)?, column("resume session", row, 3)?));
        rows[1..].iter().map(place).collect()
    }

    async fn ask_to_look(&self, connection: &Connection, asked: &PlacesByName, seqs: &[Vec<u64>]) -> Result<Look> {
        let names = asked.iter().zip(seqs).map(|((name, _), seqs)| {
            let hex: String = name.as_str().bytes().map(|byte| format!("{byte:02x}")).collect();
            let seqs: String = seqs.iter().map(|seq| format!(",{seq}")).collect();
            format!("[\"{hex}\"{seqs}]")
        });
        let places = format!("[{}]", names.collect::<Vec<_>>().join(","));
        let row = connection.ask("look", "look", vec![self.lease.session.into(), places.into()]).await?;
        let answer = column::<Option<String>>("look", &row, 0)?.ok_or_else(|| cut_short("look"))?;
        let mut look = read_look(&answer, seqs).ok_or_else(|| strange("look"))?;
        if self.bell.is_deaf() {
            let names = look.names.iter_mut();
            names.for_each(|name| name.look_in = Some(name.look_in.map_or(POLL, |look_in| look_in.min(POLL))));
        }
        Ok(look)
    }

    async fn ask_to_renew(&self, connection: &Connection, heard: &[u64]) -> Result<Option<Vec<Broken>>> {
        let arguments = vec![self.lease.session.into(), microseconds(self.lease.opening.ttl), list(heard)];
        let rows = connection.answered("renew", "renew", arguments).await?;
        if column::<i64>("renew", &rows[0], 0)? < 0 {
            return Ok(None);
        }
        let broken = |row| {
            let (grant, reason) = (column("renew", row, 0)?, column::<String>("renew", row, 4)?);
            Ok(Broken { place: place("renew", row, 1)?, grant, reason: reason.into() })
        };
        rows[1..].iter().map(broken).collect::<Result<_>>().map(Some)
    }

    async fn apart(&self) -> Result<Arc<Connection>> {
        apart(&self.config, Some(&self.lease.opening)).await
    }

    async fn clear_up(&self, connection: &Connection, from: u16) -> Result<u16> {
        column("clear up", &connection.ask("clear up", "clear_up", vec![from.into()]).await?, 0)
    }

    async fn end(&self, connection: &Connection) -> Result<()> {
        connection.answered("close session", "close", vec![self.lease.session.into()]).await.map(drop)
    }
}

impl Served for MysqlSession {
    type Dial = Dialler;

    fn places(&self) -> &Arc<Places> {
        &self.places
    }

    fn bucket_of(&self, name: &Name) -> u16 {
        bucket_of(name)
    }

    async fn enter(&self, connection: &Connection, entry: &Entry, again: bool) -> Result<Enter> {
        let rings = self.bell.rings();
        let arguments: Vec<Value> = vec![
            self.lease.session.into(),
            self.places.epoch().into(),
            entry.name.as_str().into(),
            entry.id.client.into(),
            entry.id.number.into(),
            entry.claim.weight().into(),
            entry.claim.capacity().into(),
            entry.wait.into(),
            again.into(),
            entry.purpose.as_deref().into(),
        ];
        let row = connection.ask("enter", "enter", arguments).await?;
        let numbers = (0..row.len()).map(|at| column::<Option<i64>>("enter", &row, at));
        let answer: Vec<i64> = numbers.filter_map(Result::transpose).collect::<Result<_>>()?;
        let mut entered = entered(&answer).ok_or_else(|| strange("enter"))?;
        if let Enter::Waiting { look_in, .. } = &mut entered {
            *look_in = self.bell.look_in(*look_in, rings);
        }
        Ok(entered)
    }

    async fn leave(&self, connection: &Connection, place: &PlaceId, seq: Option<u64>) -> Result<bool> {
        match self.ask_to_leave(connection, place, seq, false).await?.0 {
            Left::Missing => Ok(false),
            Left::Done => Ok(true),
            Left::Kept(seq) => self.leave_in_time(place, seq).await,
        }
    }

    async fn lighten(&self, connection: &Connection, place: &PlaceId, seq: u64, claim: Claim) -> Result<Lightened> {
        let mut arguments = self.request(place);
        arguments.extend([seq.into(), claim.weight().into()]);
        let row = self.ask_and_tell(connection, "downgrade", "lighten", &place.name, arguments).await?;
        match column::<i64>("downgrade", &row, 0)? {
            0 => Ok(Lightened::Missing),
            1 => Ok(Lightened::Done),
            _ => Err(kept("downgrade", &place.name)),
        }
    }

    async fn withdraw(&self, connection: &Connection, place: &PlaceId) -> Result<Withdrawn> {
        let (left, epoch) = self.ask_to_leave(connection, place, None, true).await?;
        let was_there = match left {
            Left::Missing => false,
            Left::Done => true,
            Left::Kept(seq) => self.leave_in_time(place, seq).await?,
        };
        Ok(Withdrawn { epoch: Some(epoch).filter(|epoch| *epoch != 0), was_there })
    }

    async fn renew(&self, connection: &Connection, known: &[(PlaceId, u64)]) -> Result<bool> {
        lease::renew(self, connection, known).await
    }

    fn tidy_up(&self) {
        self.lease.tidy_up();
    }

    async fn close(&self, connection: &Connection) -> Result<()> {
        lease::close(self, connection).await
    }
}

impl User<Connection> for MysqlSession {
    fn greet(self: Arc<Self>, connection: Arc<Connection>) -> BoxFuture<'static, Result<Option<Chores>>> {
        Box::pin(async move {
            lease::open_or_resume(&*self, &connection).await?;
            self.places.connected(connection.number);
            if self.places.is_waiting() {
                self.bell.look_in(None, 0);
            }
            let chores = lease::chores(&self, &connection);
            let listen = listen(self, Arc::downgrade(&connection));
            let chores: Chores = Box::pin(async move { ((), ()) = future::join(chores, listen).await });
            Ok(Some(chores))
        })
    }

    fn disconnected(&self, connection: u64) {
        self.places.disconnected(connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::served::{Looked, Seen};

    #[test]
    fn places_that_a_departure_granted_are_taken_apart_and_other_text_is_refused() {
        let place = |client, number| RequestId { client, number };
        assert_eq!(granted(""), Some(Vec::new()));
        assert_eq!(granted("1-2-3,4-5-6,"), Some(vec![(place(1, 2), 3), (place(4, 5), 6)]));
        for told in ["1-2,", "1-2-3-4,", "1-2-x,", ","] {
            assert_eq!(granted(told), None, "{told:?}");
        }
    }

    #[test]
    fn an_answer_to_a_look_is_taken_apart_and_one_of_another_length_is_refused() {
        let seqs = [vec![7, 8], vec![9]];
        let look = read_look("1,500,0,1,-1,2", &seqs).unwrap();
        let first = Looked {
            look_in: Some(Duration::from_millis(500)),
            places: vec![Seen::Granted(7), Seen::Waiting(8, None)],
        };
        assert_eq!(look.names, [first, Looked { look_in: None, places: vec![Seen::Missing] }]);
        assert!(!read_look("0", &seqs).unwrap().alive);
        for answer in ["", "1", "1,500,0,1,-1", "1,500,0,1,-1,2,0", "1,x,0,1,-1,2"] {
            assert_eq!(read_look(answer, &seqs), None, "{answer:?}");
        }
    }
}
