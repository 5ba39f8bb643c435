//! A session in a Cluster: a session of each part in which it has locks. A part that is lost, or silent, costs the locks of that part alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::future::{join, join_all};
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;

use super::store::part_of;
use crate::error::{Error, ErrorKind, Outcome, Result};
use crate::kit::pause::ask_part;
use crate::kit::session_state::SessionState;
use crate::name::Name;
use crate::queue::Claim;
use crate::store::{
    Entered, Entry, Grant, GrantId, Left, Loss, Opened, Opening, Place, PlaceId, PlaceList, Renewal, RequestId,
    Session, SessionEvent, Standing, Store,
};
use crate::sync::Mutex;
use crate::time::Moment;

/// Reaches a node of the Cluster.
pub(super) type Reach = Box<dyn Fn() -> BoxFuture<'static, Result<()>> + Send + Sync>;
type Events = BoxStream<'static, SessionEvent>;

/// A session that has no part yet.
pub(super) fn open_session(
    stores: &Arc<[Arc<dyn Store>]>,
    reach: Reach,
    opening: Opening,
    confirmed: Moment,
) -> Opened {
    let (events, mut own) = mpsc::unbounded_channel();
    let (streams, mut receiver) = mpsc::unbounded_channel::<Events>();
    // The receiver is there.
    let _ = streams.send(stream::poll_fn(move |cx| own.poll_recv(cx)).boxed());
    let events_of_all = stream::poll_fn(move |cx| receiver.poll_recv(cx)).flatten_unordered(None).boxed();
    let state = SessionState::new(events);
    state.confirm(confirmed);
    let turns = stores.iter().map(|_| Default::default()).collect();
    let table = PartTable { current: vec![None; stores.len()], ..PartTable::default() };
    let (ttl, stores) = (opening.ttl, Arc::clone(stores));
    let session = Arc::new(Parts { stores, turns, reach, opening, state, streams, table: Mutex::new(table) });
    Opened { session: Arc::new(Handle(session)), events: events_of_all, ttl: Some(ttl), confirmed, capability: None }
}

/// The session of one part of the names.
struct Part {
    session: Arc<dyn Session>,
    /// The time of sending of the newest request that confirmed the session.
    confirmed: AtomicU64,
}

/// The sessions of the parts, and the requests that depend on each.
#[derive(Default)]
struct PartTable {
    /// The session of each part that new requests use.
    current: Vec<Option<Arc<Part>>>,
    /// Every request that may have a place, from before it is sent, with its session.
    places: HashMap<RequestId, (Name, Arc<Part>)>,
    /// Sessions that no new request uses. Each is closed once no request depends on it: until then its places exclude rivals, because
    /// their holders may not be notified yet.
    retired: Vec<Arc<Part>>,
}

struct Parts {
    stores: Arc<[Arc<dyn Store>]>,
    /// For each part, the turn to open a session.
    turns: Vec<Arc<tokio::sync::Mutex<()>>>,
    reach: Reach,
    opening: Opening,
    state: SessionState,
    streams: mpsc::UnboundedSender<Events>,
    table: Mutex<PartTable>,
}

impl Part {
    fn valid_until(&self, ttl: Duration) -> Moment {
        Moment::from_nanos(self.confirmed.load(Ordering::Acquire)).after(ttl)
    }

    /// The loss of a part does not end the whole session: the request may be retried in the next session of the part.
    fn passing(&self, error: Error) -> Error {
        if self.session.over().is_none() || !matches!(error.kind(), ErrorKind::Lost | ErrorKind::Closed) {
            return error;
        }
        let message = "the session with the owner of the slot has ended";
        Error::new(ErrorKind::Unreachable, "cluster", message).caused_by(error).outcome_unknown().retryable()
    }
}

impl PartTable {
    /// The requests that depend on this session.
    fn requests_of<'a>(&'a self, part: &'a Arc<Part>) -> impl Iterator<Item = PlaceId> + 'a {
        let own = self.places.iter().filter(|(_, (_, of))| Arc::ptr_eq(of, part));
        own.map(|(request, (name, _))| PlaceId { name: name.clone(), request: *request })
    }

    fn is_unused(&self, part: &Arc<Part>) -> bool {
        self.requests_of(part).next().is_none()
    }

    /// Keeps new requests out of this session.
    fn retire(&mut self, part: &Arc<Part>) {
        let is_meant = |current: &mut Arc<Part>| Arc::ptr_eq(current, part);
        self.retired.extend(self.current.iter_mut().filter_map(|current| current.take_if(is_meant)));
    }
}

impl Parts {
    /// Refuses an operation that needs a living session. A session that was not renewed for its ttl no longer holds anything.
    fn alive(&self, operation: &'static str) -> Result<()> {
        if self.opening.clock.now() >= self.state.confirmed().after(self.opening.ttl) {
            self.state.end(Loss::Expired);
        }
        self.state.alive(operation)
    }

    /// The session for a request, which depends on it from now on, and whether the request is new. Opens a session where there is none.
    async fn part(self: &Arc<Self>, entry: &Entry) -> Result<(Arc<Part>, bool)> {
        let seat = part_of(&entry.name);
        loop {
            let turn = Arc::clone(&self.turns[seat]).lock_owned().await;
            if let Some(known) = self.join_current(seat, entry) {
                return Ok(known);
            }
            let opened = self.opening.tasks.handle().spawn(Arc::clone(self).open_part(seat, turn)).await;
            let ended = |error| Error::new(ErrorKind::Closed, "open session", "the runtime has ended").caused_by(error);
            opened.map_err(ended)??;
        }
    }

    /// Opens a session of a part, in a task: the opening outlives a caller that gives up.
    async fn open_part(self: Arc<Self>, seat: usize, _turn: tokio::sync::OwnedMutexGuard<()>) -> Result<()> {
        let opened = self.stores[seat].open(self.opening.clone()).await?;
        let part = Arc::new(Part { session: opened.session, confirmed: AtomicU64::new(opened.confirmed.as_nanos()) });
        let (parts, of) = (Arc::downgrade(&self), Arc::downgrade(&part));
        let events = opened.events.flat_map(move |event| {
            stream::iter(match (event, parts.upgrade().zip(of.upgrade())) {
                // A part that was closed and dropped has no places.
                (SessionEvent::Over, of) => of.map_or_else(Vec::new, |(parts, part)| parts.report_losses(&part)),
                (event, _) => vec![event],
            })
        });
        let _ = self.streams.send(events.boxed());
        let added = {
            let mut table = self.table.lock();
            self.alive("open session").map(|()| table.current[seat] = Some(Arc::clone(&part)))
        };
        if added.is_err() {
            let _ = part.session.close().await;
        }
        added
    }

    /// Reads and writes the table under one lock, so that no session is retired as unused in between.
    fn join_current(&self, seat: usize, entry: &Entry) -> Option<(Arc<Part>, bool)> {
        let mut table = self.table.lock();
        let part = table.current[seat].clone()?;
        if part.session.over().is_some() {
            table.retire(&part);
            return None;
        }
        let is_new = self.note_request(&mut table, entry, &part);
        Some((part, is_new))
    }

    fn note_request(&self, table: &mut PartTable, entry: &Entry, part: &Arc<Part>) -> bool {
        let before = table.places.insert(entry.id, (entry.name.clone(), Arc::clone(part)));
        before.inspect(|(_, before)| self.ask_to_close_unused(table, before)).is_none()
    }

    /// The end of a part as the engine receives it: each place is gone. The renewal afterwards finds a place that the engine received meanwhile.
    fn report_losses(&self, part: &Arc<Part>) -> Vec<SessionEvent> {
        let loss = part.session.over().unwrap_or(Loss::Expired);
        let mut table = self.table.lock();
        table.retire(part);
        let gone = |place| SessionEvent::Gone(GrantId { place, token: None }, loss);
        table.requests_of(part).map(gone).chain([SessionEvent::Doubtful]).collect()
    }

    fn part_of(&self, request: RequestId) -> Option<Arc<Part>> {
        self.table.lock().places.get(&request).map(|(_, part)| Arc::clone(part))
    }

    /// Forgets the request: no client relies on its place in this session.
    fn forget(&self, request: RequestId, part: &Arc<Part>) {
        let mut table = self.table.lock();
        if table.places.get(&request).is_some_and(|(_, of)| Arc::ptr_eq(of, part)) {
            table.places.remove(&request);
            self.ask_to_close_unused(&table, part);
        }
    }

    /// Asks for the renewal that closes a lost session, once the last request that depended on it is forgotten: the remains of
    /// the session delay other clients.
    fn ask_to_close_unused(&self, table: &PartTable, part: &Arc<Part>) {
        if part.session.over().is_some() && table.is_unused(part) {
            self.state.notify(SessionEvent::Doubtful);
        }
    }

    async fn renew(&self, places: &dyn PlaceList) -> Result<Renewal> {
        self.alive("renew")?;
        let mut renewal = Renewal::at(self.opening.clock.now());
        let current = self.table.lock().current.iter().flatten().cloned().collect::<Vec<_>>();
        let mut asked: Vec<(Arc<Part>, Vec<PlaceId>)> = current.into_iter().map(|part| (part, Vec::new())).collect();
        for place in places.all() {
            let Some(part) = self.part_of(place.request) else {
                renewal.gone.push((place, Loss::Removed));
                continue;
            };
            match asked.iter_mut().find(|(asked, _)| Arc::ptr_eq(asked, &part)) {
                Some((_, places)) => places.push(place),
                None => asked.push((part, vec![place])),
            }
        }
        let is_alone = asked.len() == 1;
        let answers =
            asked.iter().map(|(part, places)| ask_part(&self.opening, is_alone, || part.session.renew(places)));
        let (answers, ()) = join(join_all(answers), self.close_retired()).await;
        let (mut failure, mut is_confirmed) = (None, false);
        for ((part, places), answer) in asked.into_iter().zip(answers) {
            let gone = match (answer, part.session.over()) {
                (Ok(answer), _) => {
                    part.confirmed.fetch_max(answer.confirmed.as_nanos(), Ordering::AcqRel);
                    is_confirmed = true;
                    let end = part.valid_until(self.opening.ttl);
                    renewal.valid.extend(places.into_iter().map(|place| (place, end)));
                    answer.gone
                }
                (Err(_), Some(loss)) => {
                    self.table.lock().retire(&part);
                    places.into_iter().map(|place| (place, loss)).collect()
                }
                (Err(error), None) => {
                    let mut table = self.table.lock();
                    if table.is_unused(&part) {
                        table.retire(&part);
                    }
                    failure = Some(error);
                    Vec::new()
                }
            };
            gone.iter().for_each(|(place, _)| self.forget(place.request, &part));
            renewal.gone.extend(gone);
        }
        // Each part has ended, so no node has confirmed anything: asks whether the Cluster can be reached.
        if !is_confirmed && failure.is_none() {
            failure = (self.reach)().await.err();
        }
        if let Some(error) = failure.filter(|_| !is_confirmed) {
            let lost = |(place, loss)| SessionEvent::Gone(GrantId { place, token: None }, loss);
            renewal.gone.into_iter().map(lost).for_each(|event| self.state.notify(event));
            return Err(error);
        }
        self.state.confirm(renewal.confirmed);
        Ok(renewal)
    }

    /// Closes retired sessions: their places at a new owner would delay other clients for a ttl.
    async fn close_retired(&self) {
        let mut retired = self.table.lock().retired.clone();
        retired.retain(|part| self.table.lock().is_unused(part));
        let closes = retired.iter().map(|part| ask_part(&self.opening, false, async || Ok(part.session.close().await)));
        let closes = join_all(closes).await;
        for (part, closed) in retired.iter().zip(closes) {
            let is_late = self.opening.clock.now() >= part.valid_until(self.opening.ttl * 2);
            if matches!(closed, Ok(Ok(()))) || is_late {
                self.table.lock().retired.retain(|other| !Arc::ptr_eq(other, part));
            }
        }
    }

    async fn close(&self) -> Result<()> {
        loop {
            let parts = {
                let mut table = self.table.lock();
                let PartTable { current, retired, .. } = &mut *table;
                retired.extend(current.iter_mut().filter_map(Option::take));
                // The session ends under the lock of the table, so that a part which is opened meanwhile is closed.
                if retired.is_empty() {
                    self.state.end(Loss::Closed);
                    return Ok(());
                }
                retired.clone()
            };
            let closed = join_all(parts.iter().map(|part| part.session.close())).await;
            closed.into_iter().collect::<Result<()>>()?;
            self.table.lock().retired.retain(|part| parts.iter().all(|closed| !Arc::ptr_eq(closed, part)));
        }
    }
}

struct Handle(Arc<Parts>);

impl Session for Handle {
    fn over(&self) -> Option<Loss> {
        self.0.state.cause()
    }

    fn enter(&self, entry: Arc<Entry>) -> BoxFuture<'_, Result<Entered>> {
        Box::pin(async move {
            let (parts, id) = (&self.0, entry.id);
            parts.alive("enter")?;
            let (part, is_new) = parts.part(&entry).await?;
            match part.session.enter(entry).await {
                Ok(Entered::In(place)) => {
                    Ok(Entered::In(Box::new(PartPlace { parts: Arc::clone(parts), part, place })))
                }
                Ok(refused) => {
                    parts.forget(id, &part);
                    Ok(refused)
                }
                Err(error) => {
                    if is_new && error.outcome() == Outcome::NotApplied {
                        parts.forget(id, &part);
                    }
                    Err(part.passing(error))
                }
            }
        })
    }

    fn withdraw<'a>(&'a self, name: &'a Name, id: RequestId) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Some(part) = self.0.part_of(id) else { return Ok(()) };
            part.session.withdraw(name, id).await.map_err(|error| part.passing(error))?;
            self.0.forget(id, &part);
            Ok(())
        })
    }

    fn renew<'a>(&'a self, places: &'a dyn PlaceList) -> BoxFuture<'a, Result<Renewal>> {
        Box::pin(self.0.renew(places))
    }

    fn waited_for<'a>(&'a self, place: &'a PlaceId) -> Option<BoxFuture<'a, Result<()>>> {
        let part = self.0.part_of(place.request)?;
        Some(Box::pin(async move {
            match part.session.waited_for(place) {
                Some(waited) => waited.await.map_err(|error| part.passing(error)),
                None => std::future::pending().await,
            }
        }))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.0.close())
    }
}

/// A place of one part. A grant ends with its part, and so has an end of its own.
struct PartPlace {
    parts: Arc<Parts>,
    part: Arc<Part>,
    place: Box<dyn Place>,
}

impl PartPlace {
    fn bounded(&self, standing: Standing) -> Standing {
        let Standing::Granted(grant) = standing else { return standing };
        Standing::Granted(Grant { valid_until: Some(self.part.valid_until(self.parts.opening.ttl)), ..grant })
    }
}

impl Place for PartPlace {
    fn id(&self) -> PlaceId {
        self.place.id()
    }

    fn standing(&self) -> Standing {
        self.parts.state.cause().map_or_else(|| self.bounded(self.place.standing()), Standing::Lost)
    }

    fn next(&mut self, until: Moment) -> BoxFuture<'_, Result<Standing>> {
        Box::pin(async move {
            self.parts.alive("next")?;
            match (self.place.next(until).await, self.part.session.over()) {
                (Ok(standing), _) => Ok(self.bounded(standing)),
                (Err(error), Some(loss)) if error.kind() == ErrorKind::Lost => {
                    self.parts.alive("next")?;
                    Ok(Standing::Lost(loss))
                }
                (Err(error), _) => Err(error),
            }
        })
    }

    fn lighten(&mut self, claim: Claim) -> BoxFuture<'_, Result<()>> {
        self.place.lighten(claim)
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<Left>> {
        Box::pin(async move {
            let left = self.place.leave().await?;
            self.parts.forget(self.place.id().request, &self.part);
            Ok(left)
        })
    }
}

impl Drop for PartPlace {
    /// A lost place is not left, so its request is forgotten here.
    fn drop(&mut self) {
        if self.part.session.over().is_some() || matches!(self.place.standing(), Standing::Lost(_)) {
            self.parts.forget(self.place.id().request, &self.part);
        }
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests;
