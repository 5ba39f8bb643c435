//! The scripts against the rule: random queues, the same answers always.

use std::collections::BTreeMap;

use super::super::*;
use super::bed::{Bed, Dice, LONG};
use crate::queue::{Admission, admits, granted};

/// A place, as it must be.
#[derive(Debug, Clone)]
struct Known {
    id: RequestId,
    session: u64,
    claim: Claim,
    seq: u64,
    granted: bool,
}

/// A queue by the rule, and the server that has to agree.
struct Trial<'a> {
    bed: &'a mut Bed,
    layout: KeySpace,
    name: Name,
    sessions: Vec<u64>,
    line: Vec<Known>,
    /// Places that are gone.
    past: Vec<Known>,
    steps: Vec<String>,
    last: u64,
    capacity: u32,
}

/// The places that a step granted, by session.
type Expected = BTreeMap<u64, Vec<(RequestId, u64)>>;

impl Trial<'_> {
    /// Grants the places that the rule admits. Returns the new grants.
    fn settle(&mut self) -> Expected {
        let claims: Vec<Claim> = self.line.iter().map(|known| known.claim).collect();
        let admitted = granted(&claims);
        let mut expected = Expected::new();
        for (position, known) in self.line.iter_mut().enumerate() {
            assert!(!known.granted || position < admitted, "the rule itself took a grant away");
            if position < admitted && !known.granted {
                known.granted = true;
                expected.entry(known.session).or_default().push((known.id, known.seq));
            }
        }
        expected
    }

    /// Compares the server's state with the rule's.
    fn compare(&mut self, expected: Expected) {
        let received = self.bed.received();
        let steps = self.steps.join("\n");
        let mut news = Expected::new();
        for (session, items) in received {
            let items = items.into_iter().filter_map(|item| match item {
                News::Granted(place, seq) => Some((place.request, seq)),
                News::Broken(..) | News::WaitedFor(..) => None,
            });
            let items: Vec<_> = items.collect();
            if !items.is_empty() {
                assert!(news.insert(session, items).is_none(), "two messages for one session\n{steps}");
            }
        }
        assert_eq!(news, expected, "who is told\n{steps}");
        let (fields, order) = self.bed.raw(&self.name);
        for known in &self.line {
            let record = fields.get(self.name.as_str());
            let alone = record.and_then(|record| record.strip_prefix(&format!("{} ", known.id)));
            let text = match alone {
                Some(text) => text,
                None => &*fields[&format!("{}\n{}", self.name, known.id)],
            };
            let letter = if known.granted { "g" } else { "w" };
            let expected = [letter.to_owned(), known.seq.to_string(), known.claim.weight().to_string()];
            let mut words: Vec<&str> = text.split(' ').collect();
            let since = words.remove(2);
            assert!(since.contains(':') && words[..3] == expected, "{} is {text}, not {expected:?}\n{steps}", known.id);
            assert_eq!(words[3], known.claim.capacity().to_string(), "{} is {text}\n{steps}", known.id);
        }
        self.check_sums(&fields, &order);
        self.check_boundary(&fields);
    }

    /// No dead contender blocks a waiter before the boundary: not even if every session dies whose ttl ends before that.
    fn check_boundary(&mut self, fields: &BTreeMap<String, String>) {
        let Some(record) = fields.get(self.name.as_str()) else { return };
        let [_, _, _, _, covers, boundary, set] = record.split(' ').collect::<Vec<_>>()[..] else { return };
        // If the record does not cover enough holders, a waiter looks again at once.
        if !covers.starts_with(['a', 'f']) {
            return;
        }
        let [boundary, set]: [u64; 2] = [boundary, set].map(|moment| moment.parse().unwrap());
        let (now, ends) = self.bed.ends(&self.sessions);
        if !(set..boundary).contains(&now) {
            return;
        }
        let left: Vec<&Known> = self.line.iter().filter(|known| ends[&known.session] + 5 >= boundary).collect();
        let claims: Vec<Claim> = left.iter().map(|known| known.claim).collect();
        let late = left[..granted(&claims)].iter().find(|known| !known.granted);
        let steps = self.steps.join("\n");
        assert!(late.is_none(), "{late:?} is let in before {boundary}: it is {now}, {ends:x?}, {record}\n{steps}");
    }

    /// The record agrees with the places, and an empty queue leaves nothing.
    fn check_sums(&self, fields: &BTreeMap<String, String>, order: &[(String, u64)]) {
        let steps = self.steps.join("\n");
        let prefix = format!("{}\n", self.name);
        let places: Vec<(&str, Vec<&str>)> = fields
            .iter()
            .filter_map(|(field, text)| Some((field.strip_prefix(&prefix)?, text.split(' ').collect())))
            .collect();
        let Some(record) = fields.get(self.name.as_str()) else {
            assert!(places.is_empty() && order.is_empty(), "no record of {places:?} {order:?}\n{steps}");
            return;
        };
        let record: Vec<&str> = record.split(' ').collect();
        if record[0].contains('-') {
            // The record is the only place.
            assert!(record[1] == "g" && places.is_empty() && order.is_empty(), "{record:?} {places:?}\n{steps}");
            return;
        }
        let holders = places.iter().filter(|(_, place)| place[0] == "g");
        let weight: u64 = holders.clone().map(|(_, place)| place[3].parse::<u64>().unwrap()).sum();
        let sums = [places.len() as u64, holders.count() as u64, weight].map(|sum| sum.to_string());
        assert!(places.len() > 1, "{record:?}\n{steps}");
        assert_eq!(record[..3], sums, "{places:?}\n{steps}");
        let mut expected: Vec<(String, u64)> =
            places.iter().map(|(id, place)| ((*id).to_owned(), place[1].parse().unwrap())).collect();
        expected.sort_by_key(|(_, seq)| *seq);
        assert_eq!(order, expected, "{steps}");
    }

    fn claim(&mut self, dice: &mut Dice) -> Claim {
        let capacity = if dice.percent(3) { self.capacity.saturating_sub(1).max(1) } else { self.capacity };
        let weight = match capacity {
            Claim::UNBOUNDED => [1, Claim::UNBOUNDED][usize::from(dice.percent(30))],
            capacity => 1 + dice.below(capacity as usize) as u32,
        };
        Claim::new(weight, capacity).unwrap()
    }

    fn enter(&mut self, dice: &mut Dice) -> Expected {
        let claim = self.claim(dice);
        let entry = self.bed.entry(&self.name, claim, dice.percent(80));
        let session = self.sessions[dice.below(self.sessions.len())];
        let mut expected = self.settle();
        let answer = self.bed.run(enter(&self.layout, session, 1_000_000, &entry));
        self.steps.push(format!("enter {} of {session:x} as {claim} wait {}: {answer:?}", entry.id, entry.wait));
        let steps = self.steps.join("\n");
        let verdict = admits(self.line.iter().map(|known| known.claim), claim);
        let (seq, is_granted) = match (verdict, answer) {
            (Admission::Conflict(found), Enter::Conflict(answered)) if found == answered => return expected,
            (Admission::Wait, Enter::Busy) if !entry.wait => return expected,
            (Admission::Admitted, Enter::Granted(seq)) => (seq, true),
            (Admission::Wait, Enter::Waiting { seq, ahead, look_in }) if entry.wait => {
                assert!(look_in.is_some_and(|look_in| look_in <= LONG * 2), "{steps}");
                let holders = self.line.iter().filter(|known| known.granted).count() as u32;
                // Dead contenders may still count, unless they block a grant.
                let ahead = ahead.unwrap();
                assert!(ahead.holders >= holders && ahead.waiters >= self.line.len() as u32 - holders, "{steps}");
                (seq, false)
            }
            (verdict, answer) => panic!("{verdict:?}, but {answer:?}\n{steps}"),
        };
        assert!(seq > self.last, "{seq} after {}\n{steps}", self.last);
        self.last = seq;
        self.line.push(Known { id: entry.id, session, claim, seq, granted: is_granted });
        expected.extend(self.settle());
        expected
    }

    /// Asks again with a request that has a place.
    fn repeat(&mut self, dice: &mut Dice) -> Option<Expected> {
        let known = self.pick(dice)?;
        let mut entry = self.bed.entry(&self.name, known.claim, true);
        entry.id = known.id;
        // A holder receives its answer without a look at the queue.
        let mut expected = if known.granted { Expected::new() } else { self.settle() };
        let answer = self.bed.run(enter(&self.layout, known.session, 1_000_000, &entry));
        self.steps.push(format!("repeat {}: {answer:?}", known.id));
        let now = self.line.iter().find(|other| other.id == known.id)?;
        match answer {
            Enter::Granted(seq) if now.granted && seq == known.seq => {}
            Enter::Waiting { seq, .. } if !now.granted && seq == known.seq => {}
            answer => panic!("{now:?}, but {answer:?}\n{}", self.steps.join("\n")),
        }
        // The caller receives an answer, and no message.
        if let Some(items) = expected.get_mut(&known.session) {
            items.retain(|(id, _)| *id != known.id);
        }
        expected.retain(|_, items| !items.is_empty());
        Some(expected)
    }

    fn pick(&self, dice: &mut Dice) -> Option<Known> {
        (!self.line.is_empty()).then(|| self.line[dice.below(self.line.len())].clone())
    }

    fn forget(&mut self, id: RequestId) {
        if let Some(position) = self.line.iter().position(|known| known.id == id) {
            self.past.push(self.line.remove(position));
        }
    }

    fn depart(&mut self, dice: &mut Dice) -> Option<Expected> {
        let known = self.pick(dice)?;
        let place = (&self.name.clone(), known.id);
        if dice.percent(20) {
            assert!(!self.bed.run(leave(&self.layout, place, Some(known.seq + 1))));
        }
        let step = if dice.percent(70) {
            let seq = dice.percent(80).then_some(known.seq);
            assert!(self.bed.run(leave(&self.layout, place, seq)), "{}", self.steps.join("\n"));
            "leave"
        } else {
            let (epoch, was_there) = self.bed.run(withdraw(&self.layout, known.session, place));
            assert!(was_there && epoch.is_some());
            "withdraw"
        };
        self.steps.push(format!("{step} {}", known.id));
        self.forget(known.id);
        Some(self.settle())
    }

    fn depart_again(&mut self, dice: &mut Dice) -> Option<Expected> {
        let known = self.past.get(dice.below(self.past.len().max(1)))?.clone();
        let place = (&self.name.clone(), known.id);
        assert!(!self.bed.run(leave(&self.layout, place, Some(known.seq))));
        assert!(!self.bed.run(withdraw(&self.layout, known.session, place)).1);
        self.steps.push(format!("leave {} again", known.id));
        Some(Expected::new())
    }

    fn lighten(&mut self, dice: &mut Dice) -> Option<Expected> {
        let known = self.pick(dice)?;
        let lighter = Claim::new(1 + dice.below(known.claim.weight() as usize) as u32, known.claim.capacity()).unwrap();
        let place = (&self.name.clone(), known.id);
        let answer = self.bed.run(lighten(&self.layout, known.session, place, known.seq, lighter));
        self.steps.push(format!("lighten {} to {lighter}: {answer:?}", known.id));
        if !known.granted {
            assert!(!answer);
            return Some(Expected::new());
        }
        assert!(answer);
        if lighter == known.claim {
            return Some(Expected::new());
        }
        self.line.iter_mut().find(|other| other.id == known.id)?.claim = lighter;
        Some(self.settle())
    }

    fn break_one(&mut self, dice: &mut Dice) -> Option<Expected> {
        let known = self.pick(dice)?;
        let by = Owner { client: 1, host: String::new(), pid: 0 };
        let order = Break {
            place: PlaceId { name: self.name.clone(), request: known.id },
            token: crate::token::FencingToken::new(known.seq),
            claim: known.claim,
            owner: None,
            by,
            reason: "a trial".into(),
            at: UNIX_EPOCH,
        };
        let record = known.id.to_string();
        let was_there = self.bed.run(break_grant(&self.layout, &order, &record)?);
        self.steps.push(format!("break {}: {was_there}", known.id));
        assert_eq!(was_there, known.granted, "{}", self.steps.join("\n"));
        if !was_there {
            return Some(Expected::new());
        }
        assert!(self.bed.run(break_grant(&self.layout, &order, &record)?));
        self.forget(known.id);
        Some(self.settle())
    }

    fn look(&mut self, dice: &mut Dice) -> Expected {
        let session = self.sessions[dice.below(self.sessions.len())];
        let mut expected = self.settle();
        let ids: Vec<RequestId> = self.line.iter().chain(&self.past).map(|known| known.id).collect();
        let look = self.bed.run(look(&self.layout, session, &[(self.name.clone(), ids.clone())], true));
        self.steps.push(format!("look of {session:x}: {look:?}"));
        for (id, seen) in ids.iter().zip(&look.unwrap()[0].places) {
            let known = self.line.iter().find(|known| known.id == *id && known.session == session);
            let steps = self.steps.join("\n");
            match (seen, known) {
                (Seen::Missing, None) => {}
                (Seen::Granted(seq), Some(known)) => assert!(known.granted && known.seq == *seq, "{steps}"),
                (Seen::Waiting(seq, ahead), Some(known)) => {
                    assert!(!known.granted && known.seq == *seq && ahead.is_some(), "{steps}");
                }
                _ => panic!("{id}: {seen:?}\n{steps}"),
            }
        }
        // The answer has this session's grants.
        expected.remove(&session);
        expected
    }

    /// A reader changes nothing: its look grants no place.
    fn show(&mut self) -> Expected {
        let shown = self.bed.shown(&self.name.clone());
        self.steps.push("show".to_owned());
        let seen: Vec<_> = shown.iter().map(|one| (one.id, one.seq, one.claim, one.granted, one.session)).collect();
        let expected: Vec<_> =
            self.line.iter().map(|one| (one.id, one.seq, one.claim, one.granted, one.session)).collect();
        assert_eq!(seen, expected, "{}", self.steps.join("\n"));
        if let Some(last) = self.line.iter().rev().find(|known| !known.granted).cloned() {
            let short = self.bed.run(contention(&self.layout, &self.name, &[last.id]));
            let live = self.line.len();
            assert!(short.queued >= live && short.positions[0] >= Some(live), "{}", self.steps.join("\n"));
        }
        Expected::new()
    }

    /// A session dies, unnoticed until the next step.
    fn kill(&mut self, dice: &mut Dice) {
        let position = dice.below(self.sessions.len());
        let session = std::mem::replace(&mut self.sessions[position], some_session(self.bed, dice));
        self.bed.kill(session, &[&self.name]);
        self.steps.push(format!("{session:x} dies"));
        self.line.retain(|known| known.session != session);
    }

    fn step(&mut self, dice: &mut Dice) {
        if dice.percent(12) {
            self.kill(dice);
        }
        let expected = match dice.below(100) {
            0..40 => Some(self.enter(dice)),
            40..46 => self.repeat(dice),
            46..74 => self.depart(dice),
            74..78 => self.depart_again(dice),
            78..84 => self.lighten(dice),
            84..88 => self.break_one(dice),
            88..95 => Some(self.look(dice)),
            _ => Some(self.show()),
        };
        // The step may have found the dead or not: a departure without a place looks at no contender.
        let expected = expected.unwrap_or_default();
        self.compare(expected);
    }
}

/// Every session may be the first to end.
fn some_session(bed: &mut Bed, dice: &mut Dice) -> u64 {
    bed.session(LONG + Duration::from_secs(dice.below(LONG.as_secs() as usize) as u64))
}

fn run(bed: &mut Bed, dice: &mut Dice, case: usize) {
    let capacity = [1, Claim::UNBOUNDED, 2, 3, 7, 20][dice.below(6)];
    let sessions = (0..2 + dice.below(5)).map(|_| some_session(bed, dice)).collect();
    let layout = bed.layout.clone();
    let name = Name::new(format!("trial {case} {{x}}")).unwrap();
    let mut trial = Trial { bed, layout, name, sessions, line: vec![], past: vec![], steps: vec![], last: 0, capacity };
    for _ in 0..10 + dice.below(40) {
        trial.step(dice);
    }
    // An idle name leaves nothing.
    for known in std::mem::take(&mut trial.line) {
        trial.bed.run(leave(&trial.layout, (&trial.name.clone(), known.id), Some(known.seq)));
    }
    // A contender for all of it clears the dead away.
    let (all, session) = (Claim::new(trial.capacity, trial.capacity).unwrap(), some_session(trial.bed, dice));
    let entry = trial.bed.entry(&trial.name.clone(), all, true);
    assert!(matches!(trial.bed.run(enter(&trial.layout, session, 1_000_000, &entry)), Enter::Granted(_)));
    assert!(trial.bed.run(leave(&trial.layout, (&trial.name.clone(), entry.id), None)));
    let (fields, order) = trial.bed.raw(&trial.name);
    assert!(order.is_empty() && !fields.keys().any(|field| field.starts_with("trial ")), "{fields:?}");
    trial.bed.received();
}

pub(super) fn the_scripts_answer_as_the_rule_does(cases: usize) {
    let (mut bed, mut dice) = (Bed::new(), Dice::random());
    for case in 0..cases {
        run(&mut bed, &mut dice, case);
    }
}

#[test]
fn the_scripts_answer_as_the_rule_does_in_150_queues() {
    the_scripts_answer_as_the_rule_does(150);
}
