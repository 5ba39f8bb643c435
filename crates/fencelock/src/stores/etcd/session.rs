//! A session is a lease, and a key of its own on that lease: requests compare the key's version, so a late one of an older connection fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use futures_util::{FutureExt, future};

use super::connection::{Connection, MOST, SESSION_WATCH, Watched, strange};
use super::dial::Dialler;
use super::keys::{Keys, QueueKey, value};
use super::ops::{DESCENDING, all, delete, end_of, has_version, made_in, one, put, read};
use super::proto::*;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::served::{Broken, Enter, Look, Looked, Places, PlacesByName, Seen, Served, repair};
use crate::name::Name;
use crate::queue::view::{granted_of, judge, wake_condition_behind};
use crate::queue::{Admission, Claim, WakeOn};
use crate::store::{Ahead, Break, Entry, Loss, Opening, PlaceId, RequestId};
use crate::time::Moment;

/// The type of an event.
const DELETED: i32 = 1;

/// A queue as a read of this revision shows it, front first.
type Line = (Vec<QueueKey>, i64);

pub(super) struct EtcdSession {
    pub(super) keys: Arc<Keys>,
    pub(super) opening: Opening,
    pub(super) places: Arc<Places>,
    /// 0 before the session is open.
    lease: AtomicI64,
    closes: AtomicBool,
}

impl EtcdSession {
    pub(super) fn new(keys: &Arc<Keys>, opening: Opening, places: Places) -> Self {
        let (keys, places) = (Arc::clone(keys), Arc::new(places));
        Self { keys, opening, places, lease: AtomicI64::new(0), closes: AtomicBool::new(false) }
    }

    fn lease(&self) -> i64 {
        self.lease.load(Ordering::Acquire)
    }

    fn key(&self) -> Vec<u8> {
        self.keys.session(self.lease())
    }

    /// Raises the version of the session's key, so that requests with an older one are refused, reads it, and does `more`.
    fn raise_epoch(&self, more: Option<RequestOp>) -> TxnRequest {
        let raise = PutRequest { key: self.key(), ignore_value: true, ignore_lease: true, ..PutRequest::default() };
        let success = [put(raise), read(one(self.key()))].into_iter().chain(more).collect();
        TxnRequest { compare: vec![Compare { result: 1, ..has_version(self.key(), 0) }], success, failure: Vec::new() }
    }

    /// Keeps the lease alive, and returns whether it was there. A leader that was stopped renews leases until it notices its successor, whose
    /// leases end earlier. Its answer does not count: the term of the member must be the same before and after, by reads that a majority confirms.
    async fn keep_alive(&self, connection: &Connection, operation: &'static str) -> Result<bool> {
        let term = async || {
            let header = connection.ask(operation, one(self.key())).await?.header;
            Ok::<_, Error>(header.unwrap_or_default().raft_term)
        };
        let before = term().await?;
        let is_alive = connection.ask(operation, LeaseKeepAliveRequest { id: self.lease() }).await?.ttl > 0;
        if is_alive && term().await? != before {
            return Err(Error::new(ErrorKind::Unreachable, operation, "etcd elected a leader meanwhile").retryable());
        }
        Ok(is_alive)
    }

    /// Opens the session, or resumes it on a new connection, which then looks after it.
    pub(super) async fn greet(self: Arc<Self>, connection: &Arc<Connection>) -> Result<()> {
        let sent = self.opening.clock.now();
        let opened = match self.places.epoch() {
            _ if self.places.session.has_ended() => None,
            0 => Some(self.open(connection).await?),
            _ => self.resume(connection).await?,
        };
        let Some((epoch, revision)) = opened else {
            self.places.end(Loss::Expired);
            return Ok(());
        };
        self.places.raise(epoch);
        self.places.session.confirm(sent);
        self.lose_missing(connection, "resume session").await?;
        self.places.connected(connection.number);
        let ([repaired, watched, closed], session) = ([(); 3].map(|()| Arc::downgrade(connection)), Arc::clone(&self));
        let look = async move |connection: &Connection, asked: &PlacesByName| session.look(connection, asked).await;
        let repair = repair(repaired, Arc::clone(&self.places), Arc::clone(&self.opening.clock), look);
        let session = Arc::clone(&self);
        let received = move |answer| watched.upgrade().iter().for_each(|it| session.received(it, &answer));
        let watching = connection.keep_watching(received);
        connection.create_watch(SESSION_WATCH, self.key(), end_of(&self.keys.records(self.lease())), revision);
        // Both run in one task: no event is handled between the last answer to a look and what the look changes. No event may be missed, so
        // the connection ends with the stream.
        let chores = future::select(repair.boxed(), watching.boxed());
        self.opening.tasks.spawn(chores.map(move |_| closed.upgrade().iter().for_each(|it| it.close())));
        Ok(())
    }

    /// Returns the epoch, and the revision that wrote the session's key.
    async fn open(&self, connection: &Connection) -> Result<(u64, i64)> {
        let ttl = self.opening.ttl.as_millis().div_ceil(1000).try_into().unwrap_or(i64::MAX);
        let lease = connection.ask("open session", LeaseGrantRequest { ttl, id: 0 }).await?.id;
        let key = PutRequest { key: self.keys.session(lease), lease, ..PutRequest::default() };
        let opened = connection.ask("open session", TxnRequest { success: vec![put(key)], ..TxnRequest::default() });
        let revision = opened.await?.header.unwrap_or_default().revision;
        self.lease.store(lease, Ordering::Release);
        Ok((1, revision))
    }

    /// The same; `None` if the session has ended.
    async fn resume(&self, connection: &Connection) -> Result<Option<(u64, i64)>> {
        let is_alive = self.keep_alive(connection, "resume session").await?;
        let mut resumed = connection.ask("resume session", self.raise_epoch(None)).await?;
        let key = resumed.key(1).filter(|_| is_alive);
        Ok(key.map(|key| (key.version.cast_unsigned(), resumed.header.unwrap_or_default().revision)))
    }

    /// Marks grants whose keys are gone as broken, where there is a record of it, or removed.
    async fn lose_missing(&self, connection: &Connection, operation: &'static str) -> Result<()> {
        let granted = |(name, ids): (Name, Vec<RequestId>)| {
            let place = move |request| PlaceId { name: name.clone(), request };
            ids.into_iter().filter_map(move |id| Some((place(id), self.places.seq(id)?)))
        };
        let held: Vec<_> = self.places.held().into_iter().flat_map(granted).collect();
        for held in held.chunks(MOST) {
            let keys = held.iter().map(|(place, _)| read(one(self.keys.place(self.lease(), place))));
            let success = keys.chain([read(all(self.keys.records(self.lease())))]).collect();
            let mut found = connection.ask(operation, TxnRequest { success, ..TxnRequest::default() }).await?;
            found.range(held.len()).unwrap_or_default().kvs.iter().for_each(|kv| self.broken(kv));
            for (at, (place, grant)) in held.iter().enumerate() {
                // Unless the place was granted anew meanwhile.
                if found.made_in(at) != Some(*grant) && self.places.seq(place.request) == Some(*grant) {
                    self.places.missing(place.request);
                }
            }
        }
        Ok(())
    }

    /// Reports the break whose record this key holds.
    fn broken(&self, kv: &KeyValue) {
        let Some(Break { place, token: Some(grant), reason, .. }) = self.keys.broken(kv) else { return };
        self.places.look_at(&place.name);
        self.places.receive_break(Broken { place, grant: grant.get(), reason });
    }

    fn received(&self, connection: &Connection, answer: &WatchResponse) {
        let deleted = |event: &&KeyEvent| event.r#type == DELETED;
        let mut deleted = answer.events.iter().filter(deleted).filter_map(|event| event.kv.as_ref());
        if answer.watch_id != SESSION_WATCH {
            let Some(Watched { place, grants, .. }) = connection.fired(answer) else { return };
            match grants.filter(|_| deleted.next().is_some()) {
                Some(grant) => self.places.receive_grant(place.request, grant),
                // Compacted, or changed: a look says how the place stands.
                None => self.places.look_at(&place.name),
            }
            return;
        }
        if answer.canceled {
            connection.close();
        }
        if deleted.any(|kv| kv.key == self.key()) && !self.closes.load(Ordering::Acquire) {
            self.places.end(Loss::Expired);
        }
        answer.events.iter().filter_map(|event| event.kv.as_ref()).for_each(|kv| self.broken(kv));
    }

    fn line(&self, name: &Name, listed: RangeResponse) -> Line {
        (self.keys.contenders(name, listed.kvs), listed.header.unwrap_or_default().revision)
    }

    /// Whether the key is that of a place that this session keeps.
    fn is_own(&self, key: &QueueKey) -> bool {
        key.request.is_some_and(|request| self.places.seq(request) == Some(key.seq))
    }

    /// The number of a place, its standing in `line`, and the contenders ahead; `None` if it is not there. A waiting place watches the keys
    /// that can let it in. Behind an own place that excludes it, it needs no watch: the session looks when that one goes.
    fn judge(&self, member: &Connection, place: &PlaceId, line: &Line, stays: bool) -> Option<(u64, Admission, Ahead)> {
        let (keys, revision) = line;
        let Some(position) = keys.iter().position(|key| key.request == Some(place.request)) else {
            member.unwatch(place.request);
            return None;
        };
        let (ahead, mine) = (&keys[..position], &keys[position]);
        let claims = ahead.iter().map(|key| key.claim);
        let admission = judge(claims.clone(), mine.claim);
        let judged = (mine.seq, admission, Ahead::of(position, granted_of(claims.clone())));
        // From here on events find the place waiting, and so does a release, which forgets its own place first. A try does not wait.
        let may_wait = stays && admission == Admission::Wait;
        let sent = self.places.slot(place.request).filter(|slot| may_wait && slot.seq().is_none());
        sent.iter().for_each(|slot| self.places.waits(slot, mine.seq, Some(judged.2), Moment::NEVER));
        let waits = admission == Admission::Wait && !ahead.iter().any(|key| key.claim.is_whole() && self.is_own(key));
        let (key, range_end, grants) = match wake_condition_behind(claims, mine.claim).filter(|_| waits) {
            None => {
                member.unwatch(place.request);
                return Some(judged);
            }
            // Behind one key alone, its deletion grants the place with nothing asked.
            Some(WakeOn::Departure(at)) => {
                let grants = (mine.claim == Claim::MUTEX && position == 1).then_some(mine.seq);
                (ahead[at].key.clone(), Vec::new(), grants)
            }
            // A grant changes no key, so the place looks after any change of the queue.
            Some(WakeOn::AnyDepartureAhead | WakeOn::GrantOrDeparture(_)) => {
                let queue = self.keys.queue(place.name.as_str());
                (queue.clone(), end_of(&queue), None)
            }
        };
        member.watch(Watched { place: place.clone(), key, range_end, grants, revision: *revision });
        Some(judged)
    }

    async fn look(&self, connection: &Connection, asked: &PlacesByName) -> Result<Look> {
        let lines = asked.iter().map(|(name, _)| connection.ask("look", all(self.keys.queue(name.as_str()))));
        let lines = future::try_join_all(lines).await?;
        // From here on the task does not wait: an event of a watch that this look sets comes after what the look changes.
        let names = asked.iter().zip(lines).map(|((name, ids), listed)| {
            let line = self.line(name, listed);
            let seen = |id: &RequestId| {
                let place = PlaceId { name: name.clone(), request: *id };
                match self.judge(connection, &place, &line, true) {
                    None => Seen::Missing,
                    Some((seq, Admission::Admitted, _)) => Seen::Granted(seq),
                    Some((seq, _, ahead)) => Seen::Waiting(seq, Some(ahead)),
                }
            };
            Looked { look_in: None, places: ids.iter().map(seen).collect() }
        });
        Ok(Some(names.collect()))
    }
}

impl Served for EtcdSession {
    type Dial = Dialler;

    fn places(&self) -> &Arc<Places> {
        &self.places
    }

    async fn enter(&self, connection: &Connection, entry: &Entry, _again: bool) -> Result<Enter> {
        let place = PlaceId { name: entry.name.clone(), request: entry.id };
        let (session, epoch, queue) = (self.key(), self.places.epoch(), all(self.keys.queue(entry.name.as_str())));
        let (lease, key) = (self.lease(), self.keys.place(self.lease(), &place));
        let value = value(entry, &self.opening.owner, self.opening.clock.wall())?;
        let join = PutRequest { key: key.clone(), value, lease, ..PutRequest::default() };
        let compare = vec![has_version(session.clone(), epoch), made_in(key, 0)];
        let (success, failure) = (vec![put(join), read(queue.clone())], vec![read(one(session)), read(queue)]);
        let txn = TxnRequest { compare, success, failure };
        let mut answer = match connection.gather("enter", &entry.name, txn).await {
            Err(error) if error.kind() == ErrorKind::Lost => return Ok(Enter::Gone),
            Err(error) if error.kind() == ErrorKind::Exhausted && !error.is_retryable() => {
                // etcd may answer that it is full to a transaction that it has applied.
                let is_left = self.leave(connection, &place, None).await.is_ok();
                return Err(if is_left { error } else { error.outcome_unknown() });
            }
            answer => answer?,
        };
        if !answer.succeeded {
            match answer.key(0).map(|session| session.version.cast_unsigned()) {
                None => return Ok(Enter::Gone),
                Some(found) if found != epoch => return Ok(Enter::Stale(found)),
                // The request was sent before, and its place may be there.
                Some(_) => {}
            }
        }
        let line = self.line(&entry.name, answer.range(1).ok_or_else(|| strange("enter"))?);
        match self.judge(connection, &place, &line, entry.wait) {
            None => Ok(Enter::Again),
            Some((seq, Admission::Admitted, _)) => Ok(Enter::Granted(seq)),
            Some((seq, Admission::Wait, ahead)) if entry.wait => {
                Ok(Enter::Waiting { seq, ahead: Some(ahead), look_in: None })
            }
            Some((seq, refused, _)) => {
                // The place exists until the server has answered. A deletion without an answer may be applied later, so the place counts as
                // gone: if the request is repeated, the acquire withdraws it and enters with another one.
                self.places.missing(place.request);
                self.leave(connection, &place, Some(seq)).await.map_err(Error::outcome_unknown)?;
                Ok(if let Admission::Conflict(theirs) = refused { Enter::Conflict(theirs) } else { Enter::Busy })
            }
        }
    }

    async fn leave(&self, connection: &Connection, place: &PlaceId, seq: Option<u64>) -> Result<bool> {
        connection.unwatch(place.request);
        let key = self.keys.place(self.lease(), place);
        let compare = seq.map(|seq| made_in(key.clone(), seq)).into_iter().collect();
        // A place of this session at the front is granted here, sooner than by its watch.
        let front = || read(RangeRequest { limit: 1, ..all(self.keys.queue(place.name.as_str())) });
        let success = [delete(key)].into_iter().chain(self.places.is_waiting().then(front)).collect();
        let txn = TxnRequest { compare, success, failure: Vec::new() };
        let mut answer = connection.gather("leave", &place.name, txn).await?;
        self.places.forget(place.request);
        let front = self.keys.contenders(&place.name, answer.range(1).unwrap_or_default().kvs).pop();
        let front = front.filter(|front| self.is_own(front));
        if let Some(QueueKey { request: Some(request), seq, .. }) = front {
            connection.unwatch(request);
            self.places.receive_grant(request, seq);
        }
        if self.places.is_waiting() && !front.is_some_and(|front| front.claim.is_whole()) {
            self.places.look_at(&place.name);
        }
        Ok(answer.has_deleted(0))
    }

    async fn lighten(&self, connection: &Connection, place: &PlaceId, seq: u64, claim: Claim) -> Result<bool> {
        let key = self.keys.place(self.lease(), place);
        let kvs = connection.ask("downgrade", one(key.clone())).await?.kvs;
        let found = self.keys.contenders(&place.name, kvs).pop().filter(|found| found.seq == seq);
        let Some(value) = found.and_then(|found| found.lightened(claim)) else { return Ok(false) };
        let change = PutRequest { key: key.clone(), value, ignore_lease: true, ..PutRequest::default() };
        let txn = TxnRequest { compare: vec![made_in(key, seq)], success: vec![put(change)], failure: Vec::new() };
        let is_lighter = connection.ask("downgrade", txn).await?.succeeded;
        self.places.look_at(&place.name);
        Ok(is_lighter)
    }

    async fn withdraw(&self, connection: &Connection, place: &PlaceId) -> Result<Option<u64>> {
        connection.unwatch(place.request);
        let delete = delete(self.keys.place(self.lease(), place));
        let mut answer = connection.ask("cancel", self.raise_epoch(Some(delete))).await?;
        self.places.look_at(&place.name);
        Ok(answer.key(1).map(|session| session.version.cast_unsigned()))
    }

    async fn renew(&self, connection: &Connection, _known: &[(PlaceId, u64)]) -> Result<bool> {
        let is_alive = self.keep_alive(connection, "renew").await?;
        if is_alive {
            self.lose_missing(connection, "renew").await?;
        }
        Ok(is_alive)
    }

    /// The grants in whose queue there is a newer key. A key of a longer name counts, so a grant may be given up for nothing.
    async fn waited_for(&self, connection: &Connection, grants: &[PlaceId]) -> Result<Vec<RequestId>> {
        let mut found = Vec::new();
        for grants in grants.chunks(MOST) {
            let queue = |place: &PlaceId| all(self.keys.queue(place.name.as_str()));
            let newest = |place| read(RangeRequest { sort_order: DESCENDING, limit: 1, ..queue(place) });
            let success = grants.iter().map(newest).collect();
            let mut answer = connection.ask("look", TxnRequest { success, ..TxnRequest::default() }).await?;
            for (at, place) in grants.iter().enumerate() {
                found.extend((answer.made_in(at) > self.places.seq(place.request)).then_some(place.request));
            }
        }
        Ok(found)
    }

    async fn close(&self, connection: &Connection) -> Result<()> {
        self.closes.store(true, Ordering::Release);
        match connection.ask("close session", LeaseRevokeRequest { id: self.lease() }).await {
            Err(error) if error.kind() != ErrorKind::Lost => Err(error),
            _ => Ok(()),
        }
    }
}
