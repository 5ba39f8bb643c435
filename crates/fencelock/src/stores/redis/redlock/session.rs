//! A session over several servers: how they are asked for its locks. Its lines and places are those of `kit/try_again/`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use super::Times;
use super::attempt::{RedlockAttempt, at, withdrawn};
use super::servers::{Answers, Given, Servers, ToMajority, heard, open};
use super::store::breaks;
use super::votes::Votes;
use crate::error::Result;
use crate::kit::try_again::{Prolonged, Tried, Try, UnqueuedBackend};
use crate::store::{Entry, Opening, PlaceId, RequestId};
use crate::stores::redis::try_again::dialect::Dialect;
use crate::stores::redis::try_again::inspect::reason;
use crate::token::FencingToken;

/// What lives as long as the session does.
pub(super) struct RedlockSession {
    pub(super) dialect: Arc<Dialect>,
    pub(super) opening: Opening,
    pub(super) votes: Votes,
    times: Times,
    attempts: Mutex<HashMap<RequestId, Latest>>,
    number: AtomicU64,
    /// The servers, which keep the session themselves.
    pub(super) servers: OnceLock<Weak<Servers>>,
}

/// The newest attempt of a request, unless it was refused.
enum Latest {
    Attempt(Arc<RedlockAttempt>),
    /// The place is given up: there is no further one.
    Leaving,
}

impl RedlockSession {
    pub(super) fn new(dialect: Arc<Dialect>, opening: Opening, times: Times, servers: usize) -> Arc<Self> {
        let votes = Votes::new(servers, times.rejoin.unwrap_or(opening.ttl), Arc::clone(&opening.clock));
        let (attempts, number, servers) = (Mutex::default(), AtomicU64::new(0), OnceLock::new());
        Arc::new(Self { dialect, opening, votes, times, attempts, number, servers })
    }

    fn attempts(&self) -> MutexGuard<'_, HashMap<RequestId, Latest>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt, which is the newest one of its request from now on; not when its place is being given up.
    fn begin(&self, due: &Try) -> Result<Arc<RedlockAttempt>> {
        let (place, id, mut attempts) = (due.place.clone(), due.place.request, self.attempts());
        let earlier = match attempts.get(&id) {
            Some(Latest::Leaving) => return Err(withdrawn()),
            Some(Latest::Attempt(earlier)) => Some(earlier.number),
            None => None,
        };
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let attempt = Arc::new(RedlockAttempt::new(place, Arc::clone(&due.said), number, earlier));
        attempts.insert(id, Latest::Attempt(Arc::clone(&attempt)));
        Ok(attempt)
    }

    /// Whether this is the newest attempt of a request that was not given up.
    pub(super) fn has(&self, attempt: &Arc<RedlockAttempt>) -> bool {
        let attempts = self.attempts();
        matches!(attempts.get(&attempt.place.request), Some(Latest::Attempt(newest)) if Arc::ptr_eq(newest, attempt))
    }

    /// The number of the attempt that has this place; one that none has where there is none.
    fn number_of(&self, place: &PlaceId) -> u64 {
        match self.attempts().get(&place.request) {
            Some(Latest::Attempt(attempt)) => attempt.number,
            _ => u64::MAX,
        }
    }
}

/// The session as `kit/try_again/` has it. What is asked on tasks of its own shares it.
pub(super) struct Asking(pub(super) Arc<RedlockSession>);

impl UnqueuedBackend for Asking {
    type Dial = ToMajority;

    fn check(&self, entry: &Entry) -> Result<String> {
        self.0.dialect.check_entry(entry, &self.0.opening)
    }

    /// For clocks that do not go at one rate, a grant ends sooner than the ttl.
    fn validity(&self, ttl: Duration) -> Duration {
        ttl.saturating_sub(self.0.times.drift(ttl))
    }

    async fn take(&self, servers: &Servers, due: &Try, is_new: bool) -> Result<Tried> {
        let attempt = self.0.begin(due)?;
        let until = servers.clock.now().after(self.validity(self.0.opening.ttl));
        let tried = self.0.attempt(servers, &attempt, until, is_new).await;
        if matches!(&tried, Ok(refused) if !matches!(refused, Tried::Granted(_))) && self.0.has(&attempt) {
            self.0.attempts().remove(&attempt.place.request);
        }
        tried
    }

    /// A lock lives as long as a majority confirms it. What is left of others is deleted, without waiting for that.
    async fn renew(&self, servers: &Servers, places: &[PlaceId]) -> Result<Prolonged> {
        let asked: Arc<[_]> = places.iter().map(|place| (place.clone(), self.0.number_of(place))).collect();
        let mut answers = servers.ask((Arc::clone(&self.0), asked), |(session, asked), index, connection| {
            Box::pin(async move {
                let sent = session.opening.clock.now();
                let places = asked.iter().map(|(place, number)| at(&session.dialect, place, *number)).collect();
                let gone = connection.run("renew", &session.dialect.renew(places, session.opening.ttl)).await?;
                Ok(RenewalReply { gone, counts: session.votes.counts(index, sent) })
            })
        })?;
        let quorum = servers.quorum();
        let unknown = |given: &Given<RenewalReply>| -> Vec<usize> {
            (0..places.len()).filter(|lock| outcome(given, *lock, quorum).is_none()).collect()
        };
        let is_decided = |given: &Given<RenewalReply>| {
            let is_known = heard(given) >= quorum && unknown(given).is_empty();
            is_known || heard(given) + open(given) < quorum
        };
        answers.until(is_decided).await;
        answers.of_quorum("renew")?;
        let given = &answers.given[..];
        let lost: Vec<_> = (0..places.len()).filter(|lock| outcome(given, *lock, quorum) == Some(false)).collect();
        if !lost.is_empty() {
            let _ = self.delete(servers, lost.iter().map(|lock| places[*lock].clone()).collect())?;
        }
        Ok(Prolonged { unknown: unknown(given), lost })
    }

    /// Also where no majority is connected: what a minority keeps can keep others from a majority.
    fn at_hand(&self) -> Option<Arc<Servers>> {
        self.0.servers.get()?.upgrade()
    }

    /// Of one place it is told whether a majority may have had it, where that does not take long.
    async fn leave(&self, servers: &Servers, operation: &'static str, places: &[PlaceId]) -> Result<usize> {
        // No attempt that is under way may keep what it is granted.
        self.0.attempts().extend(places.iter().map(|place| (place.request, Latest::Leaving)));
        let mut answers = self.delete(servers, places.into())?;
        let (all, quorum, is_one) = (servers.size(), servers.quorum(), places.len() == 1);
        let deleted = |given: &Given<usize>| given.iter().flatten().flatten().filter(|there| **there > 0).count();
        let is_decided = |given: &Given<usize>| {
            let deleted = deleted(given);
            heard(given) >= quorum && (!is_one || deleted >= quorum || deleted + open(given) < quorum)
        };
        answers.until(is_decided).await;
        answers.of_quorum(operation)?;
        places.iter().for_each(|place| drop(self.0.attempts().remove(&place.request)));
        let given = &answers.given[..];
        let was_there = deleted(given) + all - heard(given) >= quorum;
        Ok(if was_there { places.len() } else { 0 })
    }

    /// The locks that are still held wait for this to be told as renewed.
    async fn broken(
        &self,
        servers: &Servers,
        place: &PlaceId,
        token: Option<FencingToken>,
    ) -> Result<Option<Arc<str>>> {
        tokio::select! {
            biased;
            known = breaks(servers, &self.0.dialect, &place.name) => {
                Ok(reason(known.unwrap_or_default(), place, token))
            }
            () = servers.clock.sleep_until(servers.clock.now().after(servers.grace)) => Ok(None),
        }
    }
}

impl Asking {
    /// Deletes what these have at every server, whichever attempts of them.
    fn delete(&self, servers: &Servers, places: Arc<[PlaceId]>) -> Result<Answers<usize>> {
        servers.ask((Arc::clone(&self.0.dialect), places), |(dialect, places), _, connection| {
            let leave = dialect.leave(places.iter().map(|place| dialect.at(place)).collect());
            Box::pin(async move { connection.run("leave", &leave).await })
        })
    }
}

/// What one server said of the locks that it was asked to prolong.
struct RenewalReply {
    /// By their numbers among all.
    gone: Vec<usize>,
    /// Whether the server has a vote.
    counts: bool,
}

/// Whether a lock lives; `None` where too few answered to tell.
fn outcome(given: &Given<RenewalReply>, lock: usize, quorum: usize) -> Option<bool> {
    let (gone, there): (Vec<_>, Vec<_>) = given.iter().flatten().flatten().partition(|said| said.gone.contains(&lock));
    if there.iter().filter(|said| said.counts).count() >= quorum {
        return Some(true);
    }
    (gone.len() > given.len() - quorum).then_some(false)
}
