//! A session of our own layout. The session is a row of the database: a client opens it once, resumes it on each new connection, and renews
//! it until its end. [`Dialect`] has the differences between databases.

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _, future};
use tokio::sync::Notify;

use super::batch::{Gathered, MOST, Receiver, Request, RequestKind, gather, take_due};
use super::call::{Calls, Param, Row, strange};
use super::dialect::{Dialect, units};
use super::ear::listen;
use super::link::{Dialler, Purpose};
use super::{Chores, User};
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::kit::bucket::{bucket_of, first_to_clear};
use crate::kit::served::{Broken, Enter, Look, Looked, Places, PlacesByName, REPAIR, Seen, Served, portions, repair};
use crate::kit::session_state::random_number;
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{
    Capability, Entry, Loss, Opening, Order, PlaceId, Presumption, RequestId, Residue, Tokens, Waiters,
};
use crate::sync::Mutex;

const LOOKED_AT: usize = 1024;

/// After this part of its deadline, a renewal is also sent on a separate connection.
const PART: u32 = 3;

pub(crate) const FAIR: Capability = Capability {
    order: Order::Fifo,
    tokens: Tokens::ClockFlooredCounter,
    presumes: &[Presumption::CommitsKept, Presumption::ClockSteady],
    shared_claims: true,
    permits: true,
    notes: true,
    waiters: Waiters::Looked(Duration::from_millis(100)),
    // A waiter looks when the lease of a holder may be over.
    detection_slack: Duration::from_secs(1),
    wake_bound: REPAIR.saturating_add(Duration::from_secs(1)),
    residue: &[Residue::Buckets(4096), Residue::Notes, Residue::BreaksForDays(30), Residue::LeftByCrashed],
    ..Capability::least("", "")
};

pub(crate) struct FairSession<D: Dialect> {
    pub(crate) config: Arc<D::Config>,
    /// A random number, and a secret: the number is enough to give up the session's places.
    pub(crate) session: u64,
    pub(crate) opening: Opening,
    pub(crate) places: Arc<Places>,
    /// The bell by which the server wakes the session. Drawn at random: a client that knew the bell could ring it or take it.
    pub(crate) bell: String,
    swept: AtomicU16,
    sweep: Notify,
    /// Buckets that other programs' transactions kept locked at the session's last request.
    stuck: Mutex<HashSet<u16>>,
    /// A single request at a time waits for such a bucket, on a connection of its own.
    patient: tokio::sync::Mutex<()>,
    /// The newest epoch of an `enter` that was sent there, and may still be on its way; 0 for none.
    sent_apart: AtomicU64,
}

impl<D: Dialect> FairSession<D> {
    pub(crate) fn new(config: &Arc<D::Config>, opening: Opening, places: Places) -> Result<Self> {
        let session = random_number("open session")?;
        Ok(Self {
            config: Arc::clone(config),
            session,
            opening,
            places: Arc::new(places),
            bell: format!("fencelock_{:016x}", random_number("open session")?),
            swept: AtomicU16::new(first_to_clear(session)),
            sweep: Notify::new(),
            stuck: Mutex::default(),
            patient: tokio::sync::Mutex::default(),
            sent_apart: AtomicU64::new(0),
        })
    }

    /// The request of a place, as functions take it: session, name, client and number.
    pub(crate) fn request<'a>(&self, PlaceId { name, request }: &'a PlaceId) -> Vec<Param<'a>> {
        vec![self.session.into(), name.as_str().into(), request.client.into(), request.number.into()]
    }

    fn ttl(&self) -> u64 {
        units::<D>(self.opening.ttl).clamp(1, D::LONGEST_TTL)
    }

    pub(crate) async fn apart(&self) -> Result<Arc<D::Connection>> {
        Dialler::<D>::alone(&self.config, Purpose::Patience, Some(&self.opening)).await
    }

    /// Opens the session, or resumes it on a new connection. The server then refuses requests that are still on their way on an older one.
    async fn open_or_resume(&self, connection: &D::Connection) -> Result<()> {
        let places = &self.places;
        if places.session.has_ended() {
            return Ok(());
        }
        let sent = self.opening.clock.now();
        let is_new = places.epoch() == 0;
        let epoch = if is_new {
            let owner = &self.opening.owner;
            let whose = [owner.host.as_str().into(), owner.pid.into(), owner.client.into()];
            let session = [self.session.into(), self.bell.as_str().into(), self.ttl().into()];
            connection.ask("open session", "open", session.into_iter().chain(whose).collect()).await?.number(0)?
        } else {
            self.raise_epoch(connection).await?
        };
        if epoch == 0 {
            places.end(Loss::Expired);
            return Ok(());
        }
        places.raise(epoch);
        places.session.confirm(sent);
        if is_new { Ok(()) } else { self.reconcile(connection).await }
    }

    /// Has the server refuse requests that were sent before. Returns the session's epoch, 0 if the session has ended.
    async fn raise_epoch(&self, connection: &D::Connection) -> Result<u64> {
        connection.ask("resume session", "resume", vec![self.session.into(), self.ttl().into()]).await?.number(0)
    }

    /// Compares the server's places with the client's. After a crash or a failover the server may have an older state: a place given up may
    /// be back, and a granted place may be missing.
    async fn reconcile(&self, connection: &D::Connection) -> Result<()> {
        let places = &self.places;
        let known = places.by_name().into_values().flatten().map(|id| id.number).collect();
        let rows = connection.call("resume session", "unknown", vec![self.session.into(), known]).await?;
        // A row with the number 0 says only that the answer is whole.
        let unknown = rows.iter().filter(|row| !matches!(row.number(3), Ok(0)));
        let unknown: Vec<_> = unknown.map(|row| Ok((row.place(0)?, Some(row.number(3)?)))).collect::<Result<_>>()?;
        if let Some((PlaceId { name, .. }, _)) = unknown.first() {
            let count = unknown.len();
            tracing::warn!(%name, count, "locks that were given up came back with the server, and are given up again");
        }
        self.leave_all(connection, unknown).await?;
        for held in portions(places.held()) {
            let look = self.look(connection, &held).await?;
            let looked = look.iter().flatten().flat_map(|name| &name.places);
            let seen = held.iter().flat_map(|(_, ids)| ids).zip(looked);
            seen.filter(|(_, seen)| !matches!(seen, Seen::Granted(_))).for_each(|(id, _)| places.missing(*id));
        }
        Ok(())
    }

    async fn leave_all(&self, connection: &D::Connection, places: Vec<(PlaceId, Option<u64>)>) -> Result<()> {
        for some in places.chunks(MOST) {
            let left = some.iter().map(|(place, seq)| self.leave(connection, place, *seq));
            future::try_join_all(left).await?;
            some.iter().for_each(|(place, _)| self.places.forget(place.request));
        }
        Ok(())
    }

    pub(crate) async fn look(&self, connection: &D::Connection, asked: &PlacesByName) -> Result<Look> {
        let seq = |id| self.places.seq(id).unwrap_or(0);
        let seqs: Vec<Vec<u64>> = asked.iter().map(|(_, ids)| ids.iter().map(|id| seq(*id)).collect()).collect();
        let mut params = vec![self.session.into()];
        params.extend(D::look(asked, &seqs));
        let rows = connection.call("look", "look", params).await?;
        let Some(numbers) = D::looked(&rows)? else { return Ok(None) };
        let ear = &connection.state().ear;
        let mut names = looked(&numbers, &seqs).ok_or_else(|| strange("look"))?;
        names.iter_mut().for_each(|name| name.look_in = ear.look_in(self, name.look_in, None));
        Ok(Some(names))
    }

    /// Renews the session. Returns the broken grants whose numbers are not in `seen`; `None` if the session has ended.
    async fn ask_to_renew(&self, connection: &D::Connection, seen: &[u64]) -> Result<Option<Vec<Broken>>> {
        let seen = seen.iter().copied().collect();
        let rows = connection.call("renew", "renew", vec![self.session.into(), self.ttl().into(), seen]).await?;
        let mut broken = Vec::new();
        for row in &rows {
            match row.signed(0)? {
                ..0 => return Ok(None),
                0 => {}
                grant => {
                    let (place, reason) = (row.place(1)?, row.text(4)?.into());
                    broken.push(Broken { place, grant: grant.cast_unsigned(), reason });
                }
            }
        }
        Ok(Some(broken))
    }

    /// Awaits the answer of a function that lists the session's places that it granted. If the answer is lost, the session looks at its
    /// waiting places of the names.
    pub(crate) async fn read_grants(
        &self,
        names: Vec<&Name>,
        answer: impl Future<Output = Result<Row>>,
    ) -> Result<Row> {
        let mut unread = UnreadGrants { places: &self.places, names };
        let mut row = answer.await?;
        D::take_granted(&mut row)?.into_iter().for_each(|(place, grant)| self.places.receive_grant(place, grant));
        unread.names.clear();
        Ok(row)
    }

    /// Sends a request: at once by itself, or, while a call is in flight, together with the requests that arrive meanwhile. Returns the
    /// numbers in the answer.
    async fn ask(&self, connection: &D::Connection, request: Request) -> Result<Vec<i64>> {
        let is_again = matches!(request.kind, RequestKind::Enter { again: true, .. });
        if self.is_stuck(&request) {
            let _one = self.patient.lock().await;
            if self.is_stuck(&request) {
                let alone = self.apart().await?;
                if is_again {
                    self.places.raise(self.raise_epoch(&alone).await?);
                }
                return self.ask_alone(&alone, &request).await;
            }
        }
        // An earlier sending on another connection may reach the server later than this one, even after the place was left.
        if is_again && self.sent_apart.load(Ordering::Acquire) >= self.places.epoch() {
            self.places.raise(self.raise_epoch(connection).await?);
        }
        match connection.state().batches.hand_over(request) {
            Err(request) => self.ask_alone(connection, &request).await,
            Ok(answer) => answer.await.unwrap_or_else(|_| {
                let message = "the connection was lost before the answer came";
                Err(Error::new(ErrorKind::Unreachable, "batch", message).retryable().outcome_unknown())
            }),
        }
    }

    /// Whether an earlier request did not get this bucket: behind `request`, all other requests on the shared connection would wait, too.
    fn is_stuck(&self, request: &Request) -> bool {
        let stuck = self.stuck.lock();
        !stuck.is_empty() && stuck.contains(&bucket_of(&request.place.name))
    }

    pub(crate) async fn ask_alone(&self, connection: &D::Connection, request: &Request) -> Result<Vec<i64>> {
        let name = &request.place.name;
        let answer = match request.kind {
            RequestKind::Enter { .. } => {
                let ([_, name, client, number, _, claim @ ..], epoch) = (request.params(), self.places.epoch());
                let is_apart = connection.state().number == 0;
                self.sent_apart.fetch_max(if is_apart { epoch } else { 0 }, Ordering::AcqRel);
                let mut params = vec![self.session.into(), epoch.into(), name, client, number];
                params.extend(claim);
                connection.ask("enter", "enter", params).await.map(|row| row.numbers())
            }
            RequestKind::Leave(seq) => {
                let mut params = self.request(&request.place);
                params.push(seq.into());
                self.read_grants(vec![name], D::leave(connection, params)).await.map(|row| row.numbers())
            }
            RequestKind::Withdraw => {
                self.ask_together(connection, std::slice::from_ref(request)).await.map(|answers| answers.concat())
            }
        };
        match &answer {
            Err(error) if error.kind() == ErrorKind::Busy => self.stuck.lock().insert(bucket_of(name)),
            Ok(_) if self.is_stuck(request) => self.stuck.lock().remove(&bucket_of(name)),
            _ => false,
        };
        answer
    }

    async fn ask_together(&self, connection: &D::Connection, requests: &[Request]) -> Result<Vec<Vec<i64>>> {
        let names = requests.iter().map(|request| &request.place.name).collect();
        let mut params = vec![self.session.into(), self.places.epoch().into()];
        params.extend(D::batch(requests));
        let row = self.read_grants(names, connection.ask("batch", "batch", params)).await?;
        D::batched(&row).filter(|answers| answers.len() == requests.len()).ok_or_else(|| row.strange())
    }

    /// Sends gathered requests, until the connection ends: several calls at once if the round trip is long. A call is sent when it is polled
    /// first, so the server receives the calls in the order of their requests.
    async fn send_gathered(&self, connection: Weak<D::Connection>, mut receiver: Receiver) {
        let (mut calls, mut gathered, mut sent, mut most) = (FuturesUnordered::new(), Vec::new(), 0, 1);
        loop {
            tokio::select! {
                biased;
                Some(answered) = calls.next() => sent -= answered,
                true = gather(&mut receiver, &mut gathered), if calls.len() < most && gathered.len() < MOST => {}
                else => return,
            }
            let Some(batch) = take_due(&mut gathered, sent, calls.len(), most) else { continue };
            let Some(connection) = connection.upgrade() else { return };
            // The answer to a withdrawal has the epoch that later requests need.
            let withdraws = batch.iter().any(|(request, _)| matches!(request.kind, RequestKind::Withdraw));
            most = if withdraws { 1 } else { connection.calls_at_once() };
            sent += batch.len();
            let mut call = Box::pin(self.send_batch(connection, batch));
            match poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await {
                Poll::Ready(answered) => sent -= answered,
                Poll::Pending => calls.push(call),
            }
        }
    }

    /// Sends requests together, and returns their number. If the server refused the call, it changed nothing, and each request is sent again
    /// by itself: each then has its own answer.
    async fn send_batch(&self, connection: Arc<D::Connection>, batch: Vec<Gathered>) -> usize {
        let (mut requests, callers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let all = if requests.len() > 1 { Some(self.ask_together(&connection, &requests).await) } else { None };
        for (at, (request, caller)) in
            requests.iter_mut().zip(callers).enumerate().filter(|(_, (_, to))| !to.is_closed())
        {
            let answer = match &all {
                Some(Ok(answers)) => Ok(answers[at].clone()),
                Some(Err(error)) if error.outcome() == Outcome::Unknown => Err(error.again()),
                // Another request did not get this bucket.
                Some(Err(error)) if error.kind() == ErrorKind::Busy && self.is_stuck(request) => Err(error.again()),
                _ => {
                    if let RequestKind::Enter { again, .. } = &mut request.kind {
                        *again |= all.is_some();
                    }
                    self.ask_alone(&connection, request).await
                }
            };
            if let (RequestKind::Withdraw, Ok(answer)) = (&request.kind, &answer) {
                // The next call has the new epoch.
                departed(answer).into_iter().for_each(|left| self.places.raise(left.epoch));
            }
            // The caller may have gone meanwhile.
            let _ = caller.send(answer);
        }
        requests.len()
    }

    /// Gives up a place. Returns the new epoch after a withdrawal, and whether the place was there.
    async fn depart(&self, connection: &D::Connection, place: &PlaceId, kind: RequestKind) -> Result<(u64, bool)> {
        let seq = if let RequestKind::Leave(seq) = kind { seq } else { None };
        let answer = self.ask(connection, Request { place: place.clone(), kind }).await?;
        let Departed { found, epoch, kept } = departed(&answer).ok_or_else(|| strange("leave"))?;
        let was_there = if found == 2 { D::leave_in_time(self, place, kept.or(seq)).await? } else { found == 1 };
        Ok((epoch, was_there))
    }

    /// Looks at the waiting places, and removes dead sessions' places, until the connection ends.
    fn chores(self: &Arc<Self>, connection: &Arc<D::Connection>) -> Chores {
        let (weak, eye, sweeper) = (Arc::downgrade(connection), Arc::clone(self), Arc::clone(self));
        let (places, clock) = (Arc::clone(&self.places), Arc::clone(&self.opening.clock));
        let look = async move |connection: &D::Connection, asked: &PlacesByName| eye.look(connection, asked).await;
        let repair = repair(weak.clone(), places, clock, look);
        let clear_up = async move {
            loop {
                sweeper.sweep.notified().await;
                let Some(connection) = weak.upgrade() else { return };
                if let Err(error) = sweeper.clear_up(&connection).await {
                    tracing::debug!(%error, "remains of dead sessions could not be cleared away");
                }
            }
        };
        let listen = listen(Arc::clone(self), Arc::downgrade(connection), Arc::clone(&connection.state().ear));
        let gathered = connection.state().batches.receiver();
        let (main, session) = (Arc::downgrade(connection), Arc::clone(self));
        let send = async move {
            if let Some(gathered) = gathered {
                session.send_gathered(main, gathered).await;
            }
        };
        Box::pin(future::join4(send, repair, clear_up, listen).map(drop))
    }

    async fn clear_up(&self, connection: &D::Connection) -> Result<()> {
        connection.state().ear.unsettled.notify_one();
        let from = u64::from(self.swept.load(Ordering::Relaxed));
        let row = connection.ask("clear up", "clear_up", vec![from.into()]).await?;
        self.swept.store(u16::try_from(row.number(0)?).map_err(|_| row.strange())?, Ordering::Relaxed);
        Ok(())
    }
}

/// The wait for an answer that may list grants of the names to this session. If it is dropped before the answer was read, the session looks at
/// its waiting places of those names; once it was read, there is no name.
struct UnreadGrants<'a> {
    places: &'a Places,
    names: Vec<&'a Name>,
}

impl Drop for UnreadGrants<'_> {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| self.places.look_at(name));
    }
}

/// The time until the next look, from the server's number: milliseconds, `None` for a number below 0.
fn look_in(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().map(Duration::from_millis)
}

/// The standing of each name's places, whose numbers are `seqs`. The server says for each place: 0 granted, 1 waiting, 2 missing.
fn looked(numbers: &[i64], seqs: &[Vec<u64>]) -> Option<Vec<Looked>> {
    let mut numbers = numbers.iter();
    let mut names = Vec::new();
    for seqs in seqs {
        let look_in = look_in(*numbers.next()?);
        let place = |seq: &u64| {
            Some(match numbers.next()? {
                0 => Seen::Granted(*seq),
                1 => Seen::Waiting(*seq, None),
                _ => Seen::Missing,
            })
        };
        names.push(Looked { look_in, places: seqs.iter().map(place).collect::<Option<_>>()? });
    }
    numbers.next().is_none().then_some(names)
}

pub(crate) struct Departed {
    /// 0 the place was missing, 1 it is gone now, 2 a transaction keeps it.
    pub(crate) found: i64,
    /// The epoch after a withdrawal; 0 for none.
    epoch: u64,
    /// The number of the grant that a transaction keeps, where the server says it.
    pub(crate) kept: Option<u64>,
}

pub(crate) fn departed(answer: &[i64]) -> Option<Departed> {
    let (found, rest) = answer.split_first()?;
    let number = |at: usize| rest.get(at).map(|number| number.cast_unsigned());
    Some(Departed { found: *found, epoch: number(0).unwrap_or_default(), kept: number(1).filter(|seq| *seq > 0) })
}

fn entered(answer: &[i64]) -> Option<Enter> {
    let claim = |number: &i64| u32::try_from(*number).ok();
    Some(match answer {
        [0, seq, ..] => Enter::Granted(seq.cast_unsigned()),
        [1, seq, look, ..] => Enter::Waiting { seq: seq.cast_unsigned(), ahead: None, look_in: look_in(*look) },
        [2, ..] => Enter::Busy,
        [3, weight, capacity, ..] => Enter::Conflict(Claim::new(claim(weight)?, claim(capacity)?).ok()?),
        [4, epoch, ..] => Enter::Stale(epoch.cast_unsigned()),
        [5, ..] => Enter::Gone,
        [6, ..] => Enter::Again,
        _ => return None,
    })
}

impl<D: Dialect> User<D::Connection> for FairSession<D> {
    fn greet(self: Arc<Self>, connection: Arc<D::Connection>) -> BoxFuture<'static, Result<Option<Chores>>> {
        Box::pin(async move {
            self.open_or_resume(&connection).await?;
            self.places.connected(connection.state().number);
            Ok(Some(self.chores(&connection)))
        })
    }

    fn receive(&self, connection: u64, message: &[u8]) {
        self.places.receive(connection, message);
    }

    fn disconnected(&self, connection: u64) {
        self.places.disconnected(connection);
    }
}

impl<D: Dialect> Served for FairSession<D> {
    type Dial = Dialler<D>;

    fn places(&self) -> &Arc<Places> {
        &self.places
    }

    fn bucket_of(&self, name: &Name) -> u16 {
        bucket_of(name)
    }

    async fn enter(&self, connection: &D::Connection, entry: &Entry, again: bool) -> Result<Enter> {
        let (ear, rings) = (&connection.state().ear, connection.state().ear.rings());
        let Entry { name, claim, id, wait, purpose } = entry.clone();
        let kind = RequestKind::Enter { claim, wait, again, purpose };
        let answer = self.ask(connection, Request { place: PlaceId { name, request: id }, kind }).await?;
        let mut entered = entered(&answer).ok_or_else(|| strange("enter"))?;
        if let Enter::Waiting { look_in, .. } = &mut entered {
            *look_in = ear.look_in(self, *look_in, Some(rings));
        }
        Ok(entered)
    }

    async fn leave(&self, connection: &D::Connection, place: &PlaceId, seq: Option<u64>) -> Result<bool> {
        self.depart(connection, place, RequestKind::Leave(seq)).await.map(|(_, was_there)| was_there)
    }

    async fn lighten(&self, connection: &D::Connection, place: &PlaceId, seq: u64, claim: Claim) -> Result<bool> {
        let mut params = self.request(place);
        params.extend([seq.into(), claim.weight().into()]);
        let row = self.read_grants(vec![&place.name], connection.ask("downgrade", "lighten", params)).await?;
        match row.signed(0)? {
            found @ 0..=1 => Ok(found == 1),
            _ => Err(D::kept("downgrade", &place.name)),
        }
    }

    async fn withdraw(&self, connection: &D::Connection, place: &PlaceId) -> Result<Option<u64>> {
        let (epoch, _) = self.depart(connection, place, RequestKind::Withdraw).await?;
        Ok(Some(epoch).filter(|epoch| *epoch != 0))
    }

    /// Without an answer after a while, also sends the renewal on a second connection: on the first one a request may wait for another
    /// program's transaction.
    async fn renew(&self, connection: &D::Connection, known: &[(PlaceId, u64)]) -> Result<bool> {
        let seen: Vec<u64> = known.iter().map(|(_, seq)| *seq).collect();
        let opening = &self.opening;
        let once_more = async {
            opening.clock.sleep_until(opening.clock.now().after(opening.patience() / PART)).await;
            match self.apart().await {
                Ok(connection) => self.ask_to_renew(&connection, &seen).await,
                // From then on, only the first connection can bring an answer.
                Err(_) => future::pending().await,
            }
        };
        let renewed = tokio::select! {
            biased;
            renewed = self.ask_to_renew(connection, &seen) => renewed?,
            renewed = once_more => renewed?,
        };
        let Some(broken) = renewed else { return Ok(false) };
        broken.into_iter().for_each(|broken| self.places.receive_break(broken));
        Ok(true)
    }

    async fn waited_for(&self, connection: &D::Connection, grants: &[PlaceId]) -> Result<Vec<RequestId>> {
        let mut found = Vec::new();
        for some in grants.chunks(LOOKED_AT) {
            let names: PlacesByName = some.iter().map(|place| (place.name.clone(), Vec::new())).collect();
            let mut params = D::look(&names, &vec![Vec::new(); names.len()]);
            params.truncate(1);
            for row in connection.call("look", "waited_for", params).await? {
                let at = usize::try_from(row.number(0)?).unwrap_or_default();
                found.extend(some.get(at.wrapping_sub(1)).map(|place| place.request));
            }
        }
        Ok(found)
    }

    fn tidy_up(&self) {
        self.sweep.notify_one();
    }

    async fn close(&self, connection: &D::Connection) -> Result<()> {
        let places = &self.places;
        let mut left = Vec::new();
        for (name, ids) in places.by_name() {
            left.extend(ids.into_iter().map(|request| (PlaceId { name: name.clone(), request }, places.seq(request))));
        }
        self.leave_all(connection, left).await?;
        connection.call("close session", "close", vec![self.session.into()]).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_a_look_is_taken_apart_and_one_of_another_length_is_refused() {
        let seqs = [vec![7, 8], vec![9]];
        let first = Looked {
            look_in: Some(Duration::from_millis(500)),
            places: vec![Seen::Granted(7), Seen::Waiting(8, None)],
        };
        let second = Looked { look_in: None, places: vec![Seen::Missing] };
        assert_eq!(looked(&[500, 0, 1, -1, 2], &seqs), Some(vec![first, second]));
        for answer in [&[][..], &[500, 0, 1, -1], &[500, 0, 1, -1, 2, 0]] {
            assert_eq!(looked(answer, &seqs), None, "{answer:?}");
        }
    }
}
