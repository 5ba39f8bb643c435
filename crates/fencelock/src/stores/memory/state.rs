//! The content of the store: queues and sessions, changed under one lock, by the store's clock.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use super::link::{Effect, HeldRequest, Link, News, Tag};
use crate::kit::number::clock_number;
use crate::kit::served::{Broken, Enter, Places};
use crate::name::Name;
use crate::queue::view::{granted_of, judge};
use crate::queue::{Admission, Claim};
use crate::store::{
    Ahead, Break, Contender, Entry, Grant, GrantId, Loss, Note, NoteOrder, NoteRead, Owner, Page, PlaceId, Queue,
    RequestId,
};
use crate::time::{Clock, Moment};
use crate::token::FencingToken;

/// Everything in one store.
pub(super) struct StoreState {
    clock: Arc<dyn Clock>,
    queues: HashMap<Name, StoredQueue>,
    /// The sessions that live.
    sessions: BTreeMap<u64, SessionRecord>,
    held: Vec<HeldRequest>,
    last_number: u64,
    /// The number of the newest session or trap.
    last_id: u64,
    /// No session expires before this moment. At this moment, the store computes the next one.
    next_expiry: Moment,
    /// The last grants that were broken.
    breaks: VecDeque<Break>,
    notes: HashMap<Name, Note>,
    /// The messages for sessions, to be sent after the lock is released.
    pub(super) news: Vec<Notification>,
}

/// How many broken grants are remembered.
const BREAKS: usize = 1000;

/// A queue, front first. The granted are a prefix of it.
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
    /// The place's session wants the event of the first waiter behind the place.
    is_watched: bool,
}

/// A session, and the link for its notifications.
struct SessionRecord {
    owner: Owner,
    ttl: Duration,
    deadline: Moment,
    places: Arc<Places>,
    link: Weak<Link>,
}

/// A notification for a session, and the link that carries it.
type Notification = (Weak<Link>, Arc<Places>, News);

impl SessionRecord {
    fn notification(&self, news: impl FnOnce(&Places) + Send + 'static) -> Notification {
        (Weak::clone(&self.link), Arc::clone(&self.places), Box::new(news))
    }
}

impl StoreState {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            queues: HashMap::new(),
            sessions: BTreeMap::new(),
            held: Vec::new(),
            last_number: 0,
            last_id: 0,
            next_expiry: Moment::NEVER,
            breaks: VecDeque::new(),
            notes: HashMap::new(),
            news: Vec::new(),
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
        self.last_id += 1;
        let deadline = now.after(ttl);
        self.next_expiry = self.next_expiry.min(deadline);
        self.sessions.insert(self.last_id, SessionRecord { owner, ttl, deadline, places, link });
        self.last_id
    }

    fn tell(&mut self, session: u64, news: impl FnOnce(&Places) + Send + 'static) {
        self.news.extend(self.sessions.get(&session).map(|record| record.notification(news)));
    }

    /// Expires sessions that have run out; every look at the store begins with it.
    pub(super) fn sweep(&mut self, now: Moment) {
        if now < self.next_expiry {
            return;
        }
        self.expire(|record| record.deadline <= now);
        self.next_expiry = self.sessions.values().map(|record| record.deadline).min().unwrap_or(Moment::NEVER);
    }

    fn expire(&mut self, which: impl Fn(&SessionRecord) -> bool) {
        let expired: Vec<u64> =
            self.sessions.iter().filter(|(_, record)| which(record)).map(|(number, _)| *number).collect();
        expired.into_iter().for_each(|session| self.end(session, Loss::Expired));
    }

    /// Expires all sessions that came over this link.
    pub(super) fn expire_all_of(&mut self, link: &Arc<Link>) {
        self.expire(|record| std::ptr::eq(record.link.as_ptr(), Arc::as_ptr(link)));
    }

    /// The next moment at which a session may expire.
    pub(super) fn next_expiry(&self) -> Moment {
        self.next_expiry
    }

    /// Ends a session and everything that hangs on it.
    pub(super) fn end(&mut self, session: u64, why: Loss) {
        if why != Loss::Closed {
            self.tell(session, move |places| {
                places.end(why);
            });
        }
        self.sessions.remove(&session);
        self.forget_held(session, None);
        let is_its = |ticket: &QueueEntry| ticket.session == session;
        let is_in = |(name, queue): (&Name, &StoredQueue)| queue.tickets.iter().any(is_its).then(|| name.clone());
        let mut names: Vec<Name> = self.queues.iter().filter_map(is_in).collect();
        names.sort_unstable();
        for name in names {
            self.take_out(&name, is_its);
        }
    }

    pub(super) fn renew(&mut self, session: u64, now: Moment) -> bool {
        let Some(record) = self.sessions.get_mut(&session) else { return false };
        record.deadline = now.after(record.ttl);
        true
    }

    pub(super) fn enter(&mut self, session: u64, entry: &Entry) -> Enter {
        if !self.sessions.contains_key(&session) {
            return Enter::Gone;
        }
        if let Some((queue, index)) = self.find(&entry.name, |ticket| ticket.is(session, entry.id)) {
            return queue.entered(index);
        }
        let queue = self.queues.get(&entry.name);
        let is_granted = match queue.map_or(Admission::Admitted, |queue| judge(queue.claims(), entry.claim)) {
            Admission::Admitted => true,
            Admission::Wait if entry.wait => false,
            Admission::Wait => return Enter::Busy,
            Admission::Conflict(claim) => return Enter::Conflict(claim),
        };
        // Higher than the last number, and never behind the store's clock: so the numbers of a name rise although an idle name leaves
        // nothing.
        let since = self.clock.wall();
        self.last_number = clock_number(since).max(self.last_number + 1);
        let (number, id, claim, purpose) = (self.last_number, entry.id, entry.claim, entry.purpose.clone());
        let queue = self.queues.entry(entry.name.clone()).or_default();
        queue.tickets.push_back(QueueEntry { number, id, session, claim, since, purpose, is_watched: false });
        queue.granted += usize::from(is_granted);
        let answer = queue.entered(queue.tickets.len() - 1);
        let watched = queue.tickets.front().filter(|front| !is_granted && front.is_watched);
        if let Some((session, id)) = watched.map(|front| (front.session, front.id)) {
            self.tell(session, move |places| places.receive_waiter(id));
        }
        answer
    }

    /// Notifies the session of the grant with this number of the next waiter behind it. Returns whether a waiter is there, or the grant is gone.
    pub(super) fn watch(&mut self, name: &Name, number: u64) -> bool {
        let Some((queue, index)) = self.find(name, |ticket| ticket.number == number) else { return true };
        queue.tickets[index].is_watched = true;
        queue.tickets.len() > queue.granted
    }

    /// Where a place is.
    fn find(&mut self, name: &Name, is_it: impl Fn(&QueueEntry) -> bool) -> Option<(&mut StoredQueue, usize)> {
        let queue = self.queues.get_mut(name)?;
        let index = queue.tickets.iter().position(is_it)?;
        Some((queue, index))
    }

    /// Grants the places that fit now, and forgets an empty queue.
    fn settle(&mut self, name: &Name) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        let before = queue.granted;
        queue.granted = granted_of(queue.claims());
        if queue.tickets.is_empty() {
            self.queues.remove(name);
            return;
        }
        let since = self.clock.wall();
        for ticket in queue.tickets.range_mut(before..queue.granted) {
            ticket.since = since;
            let (id, number) = (ticket.id, ticket.number);
            let record = self.sessions.get(&ticket.session);
            self.news.extend(record.map(|record| record.notification(move |places| places.receive_grant(id, number))));
        }
    }

    /// Takes places out of a queue, all at once, and grants the waiters that fit then. Returns whether there were any.
    fn take_out(&mut self, name: &Name, is_it: impl Fn(&QueueEntry) -> bool) -> bool {
        let Some(queue) = self.queues.get_mut(name) else { return false };
        let before = queue.tickets.len();
        queue.granted -= queue.tickets.range(..queue.granted).filter(|ticket| is_it(ticket)).count();
        queue.tickets.retain(|ticket| !is_it(ticket));
        let were_there = queue.tickets.len() < before;
        self.settle(name);
        were_there
    }

    /// Gives up a place, only with the number `seq` unless that is `None`. Returns whether the place was there.
    pub(super) fn leave(&mut self, session: u64, place: &PlaceId, number: Option<u64>) -> bool {
        // A repeated `enter` that arrives later must not bring the place back.
        self.forget_held(session, Some(place.request));
        let is_it = |ticket: &QueueEntry| number.is_none_or(|number| number == ticket.number);
        self.take_out(&place.name, |ticket| ticket.is(session, place.request) && is_it(ticket))
    }

    pub(super) fn lighten(&mut self, name: &Name, number: u64, claim: Claim) -> bool {
        let Some((queue, index)) = self.find(name, |ticket| ticket.number == number) else { return false };
        queue.tickets[index].claim = claim;
        self.settle(name);
        true
    }

    /// Takes one place out, as any client with access to the store might.
    pub(super) fn remove(&mut self, place: &PlaceId) -> bool {
        let found = self.find(&place.name, |ticket| ticket.id == place.request);
        let Some((session, number)) = found.map(|(queue, index)| queue.tickets[index].key()) else { return false };
        let removed = place.clone();
        self.tell(session, move |places| places.receive_removal(removed, number));
        self.take_out(&place.name, |ticket| ticket.number == number)
    }

    /// The session and the number of a grant, if it is there.
    fn holder(&self, grant: &GrantId) -> Option<(u64, u64)> {
        let queue = self.queues.get(&grant.place.name)?;
        let is_it = |ticket: &&QueueEntry| ticket.id == grant.place.request && ticket.grant().token == grant.token;
        queue.tickets.range(..queue.granted).find(is_it).map(QueueEntry::key)
    }

    /// Breaks the grant that `order` names. Returns whether the grant was there, or the same order broke it before.
    pub(super) fn break_grant(&mut self, order: Break) -> bool {
        let Some((session, grant)) = self.holder(&order.grant()) else { return self.breaks.contains(&order) };
        let (place, reason) = (order.place.clone(), Arc::clone(&order.reason));
        self.tell(session, move |places| places.receive_break(Broken { place, grant, reason }));
        self.take_out(&order.place.name, |ticket| ticket.number == grant);
        self.breaks.truncate(BREAKS - 1);
        self.breaks.push_front(order);
        true
    }

    pub(super) fn breaks(&self, name: &Name) -> Vec<Break> {
        self.breaks.iter().rev().filter(|order| order.place.name == *name).cloned().collect()
    }

    /// Writes or deletes the note if the grant of `order` is current. Returns whether the grant was current.
    pub(super) fn write_note(&mut self, order: &NoteOrder) -> bool {
        if self.holder(&order.grant).is_none() {
            return false;
        }
        let name = &order.grant.place.name;
        match order.written_at(self.clock.wall()) {
            Some(note) => self.notes.insert(name.clone(), note),
            None => self.notes.remove(name),
        };
        true
    }

    pub(super) fn note(&mut self, name: &Name) -> NoteRead {
        let now = self.clock.wall();
        self.notes.retain(|_, note| note.expires.is_none_or(|at| at > now));
        NoteRead { note: self.notes.get(name).cloned(), now }
    }

    /// A page of a queue, in as many steps as it has rows.
    pub(super) fn queue(&self, name: &Name, page: Page) -> Queue {
        let empty = StoredQueue::default();
        let queue = self.queues.get(name).unwrap_or(&empty);
        let queued = queue.tickets.len();
        let contenders = page.of(0..queued).map(|index| self.contender(queue, index)).collect();
        Queue { name: name.clone(), contenders, queued, foreign_locks: Vec::new(), strangers: Vec::new(), closed: None }
    }

    fn contender(&self, queue: &StoredQueue, index: usize) -> Contender {
        let ticket = &queue.tickets[index];
        Contender {
            owner: self.sessions.get(&ticket.session).map(|record| record.owner.clone()),
            grant: (index < queue.granted).then(|| ticket.grant()),
            since: Some(ticket.since),
            purpose: ticket.purpose.clone(),
            ..Contender::new(ticket.id, ticket.claim)
        }
    }

    pub(super) fn names(&self, prefix: &str) -> Vec<Name> {
        self.queues.keys().filter(|name| name.as_str().starts_with(prefix)).cloned().collect()
    }

    /// Sessions, names that are queued for, and places in all.
    pub(super) fn count(&self) -> (usize, usize, usize) {
        let places = self.queues.values().map(|queue| queue.tickets.len()).sum();
        (self.sessions.len(), self.queues.len(), places)
    }

    /// Sets a trap for a request. Returns the trap's number.
    pub(super) fn set_trap(&mut self) -> u64 {
        self.last_id += 1;
        self.held.push(HeldRequest { trap: self.last_id, tag: None, effect: None });
        self.last_id
    }

    /// The trap catches a request, if the trap is still there.
    pub(super) fn catch(&mut self, trap: u64, tag: Tag, effect: Effect) {
        if let Some(held) = self.held.iter_mut().find(|held| held.trap == trap) {
            (held.tag, held.effect) = (tag, Some(effect));
        }
    }

    /// Whether a trap waits for a request.
    pub(super) fn is_open(&self, trap: u64) -> bool {
        self.held.iter().any(|held| held.trap == trap && held.effect.is_none())
    }

    pub(super) fn take_trap(&mut self, trap: u64) -> Option<Effect> {
        let index = self.held.iter().position(|held| held.trap == trap)?;
        self.held.remove(index).effect
    }

    /// Cancels the held-back requests of a session, or the request of one place.
    fn forget_held(&mut self, session: u64, id: Option<RequestId>) {
        let is_it = |(of, request): (u64, Option<RequestId>)| of == session && (id.is_none() || request == id);
        self.held.retain(|held| !held.tag.is_some_and(is_it));
    }
}

impl StoredQueue {
    fn claims(&self) -> impl DoubleEndedIterator<Item = Claim> {
        self.tickets.iter().map(|ticket| ticket.claim)
    }

    /// The reply to the request of the place at `index`.
    fn entered(&self, index: usize) -> Enter {
        let seq = self.tickets[index].number;
        match index < self.granted {
            true => Enter::Granted(seq),
            false => Enter::Waiting { seq, ahead: Some(Ahead::of(index, self.granted)), look_in: None },
        }
    }
}

impl QueueEntry {
    fn is(&self, session: u64, id: RequestId) -> bool {
        self.session == session && self.id == id
    }

    fn key(&self) -> (u64, u64) {
        (self.session, self.number)
    }

    fn grant(&self) -> Grant {
        Grant::new(FencingToken::new(self.number))
    }
}
