//! A session: what lives as long as it does, on whichever connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::future;
use mysql_async::{Row, Value};
use tokio::sync::Notify;

use super::bell::{Bell, POLL, listen};
use super::connection::{Chores, Connection, User, column, strange};
use super::link::{Dialler, apart};
use super::url::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::bucket::{bucket_of, first_to_clear};
use crate::kit::served::{
    Broken, Enter, Hub, Lightened, Look, Looked, Over, Places, Seen, Served, Withdrawn, portions, repair,
};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Entry, Loss, Opening, PlaceId, RequestId};
use crate::time::Clock;

/// Into how many parts the deadline of a renewal falls: after the first one it is also sent on a connection of its own.
const PART: u32 = 3;
/// How often a release is tried that a transaction kept, each time once that was over.
const TRIES: usize = 4;

pub(super) struct Member {
    config: Arc<Config>,
    /// Drawn at random, and a secret: whoever knows it can give up its places.
    session: u64,
    bell: Arc<Bell>,
    pub(super) opening: Opening,
    hub: Arc<Hub>,
    /// Which bucket is cleared up next.
    swept: Arc<AtomicU64>,
    sweep: Arc<Notify>,
}

fn microseconds(duration: Duration) -> Value {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4).clamp(1, i64::MAX / 4).into()
}

/// The request of a place, as procedures take it: session, name, client and number.
fn request(session: u64, place: &PlaceId) -> Vec<Value> {
    vec![session.into(), place.name.as_str().into(), place.request.client.into(), place.request.number.into()]
}

impl Member {
    pub(super) fn new(config: Arc<Config>, session: u64, bell: u64, opening: Opening, hub: Hub) -> Self {
        Self {
            config,
            session,
            bell: Arc::new(Bell::new(bell)),
            opening,
            hub: Arc::new(hub),
            swept: Arc::new(AtomicU64::new(first_to_clear(session).into())),
            sweep: Arc::new(Notify::new()),
        }
    }

    /// Opens the session, or goes on with it on a new connection: whatever is still on its way on an older one is refused.
    async fn open_or_resume(&self, connection: &Connection) -> Result<()> {
        if self.hub.over() != Over::No {
            return Ok(());
        }
        let sent = self.opening.clock.now();
        let is_new = self.hub.epoch() == 0;
        let epoch: u64 = if is_new {
            let owner = &self.opening.owner;
            let arguments: Vec<Value> = vec![
                self.session.into(),
                self.bell.name.as_str().into(),
                microseconds(self.opening.ttl),
                owner.host.as_str().into(),
                owner.pid.into(),
                owner.client.into(),
            ];
            column("open session", &connection.ask("open session", "open", arguments).await?, 0)?
        } else {
            let arguments = vec![self.session.into(), microseconds(self.opening.ttl)];
            column("resume session", &connection.ask("resume session", "resume", arguments).await?, 0)?
        };
        if epoch == 0 {
            self.hub.end(Over::There, Loss::Expired);
            return Ok(());
        }
        self.hub.raise(epoch);
        self.hub.confirm(sent);
        if is_new { Ok(()) } else { self.reconcile(connection).await }
    }

    /// What the server knows of the session after a failover may be older than what it said: a place that was given up may be there again,
    /// and one that was granted may be missing.
    async fn reconcile(&self, connection: &Connection) -> Result<()> {
        let numbers: Vec<String> = self.hub.by_name().into_values().flatten().map(|id| id.number.to_string()).collect();
        let arguments = vec![self.session.into(), numbers.join(",").into()];
        for row in connection.answered("resume session", "unknown", arguments).await?.into_iter().skip(1) {
            let number = |at| column::<u64>("resume session", &row, at);
            let request = RequestId { client: number(1)?, number: number(2)? };
            let Ok(name) = Name::new(column::<String>("resume session", &row, 0)?) else { continue };
            tracing::warn!(%name, "a lock that was given up came back with the server, and is given up again");
            self.leave(connection, &PlaceId { name, request }, Some(number(3)?)).await?;
        }
        for held in portions(self.hub.held()) {
            let look = self.eye().look(connection, &held).await?;
            let places = held.iter().flat_map(|(_, ids)| ids).zip(look.names.iter().flat_map(|name| &name.places));
            places.filter(|(_, seen)| !matches!(seen, Seen::Granted(_))).for_each(|(id, _)| self.hub.missing(*id));
        }
        Ok(())
    }

    fn eye(&self) -> Eye {
        let (hub, bell) = (Arc::clone(&self.hub), Arc::clone(&self.bell));
        Eye { hub, bell, session: self.session }
    }

    /// Looks after the waiting places, listens, and clears away what dead sessions left.
    fn chores(&self, connection: &Arc<Connection>) -> Chores {
        let weak = Arc::downgrade(connection);
        let eye = self.eye();
        let look = async move |connection: &Connection, asked: &Places| eye.look(connection, asked).await;
        let clock: Arc<dyn Clock> = Arc::clone(&self.opening.clock);
        let repair = repair(weak.clone(), Arc::clone(&self.hub), clock, look);
        let listen = {
            let (config, bell) = (Arc::clone(&self.config), Arc::clone(&self.bell));
            listen(config, self.opening.clone(), bell, self.eye(), weak.clone())
        };
        let (swept, wanted) = (Arc::clone(&self.swept), Arc::clone(&self.sweep));
        let clear_up = async move {
            loop {
                wanted.notified().await;
                let Some(connection) = weak.upgrade() else { return };
                let from = swept.load(Ordering::Relaxed);
                let next = connection.ask("clear up", "clear_up", vec![from.into()]).await;
                match next.and_then(|row| column::<u64>("clear up", &row, 0)) {
                    Ok(next) => swept.store(next, Ordering::Relaxed),
                    Err(error) => tracing::debug!(%error, "what dead sessions left could not be cleared away"),
                }
            }
        };
        Box::pin(async move {
            future::join3(repair, listen, clear_up).await;
        })
    }

    async fn ask_to_leave(
        &self,
        connection: &Connection,
        place: &PlaceId,
        seq: Option<u64>,
        withdraw: bool,
    ) -> Result<(Left, u64)> {
        let mut arguments = request(self.session, place);
        arguments.extend([seq.into(), withdraw.into()]);
        let operation = if withdraw { "cancel" } else { "leave" };
        let row = connection.ask(operation, "leave", arguments).await?;
        let left = match column::<i64>(operation, &row, 0)? {
            0 => Left::Missing,
            1 => Left::Done,
            _ => Left::Kept(column(operation, &row, 2)?),
        };
        Ok((left, column(operation, &row, 1)?))
    }

    /// What a transaction keeps from ending is waited for on a connection of its own, and without the bucket: other names go on.
    async fn leave_in_time(&self, place: &PlaceId, mut kept_seq: u64) -> Result<bool> {
        let connection = apart(&self.config, Some(&self.opening)).await?;
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

    async fn ask_to_renew(&self, connection: &Connection, known: &[(PlaceId, u64)]) -> Result<Vec<Option<Broken>>> {
        let heard: Vec<String> = known.iter().map(|(_, seq)| seq.to_string()).collect();
        let arguments = vec![self.session.into(), microseconds(self.opening.ttl), heard.join(",").into()];
        let rows = connection.answered("renew", "renew", arguments).await?;
        let is_over = column::<i64>("renew", &rows[0], 0)? < 0;
        rows[usize::from(!is_over)..].iter().map(read_broken).collect()
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
}

/// What became of a place that was to be given up.
enum Left {
    Missing,
    Done,
    /// A transaction holds the grant of this number.
    Kept(u64),
}

/// A grant that somebody broke, as a renewal tells of it; `None` says that the session is over.
fn read_broken(row: &Row) -> Result<Option<Broken>> {
    let Ok(grant) = u64::try_from(column::<i64>("renew", row, 0)?) else { return Ok(None) };
    let name = Name::new(column::<String>("renew", row, 1)?).map_err(|_: Error| strange("renew"))?;
    let request = RequestId { client: column("renew", row, 2)?, number: column("renew", row, 3)? };
    let reason: String = column("renew", row, 4)?;
    Ok(Some(Broken { place: PlaceId { name, request }, grant, reason: reason.into() }))
}

/// The error of what waits for a transaction that keeps the row of a grant.
pub(super) fn kept(operation: &'static str, name: &Name) -> Error {
    let message = "another transaction keeps the row of this grant, which cannot end before it; information_schema.innodb_trx shows it";
    Error::new(ErrorKind::Unreachable, operation, message).with("name", name).retryable()
}

/// What looks at places of a session.
pub(super) struct Eye {
    pub(super) hub: Arc<Hub>,
    bell: Arc<Bell>,
    pub(super) session: u64,
}

impl Eye {
    pub(super) async fn look(&self, connection: &Connection, asked: &Places) -> Result<Look> {
        let seqs: Vec<Vec<u64>> =
            asked.iter().map(|(_, ids)| ids.iter().map(|id| self.hub.seq(*id).unwrap_or(0)).collect()).collect();
        let names = asked.iter().zip(&seqs).map(|((name, _), seqs)| {
            let hex: String = name.as_str().bytes().map(|byte| format!("{byte:02x}")).collect();
            let seqs: String = seqs.iter().map(|seq| format!(",{seq}")).collect();
            format!("[\"{hex}\"{seqs}]")
        });
        let places = format!("[{}]", names.collect::<Vec<_>>().join(","));
        let row = connection.ask("look", "look", vec![self.session.into(), places.into()]).await?;
        let answer: String = column("look", &row, 0)?;
        let mut look = read_look(&answer, &seqs).ok_or_else(|| strange("look"))?;
        if self.bell.is_deaf() {
            let names = look.names.iter_mut();
            names.for_each(|name| name.look_in = Some(name.look_in.map_or(POLL, |look_in| look_in.min(POLL))));
        }
        Ok(look)
    }
}

/// In what time to look, as the server says it: a count of milliseconds, none for a number below 0.
fn look_in(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().map(Duration::from_millis)
}

fn read_look(answer: &str, seqs: &[Vec<u64>]) -> Option<Look> {
    let mut numbers = answer.split(',').map(|number| number.parse::<i64>().ok());
    if numbers.next()?? == 0 {
        return Some(Look { alive: false, names: Vec::new() });
    }
    let mut names = Vec::new();
    for seqs in seqs {
        let look_in = look_in(numbers.next()??);
        let place = |seq: &u64| {
            Some(match numbers.next()?? {
                0 => Seen::Granted(*seq),
                1 => Seen::Waiting(*seq, None),
                _ => Seen::Missing,
            })
        };
        names.push(Looked { look_in, places: seqs.iter().map(place).collect::<Option<_>>()? });
    }
    numbers.next().is_none().then_some(Look { alive: true, names })
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
        let rings = self.bell.rings();
        let arguments: Vec<Value> = vec![
            self.session.into(),
            self.hub.epoch().into(),
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
        let number = |at| column::<u64>("enter", &row, at);
        let narrow = |at| u32::try_from(number(at)?).map_err(|_| strange("enter"));
        Ok(match number(0)? {
            0 => Enter::Granted(number(1)?),
            1 => {
                let said = look_in(column("enter", &row, 2)?);
                Enter::Waiting { seq: number(1)?, ahead: None, look_in: self.bell.look_in(said, rings) }
            }
            2 => Enter::Busy,
            3 => Enter::Conflict(Claim::new(narrow(1)?, narrow(2)?).map_err(|_| strange("enter"))?),
            4 => Enter::Stale(number(1)?),
            5 => Enter::Gone,
            6 => Enter::Again,
            _ => return Err(strange("enter")),
        })
    }

    async fn leave(&self, connection: &Connection, place: &PlaceId, seq: Option<u64>) -> Result<bool> {
        match self.ask_to_leave(connection, place, seq, false).await?.0 {
            Left::Missing => Ok(false),
            Left::Done => Ok(true),
            Left::Kept(seq) => self.leave_in_time(place, seq).await,
        }
    }

    async fn lighten(&self, connection: &Connection, place: &PlaceId, seq: u64, claim: Claim) -> Result<Lightened> {
        let mut arguments = request(self.session, place);
        arguments.extend([seq.into(), claim.weight().into()]);
        match column::<i64>("downgrade", &connection.ask("downgrade", "lighten", arguments).await?, 0)? {
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

    fn tidy_up(&self) {
        self.sweep.notify_one();
    }

    async fn close(&self, connection: &Connection) -> Result<()> {
        for (name, ids) in self.hub.by_name() {
            for request in ids {
                let place = PlaceId { name: name.clone(), request };
                self.leave(connection, &place, self.hub.seq(request)).await?;
                self.hub.forget(request);
            }
        }
        connection.answered("close session", "close", vec![self.session.into()]).await.map(drop)
    }
}

impl User for Member {
    fn greet<'a>(&'a self, connection: &'a Arc<Connection>) -> BoxFuture<'a, Result<Option<Chores>>> {
        Box::pin(async move {
            self.open_or_resume(connection).await?;
            self.hub.connected(connection.number);
            if self.hub.is_waiting() {
                self.bell.look_in(None, 0);
            }
            Ok(Some(self.chores(connection)))
        })
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
