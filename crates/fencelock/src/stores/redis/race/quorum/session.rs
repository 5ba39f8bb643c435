//! A session over several masters: entering, leaving, closing, and the tries of those who wait.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_core::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::task::AbortHandle;

use super::super::dialect::{other_kind, said};
use super::bidding::withdrawn;
use super::calls::Bid;
use super::fleet::{Fleet, Given, heard, open};
use super::master::Member;
use super::place::QuorumPlace;
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::kit::try_again::{Begun, Tried, Try};
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{Entered, Entry, Loss, PlaceId, PlaceList, Renewal, RequestId, Session, Standing};

const ONLY_MUTEXES: &str =
    "Redlock knows mutexes only: readers, writers and permits need one server, redis://, with its default layout";

/// How many locks one script gives up.
const LOCKS_PER_CALL: usize = 256;

/// What a session and its places share.
pub(super) struct Core {
    pub(super) fleet: Fleet,
    pub(super) member: Arc<Member>,
    bids: Mutex<HashMap<RequestId, Latest>>,
    number: AtomicU64,
    tries: Mutex<Option<AbortHandle>>,
}

/// The newest bid of a request.
enum Latest {
    Bid(Arc<Bid>),
    /// The place is given up: there is no further one.
    Leaving,
}

impl Core {
    pub(super) fn new(fleet: Fleet, member: Arc<Member>) -> Result<Arc<Self>> {
        let core = Self { fleet, member, bids: Mutex::default(), number: AtomicU64::new(0), tries: Mutex::default() };
        let core = Arc::new(core);
        let task = core.fleet.start(tries(Arc::downgrade(&core), Arc::clone(&core.member)))?;
        *core.tries.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        Ok(core)
    }

    fn bids(&self) -> MutexGuard<'_, HashMap<RequestId, Latest>> {
        self.bids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that this is the newest bid of its request; not when its place is being given up.
    pub(super) fn is_bidding(&self, bid: &Arc<Bid>) -> Result<()> {
        let mut bids = self.bids();
        if matches!(bids.get(&bid.place.request), Some(Latest::Leaving)) {
            return Err(withdrawn());
        }
        bids.insert(bid.place.request, Latest::Bid(Arc::clone(bid)));
        Ok(())
    }

    /// Whether this is the newest bid of a request that was not given up.
    pub(super) fn has(&self, bid: &Arc<Bid>) -> bool {
        matches!(self.bids().get(&bid.place.request), Some(Latest::Bid(newest)) if Arc::ptr_eq(newest, bid))
    }

    /// The newest bid of this request.
    pub(super) fn newest(&self, id: RequestId) -> Option<Arc<Bid>> {
        match self.bids().get(&id) {
            Some(Latest::Bid(bid)) => Some(Arc::clone(bid)),
            _ => None,
        }
    }

    fn new_bid(&self, place: PlaceId, said: Arc<str>, earlier: Option<u64>) -> Bid {
        Bid { place, said, number: self.number.fetch_add(1, Ordering::Relaxed), earlier }
    }

    fn forget(&self, id: RequestId) {
        self.member.lines.forget(id);
        self.bids().remove(&id);
    }

    async fn enter(self: &Arc<Self>, entry: &Entry) -> Result<Entered> {
        self.member.alive("enter")?;
        self.member.dialect.check_name("enter", &entry.name)?;
        if entry.claim != Claim::MUTEX {
            let error = Error::new(ErrorKind::Unsupported, "enter", ONLY_MUTEXES);
            return Err(error.with("name", &entry.name).with("claim", entry.claim));
        }
        let place = PlaceId { name: entry.name.clone(), request: entry.id };
        let said: Arc<str> = said(entry, &self.member.opening.owner)?.into();
        let is_new = match self.member.lines.begin(entry, &said) {
            Begun::First => true,
            Begun::Again => false,
            Begun::Behind if !entry.wait => {
                self.member.lines.forget(entry.id);
                return Ok(Entered::Busy);
            }
            // Every claim is a mutex's.
            Begun::Known | Begun::Behind | Begun::Other => return Ok(self.place(place)),
        };
        let earlier = self.newest(entry.id).map(|bid| bid.number);
        let bid = self.new_bid(place.clone(), said, earlier);
        let (tried, sent) = match self.bid("enter", bid, true).await {
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
            return Err(other_kind("enter", kind, &self.member.dialect));
        }
        if !matches!(tried, Tried::Granted(_)) && !entry.wait {
            self.forget(entry.id);
            return Ok(Entered::Busy);
        }
        self.member.lines.answered(entry.id, Ok(tried), (sent, self.member.validity()), self.fleet.clock.now());
        Ok(self.place(place))
    }

    fn place(self: &Arc<Self>, place: PlaceId) -> Entered {
        Entered::In(Box::new(QuorumPlace { core: Arc::clone(self), place, is_troubled: false }))
    }

    /// Tries for the first of a line.
    async fn try_for(self: Arc<Self>, due: Try) {
        let (place, id) = (due.place.clone(), due.place.request);
        let bid = self.new_bid(due.place, due.said, None);
        let (tried, sent) = match self.bid("next", bid, false).await {
            Ok((tried, sent)) => (Ok(tried), sent),
            Err(error) => (Err(error), self.fleet.clock.now()),
        };
        let is_granted = matches!(tried, Ok(Tried::Granted(_)));
        self.member.lines.answered(id, tried, (sent, self.member.validity()), self.fleet.clock.now());
        if is_granted && !matches!(self.member.lines.standing(id), Standing::Granted(_)) {
            // It was given up just before it was tried for.
            let _ = self.leave(&place).await;
        }
    }

    /// Gives up one place at all masters; says whether it was there.
    pub(super) async fn leave(&self, place: &PlaceId) -> Result<bool> {
        let lines = &self.member.lines;
        if matches!(lines.over(), Some(Loss::Expired | Loss::Closed)) {
            return Ok(false);
        }
        let was_granted = !matches!(lines.standing(place.request), Standing::Waiting(_));
        let mut was_there = true;
        if lines.leaves(place.request) {
            // What is under way for it is not kept from here on.
            self.bids().insert(place.request, Latest::Leaving);
            let most = self.delete("leave", vec![place.clone()], was_granted).await?;
            was_there = !was_granted || most >= self.fleet.quorum();
        }
        self.forget(place.request);
        Ok(was_there)
    }

    /// Deletes what these have at every master; says at how many there was something, at most. With `counts`, waits until it is certain
    /// whether that was a quorum, where that does not take long.
    pub(super) async fn delete(&self, operation: &'static str, places: Vec<PlaceId>, counts: bool) -> Result<usize> {
        let dialect = Arc::clone(&self.member.dialect);
        let places = Arc::new(places);
        let mut answers = self.fleet.ask(move |connection| {
            let (dialect, places) = (Arc::clone(&dialect), Arc::clone(&places));
            Box::pin(async move { connection.run(operation, &dialect.leave(&places)).await })
        })?;
        let quorum = self.fleet.quorum();
        let is_decided = |given: &Given<usize>| {
            let deleted = deleted(given);
            heard(given) >= quorum && (!counts || deleted >= quorum || deleted + open(given) < quorum)
        };
        answers.until(is_decided).await;
        answers.of_quorum(operation)?;
        let (given, all) = (answers.given(), self.fleet.size());
        Ok(deleted(given) + all - heard(given))
    }

    async fn close(&self) -> Result<()> {
        let lines = &self.member.lines;
        let all = lines.close();
        if !all.is_empty() && !matches!(lines.over(), Some(Loss::Expired | Loss::Closed)) {
            {
                let mut bids = self.bids();
                all.iter().for_each(|place| drop(bids.insert(place.request, Latest::Leaving)));
            }
            for portion in all.chunks(LOCKS_PER_CALL) {
                self.delete("close session", portion.to_vec(), false).await?;
            }
        }
        lines.end(Loss::Closed);
        self.fleet.links.iter().for_each(|link| link.hang_up());
        Ok(())
    }
}

impl Drop for Core {
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
async fn tries(core: Weak<Core>, member: Arc<Member>) {
    let mut under_way = FuturesUnordered::new();
    loop {
        let next = {
            // First, so that nobody is marked as tried for whom nothing is sent.
            let Some(core) = core.upgrade() else { return };
            match member.lines.due(member.opening.clock.now()) {
                Ok(work) => {
                    under_way.extend(work.tries.into_iter().map(|due| Arc::clone(&core).try_for(due)));
                    continue;
                }
                Err(next) => next,
            }
        };
        tokio::select! {
            biased;
            Some(()) = under_way.next() => {}
            () = member.lines.rung() => {}
            () = member.opening.clock.sleep_until(next) => {}
        }
    }
}

pub(super) struct QuorumSession(pub(super) Arc<Core>);

impl Session for QuorumSession {
    fn over(&self) -> Option<Loss> {
        self.0.member.lines.over()
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
