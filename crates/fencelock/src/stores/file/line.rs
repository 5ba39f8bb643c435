//! What this process knows of one queue: a superset of the contenders ahead of its own places.
//!
//! Arrivals are known exactly, because every listing is made under the bucket's lock; departures may be noticed late,
//! which only makes a waiter wait. Who waits for a contender's departure stands beside that contender.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use super::ticket::{Key, Ticket};
use super::watch::Rung;
use crate::kit::bell::Bell;
use crate::queue::view::{granted_of, judge};
use crate::queue::{Admission, Claim};
use crate::store::{Ahead, Grant, Standing};
use crate::token::FencingToken;

/// One contender, and who wants to hear of it.
#[derive(Debug)]
pub(super) struct KnownContender {
    pub(super) ticket: Ticket,
    /// Whether it belongs to a session of this process, whose departures are told in memory.
    pub(super) local: bool,
    /// In which renewal of its session its ticket was looked at last, 0 for none.
    pub(super) looked_at: u32,
    listeners: Vec<Arc<Bell>>,
}

impl KnownContender {
    pub(super) fn new(ticket: Ticket, local: bool) -> Self {
        Self { ticket, local, looked_at: 0, listeners: Vec::new() }
    }

    /// Rings `bell` once this contender departs (and, unless its claim is whole, when it is granted). A bell that `is_new` is not
    /// looked for among thousands.
    pub(super) fn tell(&mut self, bell: &Arc<Bell>, is_new: bool) {
        if is_new || !self.listeners.iter().any(|known| Arc::ptr_eq(known, bell)) {
            // Of a mutex, one waiter listens to each contender.
            self.listeners.reserve_exact(1);
            self.listeners.push(Arc::clone(bell));
        }
    }

    pub(super) fn forget(&mut self, bell: &Arc<Bell>) {
        if let Some(at) = self.listeners.iter().position(|known| Arc::ptr_eq(known, bell)) {
            self.listeners.swap_remove(at);
        }
    }

    /// How many listen, for tests: nobody may stay here who has stopped waiting.
    #[cfg(test)]
    pub(super) fn listeners(&self) -> usize {
        self.listeners.len()
    }

    /// Hands its listeners over to be rung.
    pub(super) fn ring(&mut self, rung: &mut Rung) {
        rung.extend(self.listeners.drain(..).map(Waker::from));
    }
}

/// Up to how many contenders a request is looked for one by one.
const FEW: usize = 16;

/// One queue, in its order.
#[derive(Debug, Default)]
pub(super) struct KnownQueue {
    known: VecDeque<KnownContender>,
    /// The keys by session and number of the request, once there are more than a [`FEW`] contenders; else empty.
    by_request: HashMap<(u64, u64), Key>,
    /// The writer that was looked for last, and how far it is known to have nobody but readers behind it.
    writer: Option<Box<(Ticket, Key)>>,
}

impl KnownQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(super) fn has_local(&self) -> bool {
        self.known.iter().any(|known| known.local)
    }

    /// The places that are known, whatever their tickets weigh.
    pub(super) fn places(&self) -> HashSet<Key> {
        self.known.iter().map(|known| known.ticket.key).collect()
    }

    /// Takes over a listing that is exact about arrivals. A contender that is not in it has departed.
    pub(super) fn replace(&mut self, mut listed: Vec<KnownContender>, rung: &mut Rung) {
        listed.sort_unstable_by_key(|known| order(&known.ticket));
        let mut old = std::mem::take(&mut self.known).into_iter().peekable();
        for known in &mut listed {
            while let Some(mut gone) = old.next_if(|gone| order(&gone.ticket) < order(&known.ticket)) {
                gone.ring(rung);
            }
            if let Some(same) = old.next_if(|same| same.ticket == known.ticket) {
                known.listeners = same.listeners;
            }
        }
        old.for_each(|mut gone| gone.ring(rung));
        self.known = listed.into();
        self.writer = None;
        self.index_all();
    }

    /// Makes the index anew for as many as there are now.
    fn index_all(&mut self) {
        self.by_request = HashMap::new();
        if self.known.len() > FEW {
            self.by_request = self.known.iter().map(|known| (known.ticket.request(), known.ticket.key)).collect();
        }
    }

    /// Adds one contender.
    pub(super) fn insert(&mut self, known: KnownContender) {
        let at = self.known.partition_point(|other| order(&other.ticket) < order(&known.ticket));
        if self.known.get(at).is_none_or(|other| other.ticket != known.ticket) {
            if self.known.is_empty() {
                // Most queues are one holder; room for more is made when they come.
                self.known.reserve_exact(1);
            }
            let ticket = known.ticket;
            self.known.insert(at, known);
            if self.known.len() == FEW + 1 {
                self.index_all();
            } else if self.known.len() > FEW {
                self.by_request.insert(ticket.request(), ticket.key);
            }
        }
    }

    /// Removes one ticket and tells its waiters.
    pub(super) fn depart(&mut self, ticket: &Ticket, rung: &mut Rung) -> bool {
        let Some(mut gone) = self.index(ticket).and_then(|at| self.known.remove(at)) else {
            return false;
        };
        gone.ring(rung);
        if self.known.len() == FEW {
            self.by_request = HashMap::new();
        } else if !self.by_request.is_empty() && self.lightest(ticket.key).is_none() {
            self.by_request.remove(&ticket.request());
        }
        true
    }

    pub(super) fn get_mut(&mut self, ticket: &Ticket) -> Option<&mut KnownContender> {
        self.index(ticket).and_then(|at| self.known.get_mut(at))
    }

    pub(super) fn has(&self, ticket: &Ticket) -> bool {
        self.index(ticket).is_some()
    }

    /// The ticket of one request, the lightest if it was replaced just now.
    pub(super) fn find(&self, session: u64, number: u64) -> Option<Ticket> {
        if self.known.len() > FEW {
            return self.lightest(*self.by_request.get(&(session, number))?);
        }
        let is_it = |ticket: &Ticket| ticket.request() == (session, number);
        self.known.iter().map(|known| known.ticket).rfind(is_it)
    }

    /// The ticket of one place, the lighter of two.
    fn lightest(&self, key: Key) -> Option<Ticket> {
        let end = self.known.partition_point(|known| known.ticket.key <= key);
        let last = self.known.get(end.checked_sub(1)?)?.ticket;
        (last.key == key).then_some(last)
    }

    /// One ticket for each place, front first: of two the lighter.
    pub(super) fn tickets(&self) -> impl Iterator<Item = Ticket> {
        let next = self.known.iter().skip(1).map(Some).chain([None]);
        let is_last = |(known, next): &(&KnownContender, Option<&KnownContender>)| {
            next.is_none_or(|next| next.ticket.key != known.ticket.key)
        };
        self.known.iter().zip(next).filter(is_last).map(|(known, _)| known.ticket)
    }

    /// The place at the front.
    pub(super) fn head(&self) -> Option<Ticket> {
        self.tickets().next()
    }

    /// How many places at the front are granted.
    pub(super) fn granted(&self) -> usize {
        granted_of(self.tickets().map(|ticket| ticket.claim))
    }

    /// Where the contender of `key` stands, 1 for the front.
    pub(super) fn position(&self, key: Key) -> usize {
        self.ahead(key).len() + 1
    }

    /// Everybody with a smaller number than `key`, front first.
    pub(super) fn ahead(
        &self,
        key: Key,
    ) -> impl DoubleEndedIterator<Item = &KnownContender> + ExactSizeIterator + Clone {
        let end = self.known.partition_point(|known| known.ticket.key < key);
        self.known.range(..end)
    }

    /// The nearest reader of this process ahead of `key` with nobody but readers in between. While the reader of `key` waits
    /// behind a writer, that one waits behind the same writer.
    pub(super) fn our_reader_ahead(&self, key: Key) -> Option<Ticket> {
        let readers = self.ahead(key).rev().take_while(|known| known.ticket.claim.is_reader());
        readers.filter(|known| known.local).map(|known| known.ticket).next()
    }

    /// The nearest one ahead of the reader of `key` that is no reader. Those who join one after the other find it in a few steps.
    pub(super) fn writer_ahead(&mut self, key: Key) -> Option<&mut KnownContender> {
        let known = self.writer.as_deref().copied().filter(|(writer, _)| writer.key < key && self.has(writer));
        let upto = known.map(|(_, upto)| upto);
        let unknown = self.ahead(key).rev().take_while(|other| upto.is_none_or(|upto| other.ticket.key > upto));
        let nearer = unknown.map(|other| other.ticket).find(|ticket| !ticket.claim.is_reader());
        let (writer, upto) = match (nearer, known) {
            (Some(nearer), _) => (nearer, key),
            (None, Some((writer, upto))) => (writer, upto.max(key)),
            (None, None) => return None,
        };
        self.writer = Some(Box::new((writer, upto)));
        self.get_mut(&writer)
    }

    /// Whether a waiter for `claim` at the tail is right behind a place of this process that keeps it waiting whatever others do:
    /// one that waits as well, or anyone if the claim is whole.
    pub(super) fn ends_with_ours(&self, claim: Claim) -> bool {
        let Some(last) = self.known.back().filter(|last| last.local) else { return false };
        let waits_alike = claim.is_reader() && last.ticket.claim.is_reader();
        claim.is_whole() || waits_alike || !self.is_granted(&last.ticket)
    }

    /// How many are ahead of `key`, counted from the first who is still there. Those in front are taken to leave first,
    /// so that few are asked for: a hint, on which no grant may rest.
    pub(super) fn still_ahead(&self, key: Key, mut is_there: impl FnMut(&KnownContender) -> bool) -> usize {
        let end = self.known.partition_point(|known| known.ticket.key < key);
        let (mut first, mut last) = (0, end);
        while first < last {
            let middle = first.midpoint(last);
            if is_there(&self.known[middle]) { last = middle } else { first = middle + 1 }
        }
        end - first
    }

    /// Everybody, front first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &KnownContender> {
        self.known.iter()
    }

    /// Who may keep `claim` out at the tail: those of another capacity, who do whatever they hold, before the others.
    pub(super) fn in_the_way(&self, claim: Claim) -> impl Iterator<Item = &KnownContender> {
        let differs = move |known: &&KnownContender| known.ticket.claim.capacity() != claim.capacity();
        self.known.iter().filter(differs).chain(self.known.iter().filter(move |known| !differs(known)))
    }

    /// Removes what other processes' sessions have here, in one pass, and tells the waiters; front first.
    pub(super) fn depart_sessions(&mut self, sessions: &HashSet<u64>, rung: &mut Rung) -> Vec<Ticket> {
        let mut gone = Vec::new();
        if !sessions.is_empty() {
            self.known.retain_mut(|known| {
                let stays = known.local || !sessions.contains(&known.ticket.key.session);
                if !stays {
                    known.ring(rung);
                    gone.push(known.ticket);
                }
                stays
            });
            self.index_all();
        }
        gone
    }

    /// Removes what other processes have ahead of `key`, and tells its waiters.
    pub(super) fn depart_ahead(&mut self, key: Key, rung: &mut Rung) {
        let end = self.known.partition_point(|known| known.ticket.key < key);
        let mut ahead: Vec<KnownContender> = self.known.drain(..end).collect();
        for known in ahead.iter_mut().filter(|known| !known.local) {
            known.ring(rung);
        }
        for known in ahead.into_iter().rev().filter(|known| known.local) {
            self.known.push_front(known);
        }
        self.index_all();
    }

    /// What the rule says about `claim` at the place `key`. Costs one step for a whole claim.
    pub(super) fn judge(&self, key: Key, claim: Claim) -> Admission {
        if claim.is_whole()
            && let Some(nearest) = self.ahead(key).next_back()
            && nearest.ticket.claim.capacity() == claim.capacity()
        {
            return Admission::Wait;
        }
        judge(self.ahead(key).map(|known| known.ticket.claim), claim)
    }

    /// Where the contender of `ticket` stands, by what is known.
    pub(super) fn standing(&self, ticket: &Ticket) -> Standing {
        match self.judge(ticket.key, ticket.claim) {
            Admission::Admitted => Standing::Granted(Grant::new(FencingToken::new(ticket.key.seq))),
            Admission::Wait | Admission::Conflict(_) => Standing::Waiting(Some(self.count_ahead(ticket))),
        }
    }

    pub(super) fn is_granted(&self, ticket: &Ticket) -> bool {
        self.judge(ticket.key, ticket.claim) == Admission::Admitted
    }

    /// How many ahead of `ticket` wait as well.
    pub(super) fn waiters_ahead(&self, ticket: &Ticket) -> usize {
        usize::try_from(self.count_ahead(ticket).waiters).unwrap_or(usize::MAX)
    }

    fn count_ahead(&self, ticket: &Ticket) -> Ahead {
        let ahead = self.ahead(ticket.key);
        Ahead::of(ahead.len(), granted_of(ahead.map(|known| known.ticket.claim)))
    }

    /// Takes the places of one session for those of another process, and tells those that wait for them to look.
    pub(super) fn disown(&mut self, session: u64, rung: &mut Rung) {
        for known in self.known.iter_mut().filter(|known| known.ticket.key.session == session) {
            known.local = false;
            known.ring(rung);
        }
    }

    fn index(&self, ticket: &Ticket) -> Option<usize> {
        self.known.binary_search_by_key(&order(ticket), |known| order(&known.ticket)).ok()
    }
}

/// The order of the queue; of two tickets of one place the lighter comes later.
fn order(ticket: &Ticket) -> (Key, std::cmp::Reverse<Claim>) {
    (ticket.key, std::cmp::Reverse(ticket.claim))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(seq: u64, claim: Claim) -> Ticket {
        Ticket { key: Key { seq, session: 1, number: seq }, claim }
    }

    fn line(seqs: &[u64]) -> KnownQueue {
        let mut line = KnownQueue::default();
        for &seq in seqs {
            line.insert(KnownContender::new(ticket(seq, Claim::MUTEX), false));
        }
        line
    }

    fn seqs(line: &KnownQueue) -> Vec<u64> {
        line.iter().map(|known| known.ticket.key.seq).collect()
    }

    #[test]
    fn a_listing_tells_those_who_wait_for_a_contender_that_is_not_in_it() {
        let mut line = line(&[3, 1, 2]);
        assert_eq!(seqs(&line), [1, 2, 3]);
        let bells = [Bell::new(), Bell::new(), Bell::new()];
        for seq in 1..=3u64 {
            line.get_mut(&ticket(seq, Claim::MUTEX)).unwrap().tell(&bells[seq as usize - 1], false);
        }
        let listed = [4, 2].map(|seq| KnownContender::new(ticket(seq, Claim::MUTEX), false));
        let mut rung = Rung::new();
        line.replace(listed.into_iter().collect(), &mut rung);
        assert_eq!(seqs(&line), [2, 4]);
        let are_rung = |rung: &mut Rung| {
            rung.drain(..).for_each(Waker::wake);
            bells.each_ref().map(|bell| bell.take())
        };
        assert_eq!(are_rung(&mut rung), [true, false, true]);
        assert!(line.depart(&ticket(2, Claim::MUTEX), &mut rung) && !line.depart(&ticket(2, Claim::MUTEX), &mut rung));
        assert_eq!(are_rung(&mut rung), [false, true, false]);
    }

    #[test]
    fn requests_are_found_in_queues_of_any_length() {
        let mut line = KnownQueue::default();
        for length in 1..=3 * FEW as u64 {
            line.insert(KnownContender::new(ticket(length, Claim::WRITER), true));
            assert!((1..=length).all(|number| line.find(1, number).is_some_and(|found| found.key.seq == number)));
            assert_eq!(line.find(2, 1), None);
        }
        line.insert(KnownContender::new(ticket(7, Claim::READER), true));
        assert_eq!(line.find(1, 7).unwrap().claim, Claim::READER);
        let mut rung = Rung::new();
        assert!(line.depart(&ticket(7, Claim::WRITER), &mut rung));
        assert_eq!(line.find(1, 7).unwrap().claim, Claim::READER);
        assert!(line.depart(&ticket(7, Claim::READER), &mut rung));
        for number in (1..=3 * FEW as u64).rev().filter(|number| *number != 7) {
            assert!(line.find(1, number).is_some() && line.find(1, 7).is_none());
            assert!(line.depart(&ticket(number, Claim::WRITER), &mut rung));
            assert_eq!(line.find(1, number), None);
        }
        line.replace((1..=40).map(|seq| KnownContender::new(ticket(seq, Claim::MUTEX), true)).collect(), &mut rung);
        assert_eq!(line.find(1, 33).map(|found| line.position(found.key)), Some(33));
    }

    #[test]
    fn only_those_ahead_count() {
        let line = line(&[1, 2, 3]);
        assert_eq!(line.judge(ticket(1, Claim::MUTEX).key, Claim::MUTEX), Admission::Admitted);
        assert_eq!(line.judge(ticket(2, Claim::MUTEX).key, Claim::MUTEX), Admission::Wait);
        assert_eq!(line.judge(ticket(4, Claim::READER).key, Claim::READER), Admission::Conflict(Claim::MUTEX));
        assert_eq!(line.ahead(ticket(3, Claim::MUTEX).key).len(), 2);
        assert_eq!((line.granted(), line.tickets().count()), (1, 3));
    }

    #[test]
    fn of_two_tickets_of_one_place_the_lighter_is_found() {
        let mut line = KnownQueue::default();
        line.insert(KnownContender::new(ticket(1, Claim::READER), true));
        line.insert(KnownContender::new(ticket(1, Claim::WRITER), true));
        assert_eq!(line.find(1, 1).unwrap().claim, Claim::READER);
        line.insert(KnownContender::new(ticket(2, Claim::READER), true));
        line.insert(KnownContender::new(ticket(3, Claim::WRITER), true));
        assert_eq!((line.granted(), line.tickets().count()), (2, 3));
    }
}
