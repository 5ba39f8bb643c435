//! This process's view of one queue: a superset of the contenders ahead of its own places.
//!
//! Arrivals are known exactly, because every listing is made under the bucket's lock; departures may be noticed late, which only makes a
//! waiter wait. The waiters for a contender's departure are kept with that contender.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::task::Waker;

use super::ticket::{Key, Ticket};
use super::watch::Rung;
use crate::kit::bell::Bell;
use crate::queue::view::{granted_of, judge};
use crate::queue::{Admission, Claim};
use crate::store::{Ahead, Grant, Standing};
use crate::token::FencingToken;

/// A contender, and the waiters for its departure.
#[derive(Debug)]
pub(super) struct KnownContender {
    pub(super) ticket: Ticket,
    /// Whether the contender belongs to a session of this process, whose departures are signalled in memory.
    pub(super) local: bool,
    listeners: Vec<Weak<Bell>>,
}

impl KnownContender {
    pub(super) fn new(ticket: Ticket, local: bool) -> Self {
        Self { ticket, local, listeners: Vec::new() }
    }

    /// Rings `bell` once this contender departs (and, unless its claim is whole, when it is granted).
    pub(super) fn tell(&mut self, bell: &Arc<Bell>) {
        self.listeners.retain(|known| known.strong_count() > 0 && known.as_ptr() != Arc::as_ptr(bell));
        self.listeners.push(Arc::downgrade(bell));
    }

    /// The number of listeners, for tests: entries of past waiters must not accumulate.
    #[cfg(test)]
    pub(super) fn listeners(&self) -> usize {
        self.listeners.len()
    }

    /// Returns its listeners, for the caller to ring.
    pub(super) fn ring(&mut self, rung: &mut Rung) {
        rung.extend(self.listeners.drain(..).filter_map(|bell| bell.upgrade()).map(Waker::from));
    }
}

/// A queue, in its order.
#[derive(Debug, Default)]
pub(super) struct KnownQueue(VecDeque<KnownContender>);

impl KnownQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes over a listing that is exact about arrivals. A contender that is not in it has departed.
    pub(super) fn replace(&mut self, mut listed: Vec<KnownContender>, rung: &mut Rung) {
        listed.sort_unstable_by_key(|known| order(&known.ticket));
        let mut old = std::mem::take(&mut self.0).into_iter().peekable();
        for known in &mut listed {
            while let Some(mut gone) = old.next_if(|gone| order(&gone.ticket) < order(&known.ticket)) {
                gone.ring(rung);
            }
            if let Some(same) = old.next_if(|same| same.ticket == known.ticket) {
                known.listeners = same.listeners;
            }
        }
        old.for_each(|mut gone| gone.ring(rung));
        self.0 = listed.into();
    }

    /// Adds one contender.
    pub(super) fn insert(&mut self, known: KnownContender) {
        let at = self.0.partition_point(|other| order(&other.ticket) < order(&known.ticket));
        if self.0.get(at).is_none_or(|other| other.ticket != known.ticket) {
            if self.0.is_empty() {
                // Most queues are a single holder; other contenders get their room when they arrive.
                self.0.reserve_exact(1);
            }
            self.0.insert(at, known);
        }
    }

    /// Removes one ticket and notifies its waiters.
    pub(super) fn depart(&mut self, ticket: &Ticket, rung: &mut Rung) -> bool {
        let Some(mut gone) = self.index(ticket).and_then(|at| self.0.remove(at)) else { return false };
        gone.ring(rung);
        true
    }

    pub(super) fn get_mut(&mut self, ticket: &Ticket) -> Option<&mut KnownContender> {
        self.index(ticket).and_then(|at| self.0.get_mut(at))
    }

    pub(super) fn has(&self, ticket: &Ticket) -> bool {
        self.index(ticket).is_some()
    }

    /// The ticket of one request, the lightest if it was replaced just now.
    pub(super) fn find(&self, session: u64, number: u64) -> Option<Ticket> {
        self.0
            .iter()
            .map(|known| known.ticket)
            .rfind(|ticket| (ticket.key.session, ticket.key.number) == (session, number))
    }

    /// The ticket of one place, the lighter of two.
    pub(super) fn lightest(&self, key: Key) -> Option<Ticket> {
        let end = self.0.partition_point(|known| known.ticket.key <= key);
        let last = self.0.get(end.checked_sub(1)?)?.ticket;
        (last.key == key).then_some(last)
    }

    /// The ticket of each place, front first: of two the lighter.
    pub(super) fn tickets(&self) -> impl Iterator<Item = Ticket> {
        let next = self.0.iter().skip(1).map(Some).chain([None]);
        let is_last = |(known, next): &(&KnownContender, Option<&KnownContender>)| {
            next.is_none_or(|next| next.ticket.key != known.ticket.key)
        };
        self.0.iter().zip(next).filter(is_last).map(|(known, _)| known.ticket)
    }

    /// How many places at the front are granted.
    pub(super) fn granted(&self) -> usize {
        granted_of(self.tickets().map(|ticket| ticket.claim))
    }

    /// Every contender with a smaller number than `key`, front first.
    pub(super) fn ahead(
        &self,
        key: Key,
    ) -> impl DoubleEndedIterator<Item = &KnownContender> + ExactSizeIterator + Clone {
        let end = self.0.partition_point(|known| known.ticket.key < key);
        self.0.range(..end)
    }

    /// Every contender, front first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &KnownContender> {
        self.0.iter()
    }

    /// Removes other processes' sessions from the queue, in one pass, and notifies the waiters; front first.
    pub(super) fn depart_sessions(&mut self, sessions: &HashSet<u64>, rung: &mut Rung) -> Vec<Ticket> {
        let mut gone = Vec::new();
        if !sessions.is_empty() {
            self.0.retain_mut(|known| {
                let stays = known.local || !sessions.contains(&known.ticket.key.session);
                if !stays {
                    known.ring(rung);
                    gone.push(known.ticket);
                }
                stays
            });
        }
        gone
    }

    /// The rule's verdict on `claim` at the place `key`. Costs one step for a whole claim.
    pub(super) fn judge(&self, key: Key, claim: Claim) -> Admission {
        if claim.is_whole()
            && let Some(nearest) = self.ahead(key).next_back()
            && nearest.ticket.claim.capacity() == claim.capacity()
        {
            return Admission::Wait;
        }
        judge(self.ahead(key).map(|known| known.ticket.claim), claim)
    }

    /// The known standing of the contender with `ticket`.
    pub(super) fn standing(&self, ticket: &Ticket) -> Standing {
        match self.judge(ticket.key, ticket.claim) {
            Admission::Admitted => Standing::Granted(Grant::new(FencingToken::new(ticket.key.seq))),
            Admission::Wait | Admission::Conflict(_) => {
                let ahead = self.ahead(ticket.key);
                Standing::Waiting(Some(Ahead::of(ahead.len(), granted_of(ahead.map(|known| known.ticket.claim)))))
            }
        }
    }

    /// Treats the places of one session as another process's, and makes their waiters look.
    pub(super) fn disown(&mut self, session: u64, rung: &mut Rung) {
        for known in self.0.iter_mut().filter(|known| known.ticket.key.session == session) {
            known.local = false;
            known.ring(rung);
        }
    }

    fn index(&self, ticket: &Ticket) -> Option<usize> {
        self.0.binary_search_by_key(&order(ticket), |known| order(&known.ticket)).ok()
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
    fn a_listing_notifies_the_waiters_of_a_contender_that_is_not_in_it() {
        let mut line = line(&[3, 1, 2]);
        assert_eq!(seqs(&line), [1, 2, 3]);
        let bells = [Bell::new(), Bell::new(), Bell::new()];
        for seq in 1..=3u64 {
            line.get_mut(&ticket(seq, Claim::MUTEX)).unwrap().tell(&bells[seq as usize - 1]);
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
