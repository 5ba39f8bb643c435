//! A session of our own layout. The session is a row of the database: a client opens it once, resumes it on each new connection, and renews
//! it until its end.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use futures_util::future;
use tokio::sync::Notify;

use super::Chores;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::bucket::first_to_clear;
use crate::kit::served::{
    Broken, Connection, Enter, Look, Looked, Over, PlacesByName, REPAIR, Seen, Served, portions, repair,
};
use crate::queue::Claim;
use crate::store::{Capability, Liveness, Loss, Opening, Order, Pace, PlaceId, Tokens, Waiters};

/// Into how many parts the deadline of a renewal falls: after the first one it is also sent on a connection of its own.
const PART: u32 = 3;

/// The capability of our own layout in every database. Each store sets name, presumptions and residue.
pub(crate) const FAIR: Capability = Capability {
    store: "",
    layout: "",
    liveness: Liveness::Lease,
    order: Order::Fifo,
    tokens: Tokens::ClockFlooredCounter,
    presumes: &[],
    shared_claims: true,
    permits: true,
    notes: true,
    waiters: Waiters::Looked(Duration::from_millis(100)),
    // A waiter looks when the lease of a holder may be over.
    detection_slack: Duration::from_secs(1),
    wake_bound: REPAIR.saturating_add(Duration::from_secs(1)),
    same_as: &[],
    residue: &[],
    pace: Pace::DEFAULT,
    blocking: false,
};

/// A session without its places.
pub(crate) struct Lease {
    /// A random number, and a secret: whoever knows the number can give up the session's places.
    pub(crate) session: u64,
    pub(crate) opening: Opening,
    /// The bucket that is cleared up next.
    swept: AtomicU16,
    sweep: Notify,
}

impl Lease {
    pub(crate) fn new(opening: Opening) -> Result<Self> {
        let session = random()?;
        let swept = AtomicU16::new(first_to_clear(session));
        Ok(Self { session, opening, swept, sweep: Notify::new() })
    }

    /// Wakes the sweeper, which clears away some places of dead sessions.
    pub(crate) fn tidy_up(&self) {
        self.sweep.notify_one();
    }
}

pub(crate) fn random() -> Result<u64> {
    getrandom::u64().map_err(|error| {
        Error::new(ErrorKind::Exhausted, "open session", "no random numbers").caused_by(error.to_string())
    })
}

/// The requests of such a session, besides those of every session.
pub(crate) trait Leased: Served {
    /// How many places are given up at once.
    const AT_ONCE: usize;

    fn lease(&self) -> &Lease;

    /// Opens or resumes the session. Returns the epoch, 0 if the session is over.
    fn open(&self, connection: &Connection<Self>, is_new: bool) -> impl Future<Output = Result<u64>> + Send;

    /// The session's places at the server, with their numbers, without the places of the requests in `known`.
    fn unknown(
        &self,
        connection: &Connection<Self>,
        known: &[u64],
    ) -> impl Future<Output = Result<Vec<(PlaceId, u64)>>> + Send;

    /// The standing of the places in `asked`, whose numbers are `seqs`.
    fn ask_to_look(
        &self,
        connection: &Connection<Self>,
        asked: &PlacesByName,
        seqs: &[Vec<u64>],
    ) -> impl Future<Output = Result<Look>> + Send;

    /// Renews the session. Returns the broken grants whose numbers are not in `heard`; `None` if the session is over.
    fn ask_to_renew(
        &self,
        connection: &Connection<Self>,
        heard: &[u64],
    ) -> impl Future<Output = Result<Option<Vec<Broken>>>> + Send;

    /// A separate connection for a request that may wait for another program's transaction. On a shared connection all requests behind it
    /// would wait too.
    fn apart(&self) -> impl Future<Output = Result<Arc<Connection<Self>>>> + Send;

    /// Clears away places of dead sessions in some buckets, beginning with `from`. Returns the next bucket.
    fn clear_up(&self, connection: &Connection<Self>, from: u16) -> impl Future<Output = Result<u16>> + Send;

    fn end(&self, connection: &Connection<Self>) -> impl Future<Output = Result<()>> + Send;
}

/// Opens a session, or resumes it on a new connection. The server then refuses requests that are still on their way on an older connection.
pub(crate) async fn open_or_resume<S: Leased>(session: &S, connection: &Connection<S>) -> Result<()> {
    let places = session.places();
    if places.over() != Over::No {
        return Ok(());
    }
    let sent = session.lease().opening.clock.now();
    let is_new = places.epoch() == 0;
    let epoch = session.open(connection, is_new).await?;
    if epoch == 0 {
        places.end(Over::There, Loss::Expired);
        return Ok(());
    }
    places.raise(epoch);
    places.confirm(sent);
    if is_new { Ok(()) } else { reconcile(session, connection).await }
}

/// Compares the server's places with the client's. After a crash or a failover the server may have an older state: a place that was given up
/// may be back, and a granted place may be missing.
async fn reconcile<S: Leased>(session: &S, connection: &Connection<S>) -> Result<()> {
    let places = session.places();
    let known: Vec<u64> = places.by_name().into_values().flatten().map(|id| id.number).collect();
    let unknown = session.unknown(connection, &known).await?;
    if let Some((PlaceId { name, .. }, _)) = unknown.first() {
        let count = unknown.len();
        tracing::warn!(%name, count, "locks that were given up came back with the server, and are given up again");
    }
    leave_all(session, connection, unknown.into_iter().map(|(place, seq)| (place, Some(seq))).collect()).await?;
    for held in portions(places.held()) {
        let look = look(session, connection, &held).await?;
        let seen = held.iter().flat_map(|(_, ids)| ids).zip(look.names.iter().flat_map(|name| &name.places));
        seen.filter(|(_, seen)| !matches!(seen, Seen::Granted(_))).for_each(|(id, _)| places.missing(*id));
    }
    Ok(())
}

async fn leave_all<S: Leased>(
    session: &S,
    connection: &Connection<S>,
    places: Vec<(PlaceId, Option<u64>)>,
) -> Result<()> {
    for some in places.chunks(S::AT_ONCE) {
        let given_up = some.iter().map(async |(place, seq)| {
            session.leave(connection, place, *seq).await?;
            session.places().forget(place.request);
            Ok::<_, Error>(())
        });
        future::try_join_all(given_up).await?;
    }
    Ok(())
}

/// Asks for the standing of places of a session.
pub(crate) async fn look<S: Leased>(session: &S, connection: &Connection<S>, asked: &PlacesByName) -> Result<Look> {
    let seq = |id| session.places().seq(id).unwrap_or(0);
    let seqs: Vec<Vec<u64>> = asked.iter().map(|(_, ids)| ids.iter().map(|id| seq(*id)).collect()).collect();
    session.ask_to_look(connection, asked, &seqs).await
}

/// Renews a session. Returns whether the session lives. Without an answer after a while, the renewal is sent on a second connection as well:
/// on the first connection a request may wait for another program's transaction.
pub(crate) async fn renew<S: Leased>(
    session: &S,
    connection: &Connection<S>,
    known: &[(PlaceId, u64)],
) -> Result<bool> {
    let heard: Vec<u64> = known.iter().map(|(_, seq)| *seq).collect();
    let opening = &session.lease().opening;
    let once_more = async {
        opening.clock.sleep_until(opening.clock.now().after(opening.patience() / PART)).await;
        match session.apart().await {
            Ok(connection) => session.ask_to_renew(&connection, &heard).await,
            // Only the first connection can bring an answer then.
            Err(_) => future::pending().await,
        }
    };
    let told = tokio::select! {
        biased;
        told = session.ask_to_renew(connection, &heard) => told?,
        told = once_more => told?,
    };
    let Some(broken) = told else { return Ok(false) };
    broken.into_iter().for_each(|broken| session.places().told_broken(broken));
    Ok(true)
}

/// Ends a session and all of its places.
pub(crate) async fn close<S: Leased>(session: &S, connection: &Connection<S>) -> Result<()> {
    let places = session.places();
    let mut left = Vec::new();
    for (name, ids) in places.by_name() {
        left.extend(ids.into_iter().map(|request| (PlaceId { name: name.clone(), request }, places.seq(request))));
    }
    leave_all(session, connection, left).await?;
    session.end(connection).await
}

/// Looks after the waiting places of a session, and clears away what dead sessions left, until the connection ends.
pub(crate) fn chores<S: Leased>(session: &Arc<S>, connection: &Arc<Connection<S>>) -> Chores {
    let (weak, eye, sweeper) = (Arc::downgrade(connection), Arc::clone(session), Arc::clone(session));
    let (places, clock) = (Arc::clone(session.places()), Arc::clone(&session.lease().opening.clock));
    let look = async move |connection: &Connection<S>, asked: &PlacesByName| look(&*eye, connection, asked).await;
    let repair = repair(weak.clone(), places, clock, look);
    let clear_up = async move {
        let lease = sweeper.lease();
        loop {
            lease.sweep.notified().await;
            let Some(connection) = weak.upgrade() else { return };
            match sweeper.clear_up(&connection, lease.swept.load(Ordering::Relaxed)).await {
                Ok(next) => lease.swept.store(next, Ordering::Relaxed),
                Err(error) => tracing::debug!(%error, "what dead sessions left could not be cleared away"),
            }
        }
    };
    Box::pin(async move {
        future::join(repair, clear_up).await;
    })
}

/// The time until the next look, from the server's number: milliseconds, `None` for a number below 0.
pub(crate) fn look_in(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().map(Duration::from_millis)
}

/// The standing of one name's places, whose numbers are `seqs`. The server says for each place: 0 granted, 1 waiting, 2 missing.
pub(crate) fn looked(number: i64, seqs: &[u64], mut stands: impl Iterator<Item = i64>) -> Option<Looked> {
    let place = |seq: &u64| {
        Some(match stands.next()? {
            0 => Seen::Granted(*seq),
            1 => Seen::Waiting(*seq, None),
            _ => Seen::Missing,
        })
    };
    Some(Looked { look_in: look_in(number), places: seqs.iter().map(place).collect::<Option<_>>()? })
}

/// Reads the answer to `enter`. The first number is the kind of answer.
pub(crate) fn entered(answer: &[i64]) -> Option<Enter> {
    let claim = |number: &i64| u32::try_from(*number).ok();
    Some(match answer {
        [0, seq, ..] => Enter::Granted(seq.cast_unsigned()),
        [1, seq, told, ..] => Enter::Waiting { seq: seq.cast_unsigned(), ahead: None, look_in: look_in(*told) },
        [2, ..] => Enter::Busy,
        [3, weight, capacity, ..] => Enter::Conflict(Claim::new(claim(weight)?, claim(capacity)?).ok()?),
        [4, epoch, ..] => Enter::Stale(epoch.cast_unsigned()),
        [5, ..] => Enter::Gone,
        [6, ..] => Enter::Again,
        _ => return None,
    })
}
