//! What the store holds: queues and sessions, changed under one lock, by the store's clock.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, SystemTime};

use super::held::Held;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::number::clock_number;
use crate::kit::own_places;
use crate::name::Name;
use crate::queue::view::{granted_of, judge};
use crate::queue::{Admission, Claim};
use crate::store::{
    Ahead, Break, Contender, Entry, Grant, GrantId, Left, Loss, Outline, Owner, Page, PlaceId, Queue, RequestId,
    SessionEvent, Standing,
};
use crate::time::{Clock, Moment};
use crate::token::FencingToken;

/// Everything in one store.
pub(super) struct StoreState {
    clock: Arc<dyn Clock>,
    lines: HashMap<Name, StoredQueue>,
    sessions: HashMap<u64, Record>,
    pub(super) held: Vec<Held>,
    /// The number of each place, by its request and its session: to be found without looking through a queue.
    numbers: BTreeMap<(RequestId, u64), u64>,
    last_number: u64,
    last_session: u64,
    /// No live session expires before this; found anew when it is reached.
    next_expiry: Moment,
    /// The memory of a queue that went idle, for the next one: an uncontended cycle allocates nothing here.
    spare: VecDeque<QueueEntry>,
    /// The last grants that were broken.
    breaks: VecDeque<Break>,
    /// Whom to wake once the lock is given back.
    pub(super) wakes: Vec<Waker>,
}

impl AsMut<Vec<Waker>> for StoreState {
    fn as_mut(&mut self) -> &mut Vec<Waker> {
        &mut self.wakes
    }
}

/// How many broken grants are remembered.
const BREAKS: usize = 1000;

/// One queue, front first. The granted are a prefix of it.
struct StoredQueue {
    tickets: VecDeque<QueueEntry>,
    granted: usize,
}

struct QueueEntry {
    /// Order and grant in one; unique in the store.
    number: u64,
    id: RequestId,
    session: u64,
    claim: Claim,
    since: SystemTime,
    purpose: Option<Arc<str>>,
    waker: Option<Waker>,
}

/// One session, kept until nobody can ask for it any more.
struct Record {
    owner: Arc<Owner>,
    ttl: Duration,
    deadline: Moment,
    over: Option<Loss>,
    orphaned: bool,
    events: VecDeque<SessionEvent>,
    listener: Option<Waker>,
}

/// What became of an `enter`.
pub(super) enum Joined {
    In(u64, Standing),
    Busy,
    Conflict(Claim),
}

impl StoreState {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            lines: HashMap::new(),
            sessions: HashMap::new(),
            held: Vec::new(),
            numbers: BTreeMap::new(),
            last_number: 0,
            last_session: 0,
            next_expiry: Moment::NEVER,
            spare: VecDeque::new(),
            breaks: VecDeque::new(),
            wakes: Vec::new(),
        }
    }

    pub(super) fn open(&mut self, owner: &Owner, ttl: Duration, now: Moment) -> u64 {
        self.last_session += 1;
        let deadline = now.after(ttl);
        self.next_expiry = self.next_expiry.min(deadline);
        let record = Record {
            owner: Arc::new(owner.clone()),
            ttl,
            deadline,
            over: None,
            orphaned: true,
            events: VecDeque::new(),
            listener: None,
        };
        self.sessions.insert(self.last_session, record);
        self.last_session
    }

    /// The answer to `open` arrived: from now on somebody holds the session.
    pub(super) fn adopt(&mut self, session: u64) {
        if let Some(record) = self.sessions.get_mut(&session) {
            record.orphaned = false;
        }
    }

    /// The session's handles are gone. Its places stay until it expires, as those of a vanished process do.
    pub(super) fn forget(&mut self, session: u64) {
        if let Some(record) = self.sessions.get_mut(&session) {
            record.orphaned = true;
            if record.over.is_some() {
                self.sessions.remove(&session);
            }
        }
    }

    /// Expires whatever has run out; every look at the store begins with it.
    pub(super) fn sweep(&mut self, now: Moment) {
        if now < self.next_expiry {
            return;
        }
        let mut expired: Vec<u64> =
            self.sessions.iter().filter(|(_, r)| r.over.is_none() && r.deadline <= now).map(|(id, _)| *id).collect();
        expired.sort_unstable();
        for session in expired {
            self.end(session, Loss::Expired);
        }
        let live = self.sessions.values().filter(|record| record.over.is_none());
        self.next_expiry = live.map(|record| record.deadline).min().unwrap_or(Moment::NEVER);
    }

    /// The next moment at which somebody may expire.
    pub(super) fn next_expiry(&self) -> Moment {
        self.next_expiry
    }

    /// Ends a session and everything that hangs on it.
    pub(super) fn end(&mut self, session: u64, why: Loss) {
        let Some(record) = self.sessions.get_mut(&session).filter(|record| record.over.is_none()) else {
            return;
        };
        record.over = Some(why);
        if why != Loss::Closed {
            record.events.push_back(SessionEvent::Over);
        }
        self.wakes.extend(record.listener.take());
        if record.orphaned {
            self.sessions.remove(&session);
        }
        self.held.retain(|held| !held.is_of(session, None));
        let mut names: Vec<Name> = self.lines.keys().cloned().collect();
        names.sort_unstable();
        for name in names {
            self.depart(&name, |ticket| ticket.session == session);
        }
    }

    pub(super) fn enter(&mut self, session: u64, entry: &Entry) -> Result<Joined> {
        let record = self.sessions.get(&session);
        if record.is_none_or(|record| record.over.is_some()) {
            return Err(own_places::over("enter"));
        }
        let line = self.lines.get(&entry.name);
        if let Some((line, index)) = self.find(&entry.name, entry.id, session) {
            return Ok(Joined::In(line.tickets[index].number, line.standing(index)));
        }
        let granted = match line.map_or(Admission::Admitted, |line| judge(line.claims(), entry.claim)) {
            Admission::Admitted => true,
            Admission::Wait if entry.wait => false,
            Admission::Wait => return Ok(Joined::Busy),
            Admission::Conflict(claim) => return Ok(Joined::Conflict(claim)),
        };
        self.join(session, entry, granted)
    }

    /// The place of that request of that session.
    fn find(&self, name: &Name, id: RequestId, session: u64) -> Option<(&StoredQueue, usize)> {
        let number = self.numbers.get(&(id, session))?;
        let line = self.lines.get(name)?;
        Some((line, line.index(*number)?))
    }

    fn join(&mut self, session: u64, entry: &Entry, granted: bool) -> Result<Joined> {
        let since = self.clock.wall();
        let number = self.draw(since)?;
        let spare = &mut self.spare;
        let begin = || {
            let mut tickets = std::mem::take(spare);
            // Most names have one contender, and room for several would be made for the first.
            tickets.reserve_exact(1);
            StoredQueue { tickets, granted: 0 }
        };
        let line = self.lines.entry(entry.name.clone()).or_insert_with(begin);
        line.tickets.push_back(QueueEntry {
            number,
            id: entry.id,
            session,
            claim: entry.claim,
            since,
            purpose: entry.purpose.clone(),
            waker: None,
        });
        line.granted += usize::from(granted);
        self.numbers.insert((entry.id, session), number);
        Ok(Joined::In(number, line.standing(line.tickets.len() - 1)))
    }

    /// The next number: past the last one, and never behind the store's clock in 1/128 ms, so that the numbers of a
    /// name rise although nothing of an idle name is kept.
    fn draw(&mut self, wall: SystemTime) -> Result<u64> {
        let number = clock_number(wall).max(self.last_number + 1);
        if FencingToken::new(number).is_none() {
            return Err(Error::new(ErrorKind::Exhausted, "enter", "the clock is past the last fencing token"));
        }
        self.last_number = number;
        Ok(number)
    }

    /// Removes every ticket of `name` that `gone` picks, grants what that admits, and wakes exactly the newly granted:
    /// here the store sees every grant, so nobody needs to be woken to look for himself.
    fn depart(&mut self, name: &Name, gone: impl Fn(&QueueEntry) -> bool) -> usize {
        let Some(line) = self.lines.get_mut(name) else {
            return 0;
        };
        let (before, granted) = (line.tickets.len(), line.granted);
        let (mut index, mut still_granted) = (0, 0);
        let (wakes, numbers) = (&mut self.wakes, &mut self.numbers);
        line.tickets.retain_mut(|ticket| {
            let goes = gone(ticket);
            still_granted += usize::from(index < granted && !goes);
            index += 1;
            if goes {
                wakes.extend(ticket.waker.take());
                numbers.remove(&(ticket.id, ticket.session));
            }
            !goes
        });
        line.granted = still_granted;
        let departed = before - line.tickets.len();
        if departed > 0 {
            self.settle(name);
        }
        departed
    }

    /// Grants those that fit now, and forgets the queue when it is empty.
    fn settle(&mut self, name: &Name) {
        let Some(line) = self.lines.get_mut(name) else {
            return;
        };
        let granted = granted_of(line.claims());
        for ticket in line.tickets.range_mut(line.granted..granted) {
            ticket.since = self.clock.wall();
            self.wakes.extend(ticket.waker.take());
        }
        line.granted = granted;
        if line.tickets.is_empty() {
            self.spare = self.lines.remove(name).map(|line| line.tickets).unwrap_or_default();
        }
    }

    pub(super) fn withdraw(&mut self, session: u64, name: &Name, id: RequestId) {
        self.held.retain(|held| !held.is_of(session, Some(id)));
        let Some(number) = self.numbers.get(&(id, session)).copied() else { return };
        if let Some(line) = self.lines.get_mut(name)
            && let Some(index) = line.index(number)
        {
            self.wakes.extend(line.tickets[index].waker.take());
            self.take_out(name, index);
        }
    }

    /// Takes one place out of its queue, and grants whom that lets in.
    fn take_out(&mut self, name: &Name, index: usize) {
        let Some(line) = self.lines.get_mut(name) else { return };
        if let Some(ticket) = line.tickets.remove(index) {
            self.numbers.remove(&(ticket.id, ticket.session));
        }
        line.granted -= usize::from(index < line.granted);
        self.settle(name);
    }

    pub(super) fn leave(&mut self, session: u64, name: &Name, number: u64, id: RequestId) -> Left {
        // A repeated `enter` still on its way must not bring back what is left now.
        self.held.retain(|held| !held.is_of(session, Some(id)));
        let Some(index) = self.lines.get(name).and_then(|line| line.index(number)) else {
            return Left::AlreadyGone;
        };
        self.take_out(name, index);
        Left::Released
    }

    pub(super) fn lighten(&mut self, session: u64, name: &Name, number: u64, claim: Claim) -> Result<()> {
        let line = self.lines.get_mut(name);
        let Some((line, index)) = line.and_then(|line| line.index(number).map(|index| (line, index))) else {
            let loss = self.loss(session);
            return Err(own_places::not_there().with("because", loss));
        };
        line.tickets[index].claim = claim;
        self.settle(name);
        Ok(())
    }

    /// Prolongs the session, and says which places of the list are gone.
    pub(super) fn renew(&mut self, session: u64, places: &Vec<PlaceId>, now: Moment) -> Result<Vec<(PlaceId, Loss)>> {
        let record = self.sessions.get_mut(&session).filter(|record| record.over.is_none());
        let record = record.ok_or_else(|| own_places::over("renew"))?;
        record.deadline = now.after(record.ttl);
        let is_broken =
            |name: &Name, id| self.breaks.iter().any(|order| order.place.request == id && order.place.name == *name);
        Ok(own_places::gone(places, |name, id| match self.find(name, id, session) {
            Some(_) => None,
            None if is_broken(name, id) => Some(Loss::Broken),
            None => Some(Loss::Removed),
        }))
    }

    /// The standing of one place as it is now.
    pub(super) fn look(&self, session: u64, name: &Name, number: u64) -> Standing {
        let line = self.lines.get(name);
        match line.and_then(|line| line.index(number).map(|index| line.standing(index))) {
            Some(standing) => standing,
            None => Standing::Lost(self.loss(session)),
        }
    }

    /// Whom to wake when that place is granted or gone.
    pub(super) fn watch(&mut self, name: &Name, number: u64, waker: Option<&Waker>) {
        let line = self.lines.get_mut(name);
        if let Some(ticket) = line.and_then(|line| line.index(number).map(|index| &mut line.tickets[index])) {
            ticket.waker = waker.cloned();
        }
    }

    /// Takes one place out, as somebody with access to the store might.
    pub(super) fn remove(&mut self, place: &PlaceId) -> bool {
        let line = self.lines.get(&place.name);
        let ticket = line.and_then(|line| line.tickets.iter().find(|ticket| ticket.id == place.request));
        let Some((session, token)) = ticket.map(|ticket| (ticket.session, ticket.grant().token)) else {
            return false;
        };
        if let Some(record) = self.sessions.get_mut(&session) {
            record.events.push_back(SessionEvent::Gone(GrantId { place: place.clone(), token }, Loss::Removed));
            self.wakes.extend(record.listener.take());
        }
        self.depart(&place.name, |ticket| ticket.id == place.request) > 0
    }

    /// Breaks the grant that `order` names; says whether it was there, or this very order broke it before.
    pub(super) fn break_grant(&mut self, order: Break) -> bool {
        let place = order.place.clone();
        let line = self.lines.get(&place.name);
        let is_it = |ticket: &&QueueEntry| ticket.id == place.request && ticket.grant().token == order.token;
        let holder = line.and_then(|line| line.tickets.range(..line.granted).find(is_it));
        let Some(session) = holder.map(|ticket| ticket.session) else {
            return self.breaks.contains(&order);
        };
        if let Some(record) = self.sessions.get_mut(&session) {
            record.events.push_back(SessionEvent::Broken(order.grant(), Arc::clone(&order.reason)));
            self.wakes.extend(record.listener.take());
        }
        if self.breaks.len() >= BREAKS {
            self.breaks.pop_front();
        }
        self.breaks.push_back(order);
        self.depart(&place.name, |ticket| ticket.id == place.request && ticket.session == session) > 0
    }

    pub(super) fn breaks(&self, name: &Name) -> Vec<Break> {
        self.breaks.iter().filter(|order| order.place.name == *name).cloned().collect()
    }

    /// The session's next event, or `Err(true)` when there will be none any more.
    pub(super) fn event(&mut self, session: u64, waker: &Waker) -> Result<SessionEvent, bool> {
        let record = self.sessions.get_mut(&session).ok_or(true)?;
        record.events.pop_front().ok_or_else(|| {
            record.listener = Some(waker.clone());
            record.over.is_some()
        })
    }

    /// One page of a queue, in as many steps as it has rows.
    pub(super) fn queue(&self, name: &Name, page: Page) -> Queue {
        let line = self.lines.get(name);
        let contenders = line.into_iter().flat_map(|line| {
            let end = line.tickets.len().min(page.skip.saturating_add(page.limit));
            (page.skip.min(end)..end).map(|index| self.contender(line, index))
        });
        let queued = line.map_or(0, |line| line.tickets.len());
        Queue {
            name: name.clone(),
            contenders: contenders.collect(),
            queued,
            beside: Vec::new(),
            strangers: Vec::new(),
        }
    }

    fn contender(&self, line: &StoredQueue, index: usize) -> Contender {
        let ticket = &line.tickets[index];
        Contender {
            owner: self.sessions.get(&ticket.session).map(|record| Owner::clone(&record.owner)),
            grant: (index < line.granted).then(|| ticket.grant()),
            since: Some(ticket.since),
            purpose: ticket.purpose.clone(),
            ..Contender::new(ticket.id, ticket.claim)
        }
    }

    /// A queue in short, in a few steps for each of `mine`.
    pub(super) fn outline(&self, name: &Name, mine: &[RequestId]) -> Outline {
        let Some(line) = self.lines.get(name) else {
            return Outline { positions: vec![None; mine.len()], ..Outline::default() };
        };
        let position = |id: &RequestId| {
            let of_any_session = (*id, 0)..=(*id, u64::MAX);
            let mut numbers = self.numbers.range(of_any_session).map(|(_, number)| *number);
            numbers.find_map(|number| line.index(number)).map(|index| index + 1)
        };
        Outline {
            holder: (line.granted > 0).then(|| self.contender(line, 0)),
            holders: line.granted,
            queued: line.tickets.len(),
            positions: mine.iter().map(position).collect(),
        }
    }

    pub(super) fn names(&self, prefix: &str) -> Vec<Name> {
        self.lines.keys().filter(|name| name.as_str().starts_with(prefix)).cloned().collect()
    }

    /// Live sessions, names that are queued for, and places in all.
    pub(super) fn count(&self) -> (usize, usize, usize) {
        let live = self.sessions.values().filter(|record| record.over.is_none()).count();
        (live, self.lines.len(), self.lines.values().map(|line| line.tickets.len()).sum())
    }

    /// Why the session is over, if it is.
    pub(super) fn over(&self, session: u64) -> Option<Loss> {
        self.sessions.get(&session).and_then(|record| record.over)
    }

    fn loss(&self, session: u64) -> Loss {
        self.over(session).unwrap_or(Loss::Removed)
    }
}

impl StoredQueue {
    fn claims(&self) -> impl DoubleEndedIterator<Item = Claim> {
        self.tickets.iter().map(|ticket| ticket.claim)
    }

    /// Numbers rise along the queue.
    fn index(&self, number: u64) -> Option<usize> {
        self.tickets.binary_search_by_key(&number, |ticket| ticket.number).ok()
    }

    fn standing(&self, index: usize) -> Standing {
        if index < self.granted {
            return Standing::Granted(self.tickets[index].grant());
        }
        Standing::Waiting(Some(Ahead::of(index, self.granted)))
    }
}

impl QueueEntry {
    fn grant(&self) -> Grant {
        Grant::new(FencingToken::new(self.number))
    }
}
