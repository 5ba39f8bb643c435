//! The checker against searches that try everything, on small random histories.

use fencelock::inspect::Claim;
use fencelock_lab::history::{Answer, History, Law, Laws, Section, check};
use proptest::prelude::*;

/// An operation of a history, between its call and its answer.
#[derive(Debug, Clone, Copy)]
struct Operation {
    section: usize,
    is_release: bool,
    called: u64,
    /// `None` when the operation was never answered: its effect may have come at any time, or never.
    answered: Option<u64>,
}

/// Whether some order of the operations, each between its call and its answer, never exceeds the capacity.
fn is_linearizable(history: &History) -> bool {
    let mut operations = Vec::new();
    for (index, section) in history.sections.iter().enumerate() {
        let answered = match section.answer {
            Answer::Granted { at, .. } => Some(at),
            _ => None,
        };
        operations.push(Operation { section: index, is_release: false, called: section.called, answered });
        if let Some(called) = section.released {
            operations.push(Operation { section: index, is_release: true, called, answered: section.gone });
        } else if answered.is_some() {
            // A crash is a release that is called at the last proof of being inside, and never answered.
            let called = section.seen_inside.max(answered.unwrap_or_default());
            operations.push(Operation { section: index, is_release: true, called, answered: None });
        }
    }
    search(history, &operations, 0, 0, &mut std::collections::HashSet::new())
}

/// `done` is the set of operations that took effect.
fn search(
    history: &History,
    operations: &[Operation],
    done: u32,
    taken: u64,
    seen: &mut std::collections::HashSet<u32>,
) -> bool {
    let is_done = |index: usize| done & (1 << index) != 0;
    let open = || (0..operations.len()).filter(|index| !is_done(*index));
    if open().all(|index| operations[index].answered.is_none()) {
        return true;
    }
    if !seen.insert(done) {
        return false;
    }
    let first_answer = open().filter_map(|index| operations[index].answered).min().unwrap_or(u64::MAX);
    open().filter(|index| operations[*index].called <= first_answer).any(|index| {
        let operation = operations[index];
        let claim = history.sections[operation.section].claim;
        let acquire = operations.iter().position(|other| other.section == operation.section && !other.is_release);
        let taken = match operation.is_release {
            true if acquire.is_some_and(is_done) => taken.checked_sub(u64::from(claim.weight())),
            true => None,
            false => Some(taken + u64::from(claim.weight())),
        };
        taken
            .filter(|taken| *taken <= u64::from(claim.capacity()))
            .is_some_and(|taken| search(history, operations, done | 1 << index, taken, seen))
    })
}

const SPAN: u64 = 14;

/// A section at four moments of a short time, so that ties are common; some crash, some are never answered.
fn section(claim: impl Strategy<Value = Claim>) -> impl Strategy<Value = Section> {
    let times = prop::collection::vec(0..SPAN, 4);
    (claim, times, 0..8_u8).prop_map(|(claim, mut times, fate)| {
        times.sort_unstable();
        let mut section = Section::called(0, 0, claim, times[0]);
        section.answer = Answer::Granted { at: times[1], token: None };
        section.released = Some(times[2]);
        section.gone = Some(times[3]);
        match fate {
            0 => (section.answer, section.released, section.gone) = (Answer::Unanswered, None, None),
            1 => (section.released, section.gone, section.seen_inside) = (None, None, times[2]),
            2 => section.gone = None,
            _ => {}
        }
        section
    })
}

fn history_of(sections: Vec<Section>) -> History {
    let mut history = History::default();
    history.lock("lock");
    history.client("client");
    history.sections = sections;
    history
}

fn claims() -> impl Strategy<Value = BoxedStrategy<Claim>> {
    prop_oneof![
        2 => Just(Just(Claim::MUTEX).boxed()),
        1 => Just(prop_oneof![Just(Claim::READER), Just(Claim::WRITER)].boxed()),
        1 => Just((1_u32..=3).prop_map(|weight| Claim::new(weight, 3).unwrap()).boxed()),
    ]
}

fn sections() -> impl Strategy<Value = Vec<Section>> {
    claims().prop_flat_map(|claim| prop::collection::vec(section(claim), 1..6))
}

/// The number of refusals without a witness, found by trying every moment at which each can have come.
fn refused_without_witness(presences: &[(u64, u64)], refusals: &[(u64, u64)]) -> usize {
    let mut came: Vec<Option<u64>> = vec![None; refusals.len()];
    // Each round explains the refusals with an explained witness, at the earliest possible time.
    for _round in 0..=refusals.len() {
        for index in 0..refusals.len() {
            let (called, answered) = refusals[index];
            let somebody_is_there = |at: u64| {
                let stayed = presences.iter().any(|(from, until)| *from <= at && at <= *until);
                let passed = |other: usize| came[other].is_some_and(|from| from <= at && at <= refusals[other].1);
                stayed || (0..refusals.len()).any(|other| other != index && passed(other))
            };
            let earliest = (called..=answered).find(|at| somebody_is_there(*at));
            came[index] = match (came[index], earliest) {
                (Some(known), Some(earliest)) => Some(known.min(earliest)),
                (known, earliest) => known.or(earliest),
            };
        }
    }
    came.iter().filter(|came| came.is_none()).count()
}

fn interval() -> impl Strategy<Value = (u64, u64)> {
    (0..40_u64, 0..8_u64).prop_map(|(from, length)| (from, from + length))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cores_fit_exactly_when_the_history_is_linearizable(sections in sections()) {
        let history = history_of(sections);
        let report = check(&history, Laws { order: false, tokens: false });
        prop_assert_eq!(report.live_holders_exclude_each_other(), is_linearizable(&history), "{}", report.describe(&history));
    }

    #[test]
    fn exactly_the_refusals_without_a_witness_are_found(
        presences in prop::collection::vec(interval(), 0..4),
        refusals in prop::collection::vec(interval(), 1..7),
    ) {
        let mut sections = Vec::new();
        for (called, gone) in &presences {
            let mut section = Section::called(0, 0, Claim::MUTEX, *called);
            section.gone = Some(*gone);
            sections.push(section);
        }
        for (called, at) in &refusals {
            let mut section = Section::called(0, 0, Claim::MUTEX, *called);
            section.answer = Answer::Busy { at: *at };
            sections.push(section);
        }
        let history = history_of(sections);
        let found = check(&history, Laws::ALL).violations.iter().filter(|found| found.law == Law::BusyHasAWitness).count();
        prop_assert_eq!(found, refused_without_witness(&presences, &refusals));
    }
}
