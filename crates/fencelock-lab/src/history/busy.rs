//! The law about `busy` answers: a contender was ahead in the queue at some instant within the call.
//!
//! A contender may have been in the queue from the call of its acquire until it was certainly gone. A `try_acquire`
//! that was itself refused may have stood in the queue too, for a moment, and been the one ahead of another; but then
//! another contender was ahead of *it* when it came. So the chain of refusals starts at a contender that stayed.

use super::check::{Law, Report, Violation};
use super::section::{Answer, History};

#[derive(Clone, Copy)]
struct Presence {
    lock: u32,
    from: u64,
    until: u64,
    section: usize,
    refused: bool,
}

pub(super) fn check(history: &History, report: &mut Report) {
    let mut presences: Vec<Presence> = history
        .sections
        .iter()
        .enumerate()
        .map(|(index, section)| {
            let (refused, until) = match section.answer {
                Answer::Busy { at } => (true, at),
                _ => (false, section.gone.unwrap_or(u64::MAX)),
            };
            Presence { lock: section.lock, from: section.called, until, section: index, refused }
        })
        .collect();
    report.busy_answers = presences.iter().filter(|presence| presence.refused).count();
    if report.busy_answers == 0 {
        return;
    }
    presences.sort_unstable_by_key(|presence| (presence.lock, presence.from));
    for of_lock in presences.chunk_by(|a, b| a.lock == b.lock) {
        let unexplained = unexplained(of_lock).into_iter();
        report.violations.extend(unexplained.map(|presence| Violation {
            law: Law::BusyHasAWitness,
            lock: presence.lock,
            who: presence.section,
            against: None,
        }));
    }
}

/// The refusals of one lock without a witness; `presences` by start.
fn unexplained(presences: &[Presence]) -> Vec<Presence> {
    let mut occupied_until = None;
    let mut doubtful: Vec<Presence> = Vec::new();
    let mut unexplained = Vec::new();
    for presence in presences {
        let is_occupied = occupied_until.is_some_and(|until| presence.from <= until);
        if presence.refused && !is_occupied {
            doubtful.push(*presence);
            continue;
        }
        occupied_until = occupied_until.max(Some(presence.until));
        // No refusal is doubtful while a contender is there. So this contender stays: its arrival may be just before the refusals.
        for earlier in doubtful.drain(..) {
            match earlier.until < presence.from {
                true => unexplained.push(earlier),
                false => occupied_until = occupied_until.max(Some(earlier.until)),
            }
        }
    }
    unexplained.append(&mut doubtful);
    unexplained
}
