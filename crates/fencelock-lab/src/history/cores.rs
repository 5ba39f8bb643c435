//! The laws about cores: exclusion with weights, rising tokens, and order. A sort by start, and a sweep for each lock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fencelock::inspect::Claim;

use super::check::{Law, Laws, Report, Violation};
use super::section::{Answer, History, Section};

struct Core {
    lock: u32,
    start: u64,
    end: u64,
    section: usize,
}

pub(super) fn check(history: &History, laws: Laws, report: &mut Report) {
    let mut cores: Vec<Core> = history.sections.iter().enumerate().filter_map(core_of).collect();
    report.grants = cores.len();
    // Ends break ties: a section of no length fits next to one that starts at the same moment, in that order only.
    cores.sort_unstable_by_key(|core| (core.lock, core.start, core.end));
    for of_lock in cores.chunk_by(|a, b| a.lock == b.lock) {
        overlaps(history, of_lock, report);
        if laws.tokens {
            tokens(history, of_lock, &mut report.violations);
        }
        if laws.order {
            order(history, of_lock, &mut report.violations);
        }
    }
}

fn core_of((index, section): (usize, &Section)) -> Option<Core> {
    section.core().map(|(start, end)| Core { lock: section.lock, start, end, section: index })
}

fn overlaps(history: &History, cores: &[Core], report: &mut Report) {
    // The present cores, the next to end first.
    let mut inside: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut taken = 0_u64;
    for core in cores {
        while let Some(Reverse((end, section))) = inside.peek().copied().filter(|Reverse((end, _))| *end <= core.start)
        {
            debug_assert!(end <= core.start);
            taken -= u64::from(history.sections[section].claim.weight());
            inside.pop();
        }
        let mine = history.sections[core.section].claim;
        let (parted, rival) = overlap(history, &inside, core);
        let breaks = |taken: u64| taken + u64::from(mine.weight()) > u64::from(mine.capacity());
        report.excused += usize::from(breaks(taken) && !breaks(taken - parted));
        taken += u64::from(mine.weight());
        if let Some(rival) = rival
            && let Some(law) = broken(mine, history.sections[rival].claim, taken - parted)
        {
            report.violations.push(Violation { law, lock: core.lock, who: core.section, against: Some(rival) });
        }
        inside.push(Reverse((core.end, core.section)));
    }
}

/// Divides the sections that run concurrently with `core`: returns the weight of the sections that a lapse of the store excuses, and the
/// first of the other sections to end.
fn overlap(history: &History, inside: &BinaryHeap<Reverse<(u64, usize)>>, core: &Core) -> (u64, Option<usize>) {
    if history.lapses.is_empty() {
        return (0, inside.peek().map(|Reverse((_, rival))| *rival));
    }
    let mut parted = 0;
    let mut rival: Option<(u64, usize)> = None;
    for Reverse((end, section)) in inside {
        // A lapse may lie between the two in either order: the earlier grant may be logged later.
        if is_parted(history, *section, core.section) || is_parted(history, core.section, *section) {
            parted += u64::from(history.sections[*section].claim.weight());
        } else if rival.is_none_or(|first| (*end, *section) < first) {
            rival = Some((*end, *section));
        }
    }
    (parted, rival.map(|(_, rival)| rival))
}

fn is_parted(history: &History, earlier: usize, later: usize) -> bool {
    let (earlier, later) = (&history.sections[earlier], &history.sections[later]);
    history.lapses.iter().any(|lapse| lapse.parts(earlier, later))
}

/// The law that `mine` breaks when it begins during `other`, with `taken` of the capacity taken.
fn broken(mine: Claim, other: Claim, taken: u64) -> Option<Law> {
    if mine.capacity() != other.capacity() {
        return Some(Law::OneCapacity);
    }
    match mine.capacity() {
        capacity if taken <= u64::from(capacity) => None,
        1 => Some(Law::Exclusion),
        Claim::UNBOUNDED => Some(Law::Sharing),
        _ => Some(Law::Permits),
    }
}

fn tokens(history: &History, cores: &[Core], violations: &mut Vec<Violation>) {
    let mut highest: Option<(i64, &Core)> = None;
    for core in cores {
        let section = &history.sections[core.section];
        let Answer::Granted { token: Some(token), .. } = section.answer else { continue };
        if !section.claim.is_whole() {
            continue;
        }
        match highest {
            // The answer was read only after a lapse, and after the answer of a section that was granted after the lapse.
            Some((highest, other)) if token < highest && is_parted(history, core.section, other.section) => {}
            Some((highest, other)) if token <= highest => violations.push(Violation {
                law: Law::TokensRise,
                lock: core.lock,
                who: core.section,
                against: Some(other.section),
            }),
            _ => highest = Some((token, core)),
        }
    }
}

/// A contender that was in the queue before another arrived starts first, if the two exclude each other: two that share may
/// receive their grants in any order.
fn order(history: &History, cores: &[Core], violations: &mut Vec<Violation>) {
    // For each weight: the latest arrival among the sections that have started.
    let mut latest: Vec<(Claim, u64, usize)> = Vec::new();
    for core in cores {
        let section = &history.sections[core.section];
        let (mine, place) = (section.claim, section.enqueued());
        let overtook = latest.iter().find(|(claim, called, _)| excludes(*claim, mine) && *called > place.returned);
        // A holder from before the lapse may log late; its order is ignored.
        if let Some((_, _, overtaker)) = overtook.filter(|(_, _, other)| !is_parted(history, core.section, *other)) {
            let (law, who, against) = (Law::Order, *overtaker, Some(core.section));
            violations.push(Violation { law, lock: core.lock, who, against });
        }
        match latest.iter_mut().find(|(claim, _, _)| *claim == mine) {
            Some(known) if known.1 >= place.called => {}
            Some(known) => *known = (mine, place.called, core.section),
            None => latest.push((mine, place.called, core.section)),
        }
    }
}

fn excludes(a: Claim, b: Claim) -> bool {
    a.capacity() == b.capacity() && u64::from(a.weight()) + u64::from(b.weight()) > u64::from(a.capacity())
}
