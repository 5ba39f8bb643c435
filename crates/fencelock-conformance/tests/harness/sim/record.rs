//! The record of a run: every section with its moments, the fenced resources, and a trace that two runs of one seed share.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fencelock::inspect::Claim;
use fencelock::memory::VirtualClock;
use fencelock::time::Clock as _;
use fencelock::{AnyGuard, GuardState, Loss, WriteGuard};
use fencelock_lab::history::{Answer, Enqueue, History, Lapse, Section, Write};

use super::crew::Place;
use super::hosts::Orders;

/// A granted guard.
pub(crate) enum Held {
    Writer(WriteGuard),
    Other(AnyGuard),
}

impl Held {
    fn state(&self) -> GuardState {
        match self {
            Self::Writer(guard) => guard.state(),
            Self::Other(guard) => guard.state(),
        }
    }

    /// Whether the holder believes in its lock if it looks now.
    pub(crate) fn is_believed(&self) -> bool {
        matches!(self.state(), GuardState::Held | GuardState::Suspect)
    }

    pub(crate) fn token(&self) -> Option<i64> {
        let token = match self {
            Self::Writer(guard) => guard.token(),
            Self::Other(guard) => guard.token(),
        };
        token.map(fencelock::FencingToken::to_i64)
    }
}

/// A resource that compares tokens.
#[derive(Default)]
struct Fence {
    newest: i64,
    /// When the lock of the newest accepted write was granted.
    granted: u64,
}

pub(crate) struct Record {
    clock: VirtualClock,
    orders: Arc<Orders>,
    pub(crate) history: History,
    /// The newest moment. No two events have the same.
    last: u64,
    inside: BTreeMap<usize, Weak<Held>>,
    fences: BTreeMap<u32, Fence>,
    /// The newest grant of each lock and client: its token, and when its place was taken.
    grants: BTreeMap<(u32, u32), (Option<i64>, Enqueue)>,
    /// The tokens of the grants that a fault took.
    pub(crate) taken: BTreeSet<i64>,
    pub(crate) trace: String,
    pub(crate) failures: Vec<String>,
    /// The faults that took effect.
    pub(crate) faults: u64,
}

impl Record {
    pub(crate) fn new(clock: VirtualClock, orders: Arc<Orders>) -> Self {
        Self {
            clock,
            orders,
            history: History::default(),
            last: 0,
            inside: BTreeMap::new(),
            fences: BTreeMap::new(),
            grants: BTreeMap::new(),
            taken: BTreeSet::new(),
            trace: String::new(),
            failures: Vec::new(),
            faults: 0,
        }
    }

    /// A moment after all other moments, on the virtual clock. A run has few events a nanosecond.
    pub(crate) fn now(&mut self) -> u64 {
        self.last = self.clock.now().as_nanos().max(self.last + 1);
        self.last
    }

    /// Writes a line of the trace, with the number of polls so far.
    pub(crate) fn note(&mut self, line: &str) -> u64 {
        let (at, polls) = (self.now(), self.orders.polls.load(Ordering::Relaxed));
        let _ = writeln!(self.trace, "{at} {polls} {line}");
        at
    }

    pub(crate) fn fault(&mut self, line: &str) {
        self.faults += 1;
        self.note(line);
    }

    pub(crate) fn fail(&mut self, failure: String) {
        self.note(&failure);
        self.failures.push(failure);
    }

    fn note_of(&mut self, section: usize, line: &str) -> u64 {
        self.note(&format!("section {section} {line}"))
    }

    pub(crate) fn called(&mut self, client: u32, name: &str, claim: Claim) -> usize {
        let section = self.history.sections.len();
        let at = self.note_of(section, &format!("of {client} asks for {name}, {claim}"));
        let lock = self.history.lock(name);
        self.history.sections.push(Section::called(lock, client, claim, at));
        section
    }

    pub(crate) fn busy(&mut self, section: usize, is_gone: bool) {
        let at = self.note_of(section, "is refused");
        self.history.sections[section].answer = Answer::Busy { at };
        self.history.sections[section].gone = is_gone.then_some(at);
    }

    pub(crate) fn gave_up(&mut self, section: usize, why: &str) {
        let at = self.note_of(section, &format!("gives up: {why}"));
        self.history.sections[section].answer = Answer::GaveUp { at };
    }

    /// Notes a grant, and looks at every other guard: its holder may believe in it at this moment, or not.
    ///
    /// The sections of one client under one grant of a sticky lock share its place, and its token, which the first of them has. The client
    /// keeps no lock for the next section that may be lost.
    pub(crate) fn granted(&mut self, section: usize, held: &Arc<Held>, place: Place<'_>) {
        let token = held.token();
        let at = self.note_of(section, &format!("is granted with {token:?}"));
        let its = &mut self.history.sections[section];
        (its.answer, its.enqueue) = (Answer::Granted { at, token }, place.enqueue);
        let (key, first) = ((its.lock, its.client), (token, its.enqueued()));
        let is_kept = match self.grants.get(&key) {
            Some((known, enqueue)) if *known == token && place.lock.is_sticky() => {
                (its.answer, its.enqueue) = (Answer::Granted { at, token: None }, Some(*enqueue));
                true
            }
            _ => {
                self.grants.insert(key, first);
                false
            }
        };
        // A grant that ended before its client noticed it has no core.
        its.belief_end = (!held.is_believed()).then_some(at - 1);
        if is_kept && held.state() != GuardState::Held {
            self.fail(format!("section {section} has a kept lock that may be lost"));
        }
        let looked = self.now();
        for (other, guard) in &self.inside {
            if guard.upgrade().is_some_and(|guard| guard.is_believed()) {
                self.history.sections[*other].seen_inside = looked;
            }
        }
        self.inside.insert(section, Arc::downgrade(held));
    }

    /// The holder writes to the resource that its lock protects.
    pub(crate) fn writes(&mut self, section: usize, held: &Held) {
        let Section { lock, claim, answer: Answer::Granted { at, .. }, .. } = self.history.sections[section] else {
            return;
        };
        // Only exclusive grants are ordered by their tokens.
        let Some(token) = held.token().filter(|_| claim.is_whole()) else { return };
        let fence = self.fences.entry(lock).or_default();
        let (accepted, is_late) = (token >= fence.newest, at < fence.granted);
        if accepted {
            *fence = Fence { newest: token, granted: at.max(fence.granted) };
        }
        self.history.writes.push(Write { lock, token, accepted });
        self.note_of(section, &format!("writes, accepted: {accepted}"));
        if accepted && is_late {
            self.fail(format!("the late write of section {section} was accepted"));
        }
        if !accepted && !is_late && held.is_believed() && self.history.lapses.is_empty() {
            self.fail(format!("the write of the holder in section {section} was refused"));
        }
    }

    /// Whether the holder believes in its lock. Only the message of a fault ends a single grant.
    fn believes(&mut self, section: usize, held: &Held) -> bool {
        if let GuardState::Lost(loss @ (Loss::Broken | Loss::Removed)) = held.state()
            && !held.token().is_some_and(|token| self.taken.contains(&token))
        {
            self.fail(format!("section {section} lost a grant that no fault took: {loss}"));
        }
        held.is_believed()
    }

    /// The holder looks at its guard.
    pub(crate) fn looks(&mut self, section: usize, held: &Held) {
        let believes = self.believes(section, held);
        let at = self.note_of(section, &format!("believes: {believes}"));
        if believes {
            self.history.sections[section].seen_inside = at;
        }
    }

    /// The section ends; returns whether it still believed in its lock.
    pub(crate) fn leaves(&mut self, section: usize, held: &Held) -> bool {
        let believes = self.believes(section, held);
        let at = self.note_of(section, &format!("leaves, believes: {believes}"));
        self.inside.remove(&section);
        let its = &mut self.history.sections[section];
        match (believes, its.answer) {
            (true, _) => its.released = Some(at),
            (false, Answer::Granted { at: start, .. }) => {
                its.belief_end = its.belief_end.or(Some(its.seen_inside.max(start)));
            }
            _ => {}
        }
        believes
    }

    pub(crate) fn gone(&mut self, section: usize) {
        self.history.sections[section].gone = Some(self.note_of(section, "is gone"));
    }

    /// Leases end early from now on; their holders notice that within `time`. Returns the beginning of the lapse, which no other lapse has.
    pub(crate) fn lapse(&mut self, line: &str, time: Duration) -> u64 {
        self.fault(line);
        let (from, until) = (self.now(), self.clock.now().after(time).as_nanos());
        self.history.lapses.push(Lapse { from, over: from, by: until, believed_until: until });
        from
    }
}
