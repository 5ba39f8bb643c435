//! What the store holds: queues and sessions, changed under one lock, by the store's clock.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use super::link::{Held, Link, News};
use super::notes::Notes;
use crate::error::{Error, ErrorKind, Result};
use crate::kit::number::clock_number;
use crate::kit::served::{Broken, Enter, Lightened, Over, Places};
use crate::name::Name;
use crate::queue::view::{granted_of, judge};
use crate::queue::{Admission, Claim};
use crate::store::{Ahead, Break, Contender, Entry, Grant, Loss, Outline, Owner, Page, PlaceId, Queue, RequestId};
use crate::time::{Clock, Moment};
use crate::token::FencingToken;

/// Everything in one store.
pub(super) struct StoreState {
    clock: Arc<dyn Clock>,
    lines: HashMap<Name, StoredQueue>,
    /// Those that live.
    sessions: HashMap<u64, Record>,
    pub(super) held: Vec<Held>,
    /// Where each place is, by its request and its session: to be found without looking through a queue.
    places: BTreeMap<(RequestId, u64), (Name, u64)>,
    last_number: u64,
    last_session: u64,
    /// No session expires before this; found anew when it is reached.
    next_expiry: Moment,
    /// The last grants that were broken.
    breaks: VecDeque<Break>,
    /// What sessions are told once the lock is given back.
    pub(super) news: Vec<Told>,
    pub(super) notes: Notes,
}

/// How many broken grants are remembered.
const BREAKS: usize = 1000;

/// One queue, front first. The granted are a prefix of it.
#[derive(Default)]
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
    /// Its session wants to hear of the first who waits behind it.
    is_watched: bool,
}

/// One session, and where it is told of what happens to it.
struct Record {
    owner: Owner,
    ttl: Duration,
    deadline: Moment,
    places: Arc<Places>,
    link: Weak<Link>,
}

/// What a session is told, and over which link.
type Told = (Weak<Link>, Arc<Places>, News);

impl Record {
    fn told(&self, news: impl FnOnce(&Places) + Send + 'static) -> Told {
        (Weak::clone(&self.link), Arc::clone(&self.places), Box::new(news))
    }
}

impl StoreState {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            lines: HashMap::new(),
            sessions: HashMap::new(),
            held: Vec::new(),
            places: BTreeMap::new(),
            last_number: 0,
            last_session: 0,
            next_expiry: Moment::NEVER,
            breaks: VecDeque::new(),
            news: Vec::new(),
            notes: Notes::default(),
        }
    }

    pub(super) fn open(
        &mut self,
        owner: Owner,
        ttl: Duration,
        now: Moment,
        places: Arc<Places>,
        link: Weak<Link>,
    ) -> u64 {
        self.last_session += 1;
        let deadline = now.after(ttl);
        self.next_expiry = self.next_expiry.min(deadline);
        self.sessions.insert(self.last_session, Record { owner, ttl, deadline, places, link });
        self.last_session
    }

    fn tell(&mut self, session: u64, news: impl FnOnce(&Places) + Send + 'static) {
        self.news.extend(self.sessions.get(&session).map(|record| record.told(news)));
    }

    /// Expires whatever has run out; every look at the store begins with it.
    pub(super) fn sweep(&mut self, now: Moment) {
        if now < self.next_expiry {
            return;
        }
        self.expire(|record| record.deadline <= now);
        self.next_expiry = self.sessions.values().map(|record| record.deadline).min().unwrap_or(Moment::NEVER);
    }

    fn expire(&mut self, which: impl Fn(&Record) -> bool) {
        let mut expired: Vec<u64> =
            self.sessions.iter().filter(|(_, record)| which(record)).map(|(number, _)| *number).collect();
        expired.sort_unstable();
        expired.into_iter().for_each(|session| self.end(session, Loss::Expired));
    }

    /// Expires all sessions that came over this link.
    pub(super) fn expire_all_of(&mut self, link: &Arc<Link>) {
        self.expire(|record| std::ptr::eq(record.link.as_ptr(), Arc::as_ptr(link)));
    }

    /// The next moment at which somebody may expire.
    pub(super) fn next_expiry(&self) -> Moment {
        self.next_expiry
    }

    /// Ends a session and everything that hangs on it.
    pub(super) fn end(&mut self, session: u64, why: Loss) {
        if why != Loss::Closed {
            self.tell(session, move |places| {
                places.end(Over::There, why);
            });
        }
        if self.sessions.remove(&session).is_none() {
            return;
        }
        self.held.retain(|held| !held.is_of(session, None));
        let of_session = self.places.iter().filter(|((_, of), _)| *of == session);
        let mut places: Vec<_> = of_session.map(|(key, (_, number))| (*number, key.0)).collect();
        // From behind, so that none of them is granted on the way.
        places.sort_unstable_by(|a, b| b.cmp(a));
        for (_, id) in places {
            self.take_out(id, session);
        }
    }

    pub(super) fn enter(&mut self, session: u64, entry: &Entry) -> Result<Enter> {
        if !self.sessions.contains_key(&session) {
            return Ok(Enter::Gone);
        }
        if let Some((name, number)) = self.places.get(&(entry.id, session))
            && let Some(line) = self.lines.get(name)
        {
            return Ok(line.entered(*number));
        }
        let line = self.lines.get(&entry.name);
        let granted = match line.map_or(Admission::Admitted, |line| judge(line.claims(), entry.claim)) {
            Admission::Admitted => true,
            Admission::Wait if entry.wait => false,
            Admission::Wait => return Ok(Enter::Busy),
            Admission::Conflict(claim) => return Ok(Enter::Conflict(claim)),
        };
        self.join(session, entry, granted)
    }

    fn join(&mut self, session: u64, entry: &Entry, granted: bool) -> Result<Enter> {
        let since = self.clock.wall();
        let number = self.draw(since)?;
        let line = self.lines.entry(entry.name.clone()).or_default();
        let (id, claim, purpose) = (entry.id, entry.claim, entry.purpose.clone());
        line.tickets.push_back(QueueEntry { number, id, session, claim, since, purpose, is_watched: false });
        line.granted += usize::from(granted);
        self.places.insert((id, session), (entry.name.clone(), number));
        let answer = line.entered(number);
        let watched = line.tickets.front().filter(|front| !granted && front.is_watched);
        if let Some((session, id)) = watched.map(|front| (front.session, front.id)) {
            self.tell(session, move |places| places.told_waited_for(id));
        }
        Ok(answer)
    }

    /// The session of the grant with this number is told of who comes to wait behind it. Says whether somebody does, or it is gone.
    pub(super) fn watch(&mut self, name: &Name, number: u64) -> bool {
        let line = self.lines.get_mut(name);
        let Some((line, index)) = line.and_then(|line| line.index(number).map(|index| (line, index))) else {
            return true;
        };
        line.tickets[index].is_watched = true;
        line.tickets.len() > line.granted
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

    /// Grants those that fit now, and forgets the queue when it is empty.
    fn settle(&mut self, name: &Name) {
        let Some(line) = self.lines.get_mut(name) else { return };
        let before = line.granted;
        line.granted = granted_of(line.claims());
        if line.tickets.is_empty() {
            self.lines.remove(name);
            return;
        }
        let since = self.clock.wall();
        for ticket in line.tickets.range_mut(before..line.granted) {
            ticket.since = since;
            let (id, number) = (ticket.id, ticket.number);
            let record = self.sessions.get(&ticket.session);
            self.news.extend(record.map(|record| record.told(move |places| places.told_granted(id, number))));
        }
    }

    /// Takes one place out of its queue, and grants whom that lets in. Says whether it was there.
    fn take_out(&mut self, id: RequestId, session: u64) -> bool {
        let Some((name, number)) = self.places.remove(&(id, session)) else { return false };
        let line = self.lines.get_mut(&name);
        if let Some((line, index)) = line.and_then(|line| line.index(number).map(|index| (line, index))) {
            line.tickets.remove(index);
            line.granted -= usize::from(index < line.granted);
            self.settle(&name);
        }
        true
    }

    /// Gives up a place, that with this number unless it is `None`: whether it was there.
    pub(super) fn leave(&mut self, session: u64, id: RequestId, number: Option<u64>) -> bool {
        // A repeated `enter` still on its way must not bring back what is left now.
        self.held.retain(|held| !held.is_of(session, Some(id)));
        let is_it =
            self.places.get(&(id, session)).is_some_and(|(_, known)| number.is_none_or(|number| number == *known));
        is_it && self.take_out(id, session)
    }

    pub(super) fn lighten(&mut self, name: &Name, number: u64, claim: Claim) -> Lightened {
        let line = self.lines.get_mut(name);
        let Some((line, index)) = line.and_then(|line| line.index(number).map(|index| (line, index))) else {
            return Lightened::Missing;
        };
        line.tickets[index].claim = claim;
        self.settle(name);
        Lightened::Done
    }

    /// Prolongs the session: whether it lives.
    pub(super) fn renew(&mut self, session: u64, now: Moment) -> bool {
        let record = self.sessions.get_mut(&session);
        record.map(|record| record.deadline = now.after(record.ttl)).is_some()
    }

    /// Takes one place out, as somebody with access to the store might.
    pub(super) fn remove(&mut self, place: &PlaceId) -> bool {
        let of_any_session = (place.request, 0)..=(place.request, u64::MAX);
        let Some(((id, session), (_, number))) = self.places.range(of_any_session).next() else { return false };
        let (id, session, number, place) = (*id, *session, *number, place.clone());
        self.tell(session, move |places| places.told_removed(place, number));
        self.take_out(id, session)
    }

    /// Breaks the grant that `order` names; says whether it was there, or this very order broke it before.
    pub(super) fn break_grant(&mut self, order: Break) -> bool {
        let place = order.place.clone();
        let line = self.lines.get(&place.name);
        let is_it = |ticket: &&QueueEntry| ticket.id == place.request && ticket.grant().token == order.token;
        let holder = line.and_then(|line| line.tickets.range(..line.granted).find(is_it));
        let Some((session, grant)) = holder.map(|ticket| (ticket.session, ticket.number)) else {
            return self.breaks.contains(&order);
        };
        let (id, reason) = (place.request, Arc::clone(&order.reason));
        self.tell(session, move |places| places.told_broken(Broken { place, grant, reason }));
        if self.breaks.len() >= BREAKS {
            self.breaks.pop_front();
        }
        self.breaks.push_back(order);
        self.take_out(id, session)
    }

    pub(super) fn breaks(&self, name: &Name) -> Vec<Break> {
        self.breaks.iter().filter(|order| order.place.name == *name).cloned().collect()
    }

    /// One page of a queue, in as many steps as it has rows.
    pub(super) fn queue(&self, name: &Name, page: Page) -> Queue {
        let empty = StoredQueue::default();
        let line = self.lines.get(name).unwrap_or(&empty);
        let queued = line.tickets.len();
        let contenders = page.of(0..queued).map(|index| self.contender(line, index)).collect();
        Queue { name: name.clone(), contenders, queued, beside: Vec::new(), strangers: Vec::new() }
    }

    fn contender(&self, line: &StoredQueue, index: usize) -> Contender {
        let ticket = &line.tickets[index];
        Contender {
            owner: self.sessions.get(&ticket.session).map(|record| record.owner.clone()),
            grant: (index < line.granted).then(|| ticket.grant()),
            since: Some(ticket.since),
            purpose: ticket.purpose.clone(),
            ..Contender::new(ticket.id, ticket.claim)
        }
    }

    /// A queue in short, in a few steps for each of `mine`.
    pub(super) fn outline(&self, name: &Name, mine: &[RequestId]) -> Outline {
        let Some(line) = self.lines.get(name) else { return Outline::of(&[], mine) };
        let position = |id: &RequestId| {
            let mut places = self.places.range((*id, 0)..=(*id, u64::MAX));
            places.find_map(|(_, (_, number))| line.index(*number)).map(|index| index + 1)
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

    /// Sessions, names that are queued for, and places in all.
    pub(super) fn count(&self) -> (usize, usize, usize) {
        (self.sessions.len(), self.lines.len(), self.places.len())
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

    /// How the place with this number stands.
    fn entered(&self, number: u64) -> Enter {
        match self.index(number) {
            Some(index) if index >= self.granted => {
                Enter::Waiting { seq: number, ahead: Some(Ahead::of(index, self.granted)), look_in: None }
            }
            _ => Enter::Granted(number),
        }
    }
}

impl QueueEntry {
    fn grant(&self) -> Grant {
        Grant::new(FencingToken::new(self.number))
    }
}
