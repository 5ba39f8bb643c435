//! A session over several servers: entering, leaving, closing, and the tries of those who wait.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_core::future::BoxFuture;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::task::AbortHandle;

use super::attempt::{Attempt, withdrawn};
use super::places::RedlockPlace;
use super::servers::{Given, Servers, heard, open};
use super::state::SessionState;
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::kit::try_again::{Begun, Tried, Try};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Entered, Entry, Loss, PlaceId, PlaceList, Renewal, RequestId, Session, Standing};
use crate::stores::redis::try_again::dialect::{other_kind, said};

const ONLY_MUTEXES: &str =
    "Redlock knows mutexes only: readers, writers and permits need one server, redis://, with its default layout";

/// How many locks one script renews or gives up.
pub(super) const LOCKS_PER_CALL: usize = 256;

/// What a session and its places share.
pub(super) struct Locks {
    pub(super) servers: Servers,
    pub(super) state: Arc<SessionState>,
    attempts: Mutex<HashMap<RequestId, Latest>>,
    number: AtomicU64,
    tries: Mutex<Option<AbortHandle>>,
}

/// The newest attempt of a request.
enum Latest {
    Attempt(Arc<Attempt>),
    /// The place is given up: there is no further one.
    Leaving,
}

impl Locks {
    pub(super) fn new(servers: Servers, state: Arc<SessionState>) -> Result<Arc<Self>> {
        let (attempts, number, tries) = (Mutex::default(), AtomicU64::new(0), Mutex::default());
        let locks = Arc::new(Self { servers, state, attempts, number, tries });
        let task = locks.servers.start(tries_for(Arc::downgrade(&locks), Arc::clone(&locks.state)))?;
        *locks.tries.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        Ok(locks)
    }

    fn attempts(&self) -> MutexGuard<'_, HashMap<RequestId, Latest>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that this is the newest attempt of its request; not when its place is being given up.
    pub(super) fn begin(&self, attempt: &Arc<Attempt>) -> Result<()> {
        let mut attempts = self.attempts();
        if matches!(attempts.get(&attempt.place.request), Some(Latest::Leaving)) {
            return Err(withdrawn());
        }
        attempts.insert(attempt.place.request, Latest::Attempt(Arc::clone(attempt)));
        Ok(())
    }

    /// Whether this is the newest attempt of a request that was not given up.
    pub(super) fn has(&self, attempt: &Arc<Attempt>) -> bool {
        let attempts = self.attempts();
        matches!(attempts.get(&attempt.place.request), Some(Latest::Attempt(newest)) if Arc::ptr_eq(newest, attempt))
    }

    /// The newest attempt of this request.
    pub(super) fn newest(&self, id: RequestId) -> Option<Arc<Attempt>> {
        match self.attempts().get(&id) {
            Some(Latest::Attempt(attempt)) => Some(Arc::clone(attempt)),
            _ => None,
        }
    }

    fn new_attempt(&self, place: PlaceId, said: Arc<str>, earlier: Option<u64>) -> Attempt {
        Attempt::new(place, said, self.number.fetch_add(1, Ordering::Relaxed), earlier)
    }

    fn forget(&self, id: RequestId) {
        self.state.places.forget(id);
        self.attempts().remove(&id);
    }

    async fn enter(self: &Arc<Self>, entry: &Entry) -> Result<Entered> {
        self.state.alive("enter")?;
        self.state.dialect.check_name("enter", &entry.name)?;
        if entry.claim != Claim::MUTEX {
            let error = Error::new(ErrorKind::Unsupported, "enter", ONLY_MUTEXES);
            return Err(error.with("name", &entry.name).with("claim", entry.claim));
        }
        let place = PlaceId { name: entry.name.clone(), request: entry.id };
        let said: Arc<str> = said(entry, &self.state.opening.owner)?.into();
        let is_new = match self.state.places.begin(entry, &said) {
            Begun::First => true,
            Begun::Again => false,
            Begun::Behind if !entry.wait => {
                self.state.places.forget(entry.id);
                return Ok(Entered::Busy);
            }
            // Every claim is a mutex's.
            Begun::Known | Begun::Behind | Begun::Other => return Ok(self.place(place)),
        };
        let earlier = self.newest(entry.id).map(|attempt| attempt.number);
        let attempt = self.new_attempt(place.clone(), said, earlier);
        let (tried, sent) = match self.attempt("enter", attempt, true).await {
            Ok(answer) => answer,
            Err(error) => {
                if is_new && error.outcome() == Outcome::NotApplied {
                    self.forget(entry.id);
                }
                return Err(error);
            }
        };
        if let Tried::Other(kind) = &tried {
            self.forget(entry.id);
            return Err(other_kind("enter", kind, &self.state.dialect));
        }
        if !matches!(tried, Tried::Granted(_)) && !entry.wait {
            self.forget(entry.id);
            return Ok(Entered::Busy);
        }
        self.state.places.answered(entry.id, Ok(tried), (sent, self.state.validity()), self.servers.clock.now());
        Ok(self.place(place))
    }

    fn place(self: &Arc<Self>, place: PlaceId) -> Entered {
        Entered::In(Box::new(RedlockPlace { locks: Arc::clone(self), place, is_troubled: false }))
    }

    /// Tries for the first of a line.
    async fn try_for(self: Arc<Self>, due: Try) {
        let (place, id) = (due.place.clone(), due.place.request);
        let attempt = self.new_attempt(due.place, due.said, None);
        let (tried, sent) = match self.attempt("next", attempt, false).await {
            Ok((tried, sent)) => (Ok(tried), sent),
            Err(error) => (Err(error), self.servers.clock.now()),
        };
        let is_granted = matches!(tried, Ok(Tried::Granted(_)));
        self.state.places.answered(id, tried, (sent, self.state.validity()), self.servers.clock.now());
        if is_granted && !matches!(self.state.places.standing(id), Standing::Granted(_)) {
            // It was given up just before it was tried for.
            let _ = self.leave(&place).await;
        }
    }

    /// Gives up one place at all servers; says whether it was there.
    pub(super) async fn leave(&self, place: &PlaceId) -> Result<bool> {
        let places = &self.state.places;
        if matches!(places.over(), Some(Loss::Expired | Loss::Closed)) {
            return Ok(false);
        }
        let was_granted = !matches!(places.standing(place.request), Standing::Waiting(_));
        let mut was_there = true;
        if places.leaves(place.request) {
            // What is under way for it is not kept from here on.
            self.attempts().insert(place.request, Latest::Leaving);
            let most = self.delete("leave", vec![place.clone()], was_granted).await?;
            was_there = !was_granted || most >= self.servers.quorum();
        }
        self.forget(place.request);
        Ok(was_there)
    }

    /// Deletes what these have at every server; says at how many there was something, at most. With `counts`, waits until it is certain
    /// whether that was a majority, where that does not take long.
    pub(super) async fn delete(&self, operation: &'static str, places: Vec<PlaceId>, counts: bool) -> Result<usize> {
        let dialect = Arc::clone(&self.state.dialect);
        let places = Arc::new(places);
        let mut answers = self.servers.ask(move |_, connection| {
            let (dialect, places) = (Arc::clone(&dialect), Arc::clone(&places));
            Box::pin(async move { connection.run(operation, &dialect.leave(&places)).await })
        })?;
        let quorum = self.servers.quorum();
        let is_decided = |given: &Given<usize>| {
            let deleted = deleted(given);
            heard(given) >= quorum && (!counts || deleted >= quorum || deleted + open(given) < quorum)
        };
        answers.until(is_decided).await;
        answers.of_quorum(operation)?;
        let (given, all) = (answers.given(), self.servers.size());
        Ok(deleted(given) + all - heard(given))
    }

    async fn close(&self) -> Result<()> {
        let places = &self.state.places;
        let all = places.close();
        if !all.is_empty() && !matches!(places.over(), Some(Loss::Expired | Loss::Closed)) {
            {
                let mut attempts = self.attempts();
                all.iter().for_each(|place| drop(attempts.insert(place.request, Latest::Leaving)));
            }
            let portions = all.chunks(LOCKS_PER_CALL);
            let closed = join_all(portions.map(|portion| self.delete("close session", portion.to_vec(), false))).await;
            closed.into_iter().try_for_each(|deleted| deleted.map(drop))?;
        }
        places.end(Loss::Closed);
        self.servers.links.iter().for_each(|link| link.hang_up());
        Ok(())
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        if let Some(task) = self.tries.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

fn deleted(given: &Given<usize>) -> usize {
    given.iter().filter(|answer| matches!(answer, Some(Ok(there)) if *there > 0)).count()
}

/// Tries for those who are first in their lines, when they are due, as long as the session is there.
async fn tries_for(locks: Weak<Locks>, state: Arc<SessionState>) {
    let mut under_way = FuturesUnordered::new();
    loop {
        let next = {
            // First, so that nobody is marked as tried for whom nothing is sent.
            let Some(locks) = locks.upgrade() else { return };
            match state.places.due(state.opening.clock.now()) {
                Ok(work) => {
                    under_way.extend(work.tries.into_iter().map(|due| Arc::clone(&locks).try_for(due)));
                    continue;
                }
                Err(next) => next,
            }
        };
        tokio::select! {
            biased;
            Some(()) = under_way.next() => {}
            () = state.places.rung() => {}
            () = state.opening.clock.sleep_until(next) => {}
        }
    }
}

pub(super) struct RedlockSession(pub(super) Arc<Locks>);

impl Session for RedlockSession {
    fn over(&self) -> Option<Loss> {
        self.0.state.places.over()
    }

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        Box::pin(async move { self.0.enter(&entry).await })
    }

    fn withdraw<'a>(&'a self, name: &'a Name, id: RequestId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.0.leave(&PlaceId { name: name.clone(), request: id }).await.map(drop) })
    }

    fn renew<'a>(&'a self, places: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>> {
        Box::pin(self.0.renew(places))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.0.close())
    }
}
