//! A session over several servers: its requests about its locks. `kit/try_again/` keeps its lines and places.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::Times;
use super::attempt::{RedlockAttempt, at, withdrawn};
use super::servers::{Answers, Given, Servers, ToMajority, answered, open};
use super::store::breaks;
use super::votes::Votes;
use crate::error::Result;
use crate::kit::try_again::{Prolonged, Tried, Try, UnqueuedBackend};
use crate::store::{Entry, Opening, PlaceId, RequestId};
use crate::stores::redis::try_again::dialect::Dialect;
use crate::stores::redis::try_again::inspect::reason;
use crate::sync::Mutex;
use crate::time::outcome_before;
use crate::token::FencingToken;

/// The state of a session.
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

/// The newest attempt of a request, unless the servers refused it.
enum Latest {
    Attempt(Arc<RedlockAttempt>),
    /// The session gave the place up: no further attempt follows.
    Leaving,
}

impl RedlockSession {
    pub(super) fn new(dialect: Arc<Dialect>, opening: Opening, times: Times, servers: usize) -> Arc<Self> {
        let votes = Votes::new(servers, times.rejoin.unwrap_or(opening.ttl), Arc::clone(&opening.clock));
        let (attempts, number, servers) = (Mutex::default(), AtomicU64::new(0), OnceLock::new());
        Arc::new(Self { dialect, opening, votes, times, attempts, number, servers })
    }

    /// Begins an attempt, the newest of its request from now on. Fails if the session gave up the place.
    fn begin(&self, due: &Try) -> Result<Arc<RedlockAttempt>> {
        let (place, id, mut attempts) = (due.place.clone(), due.place.request, self.attempts.lock());
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
        let attempts = self.attempts.lock();
        matches!(attempts.get(&attempt.place.request), Some(Latest::Attempt(newest)) if Arc::ptr_eq(newest, attempt))
    }

    /// The number of the attempt of this place; without an attempt, a number that no attempt has.
    fn number_of(&self, place: &PlaceId) -> u64 {
        match self.attempts.lock().get(&place.request) {
            Some(Latest::Attempt(attempt)) => attempt.number,
            _ => u64::MAX,
        }
    }
}

/// The session for `kit/try_again/`, shared with the tasks of its requests.
pub(super) struct Asking(pub(super) Arc<RedlockSession>);

impl UnqueuedBackend for Asking {
    type Dial = ToMajority;

    fn check(&self, entry: &Entry) -> Result<String> {
        self.0.dialect.check_entry(entry, &self.0.opening)
    }

    /// For clocks of different rates, a grant ends sooner than the ttl.
    fn validity(&self, ttl: Duration) -> Duration {
        ttl.saturating_sub(self.0.times.drift(ttl))
    }

    async fn take(&self, servers: &Servers, due: &Try, is_new: bool) -> Result<Tried> {
        let attempt = self.0.begin(due)?;
        let until = servers.clock.now().after(self.validity(self.0.opening.ttl));
        let tried = self.0.attempt(servers, &attempt, until, is_new).await;
        if matches!(&tried, Ok(refused) if !matches!(refused, Tried::Granted(_))) && self.0.has(&attempt) {
            self.0.attempts.lock().remove(&attempt.place.request);
        }
        tried
    }

    /// A lock lives as long as a majority confirms it. Remains of lost locks are deleted, without a wait for the answers.
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
            let is_known = answered(given) >= quorum && unknown(given).is_empty();
            is_known || answered(given) + open(given) < quorum
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

    /// Releases need no connected majority: keys at a minority can keep other clients from a majority.
    fn release_connection(&self) -> Option<Arc<Servers>> {
        self.0.servers.get()?.upgrade()
    }

    /// For a single place, waits briefly to learn whether a majority may have had it.
    async fn leave(&self, servers: &Servers, operation: &'static str, places: &[PlaceId]) -> Result<usize> {
        // An attempt that is under way must not keep a grant.
        self.0.attempts.lock().extend(places.iter().map(|place| (place.request, Latest::Leaving)));
        let mut answers = self.delete(servers, places.into())?;
        let (all, quorum, is_one) = (servers.size(), servers.quorum(), places.len() == 1);
        let deleted = |given: &Given<usize>| given.iter().flatten().flatten().filter(|there| **there > 0).count();
        let is_decided = |given: &Given<usize>| {
            let deleted = deleted(given);
            answered(given) >= quorum && (!is_one || deleted >= quorum || deleted + open(given) < quorum)
        };
        answers.until(is_decided).await;
        answers.of_quorum(operation)?;
        places.iter().for_each(|place| drop(self.0.attempts.lock().remove(&place.request)));
        let given = &answers.given[..];
        let was_there = deleted(given) + all - answered(given) >= quorum;
        Ok(if was_there { places.len() } else { 0 })
    }

    /// The renewal of the locks that are still held waits for this answer.
    async fn broken(
        &self,
        servers: &Servers,
        place: &PlaceId,
        token: Option<FencingToken>,
    ) -> Result<Option<Arc<str>>> {
        let limit = servers.clock.now().after(servers.grace);
        let known = outcome_before(&*servers.clock, limit, breaks(servers, &self.0.dialect, &place.name)).await;
        Ok(reason(known.and_then(Result::ok).unwrap_or_default(), place, token))
    }
}

impl Asking {
    /// Deletes all attempts of these places at every server.
    fn delete(&self, servers: &Servers, places: Arc<[PlaceId]>) -> Result<Answers<usize>> {
        servers.ask((Arc::clone(&self.0.dialect), places), |(dialect, places), _, connection| {
            let leave = dialect.leave(places.iter().map(|place| dialect.at(place)).collect());
            Box::pin(async move { connection.run("leave", &leave).await })
        })
    }
}

/// A server's answer to a renewal.
struct RenewalReply {
    /// The indices of the lost locks.
    gone: Vec<usize>,
    /// Whether the server has a vote.
    counts: bool,
}

/// Whether a lock lives; `None` if too few servers answered.
fn outcome(given: &Given<RenewalReply>, lock: usize, quorum: usize) -> Option<bool> {
    let (gone, there): (Vec<_>, Vec<_>) = given.iter().flatten().flatten().partition(|said| said.gone.contains(&lock));
    if there.iter().filter(|said| said.counts).count() >= quorum {
        return Some(true);
    }
    (gone.len() > given.len() - quorum).then_some(false)
}
