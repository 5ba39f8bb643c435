//! The checker finds each kind of planted violation, calls it by its name, and finds nothing in clean histories.

use crate::judge_again;
use fencelock::inspect::Claim;
use fencelock_lab::history::{Answer, Enqueue, History, Lapse, Law, Laws, Section, Write, check};

/// A clean history: `rounds` sections in turn, each queueing before its predecessor has left.
fn one_after_the_other(claim: Claim, rounds: u64) -> History {
    let mut history = history();
    for round in 0..rounds {
        let mut section = Section::called(0, (round % 5) as u32, claim, round * 10);
        section.enqueue = Some(Enqueue { called: round * 10, returned: round * 10 + 5 });
        section.answer = Answer::Granted { at: round * 10 + 20, token: Some(round as i64 + 1) };
        section.released = Some(round * 10 + 29);
        section.gone = Some(round * 10 + 30);
        history.sections.push(section);
        history.writes.push(Write { lock: 0, token: round as i64 + 1, accepted: true });
    }
    history
}

fn history() -> History {
    let mut history = History::default();
    assert_eq!(history.lock("lock"), 0);
    for client in 0..5 {
        history.client(&format!("client {client}"));
    }
    history
}

fn permit(weight: u32, capacity: u32) -> Claim {
    Claim::new(weight, capacity).unwrap()
}

/// The laws that are broken, each once.
fn laws_broken(history: &History) -> Vec<Law> {
    let report = check(history, Laws::ALL);
    let mut laws: Vec<Law> = report.violations.iter().map(|violation| violation.law).collect();
    laws.dedup();
    laws
}

#[track_caller]
fn assert_broken(history: &History, law: Law) {
    assert_eq!(laws_broken(history), [law], "{}", check(history, Laws::ALL).describe(history));
    judge_again(history, law == Law::BusyHasAWitness);
}

#[track_caller]
fn assert_clean(history: &History) {
    assert_eq!(laws_broken(history), [], "{}", check(history, Laws::ALL).describe(history));
    judge_again(history, true);
}

/// A holder from `start` to `end`, called at `start`.
fn holder(claim: Claim, start: u64, end: u64) -> Section {
    let mut section = Section::called(0, 0, claim, start);
    section.answer = Answer::Granted { at: start, token: None };
    section.released = Some(end);
    section.gone = Some(end);
    section
}

fn holders(claims: &[(Claim, u64, u64)]) -> History {
    let mut history = history();
    history.sections = claims.iter().map(|(claim, start, end)| holder(*claim, *start, *end)).collect();
    history
}

fn refused(called: u64, at: u64) -> Section {
    let mut section = Section::called(0, 0, Claim::MUTEX, called);
    section.answer = Answer::Busy { at };
    section
}

#[test]
fn a_clean_history_is_clean() {
    for claim in [Claim::MUTEX, Claim::WRITER, Claim::READER, permit(2, 3)] {
        assert_clean(&one_after_the_other(claim, 100));
    }
    let report = check(&one_after_the_other(Claim::MUTEX, 100), Laws::ALL);
    assert_eq!((report.sections, report.grants, report.writes), (100, 100, (100, 0)));
}

#[test]
fn two_holders_of_a_mutex_break_exclusion() {
    let mut history = one_after_the_other(Claim::MUTEX, 100);
    history.sections[40].released = Some(40 * 10 + 31);
    assert_broken(&history, Law::Exclusion);
    let report = check(&history, Laws::ALL);
    assert_eq!((report.violations[0].who, report.violations[0].against), (41, Some(40)));
    assert!(!report.live_holders_exclude_each_other() && report.resource_is_exclusive());
    assert!(report.describe(&history).contains("Exclusion on \"lock\": client 1"));
}

#[test]
fn sections_that_only_touch_do_not_overlap() {
    assert_clean(&holders(&[(Claim::MUTEX, 0, 5), (Claim::MUTEX, 5, 9), (Claim::MUTEX, 9, 9)]));
}

#[test]
fn a_long_section_is_not_forgotten_behind_short_ones() {
    let (reader, writer) = (Claim::READER, Claim::WRITER);
    assert_broken(&holders(&[(reader, 0, 100), (reader, 1, 2), (reader, 3, 4), (writer, 50, 60)]), Law::Sharing);
}

#[test]
fn readers_share_and_a_writer_among_them_breaks_sharing() {
    let (reader, writer) = (Claim::READER, Claim::WRITER);
    assert_clean(&holders(&[(reader, 0, 9), (reader, 1, 8), (reader, 8, 12), (writer, 12, 13), (reader, 13, 14)]));
    assert_broken(&holders(&[(reader, 0, 9), (writer, 8, 10)]), Law::Sharing);
    assert_broken(&holders(&[(writer, 0, 9), (reader, 8, 10)]), Law::Sharing);
    assert_broken(&holders(&[(writer, 0, 9), (writer, 8, 10)]), Law::Sharing);
}

#[test]
fn permits_over_the_capacity_break_permits() {
    assert_clean(&holders(&[(permit(2, 5), 0, 9), (permit(3, 5), 1, 4), (permit(1, 5), 4, 8), (permit(2, 5), 5, 8)]));
    assert_broken(&holders(&[(permit(2, 5), 0, 9), (permit(3, 5), 1, 4), (permit(1, 5), 3, 8)]), Law::Permits);
}

#[test]
fn two_capacities_at_once_break_one_capacity() {
    assert_clean(&holders(&[(Claim::MUTEX, 0, 9), (Claim::READER, 9, 12)]));
    assert_broken(&holders(&[(permit(1, 2), 0, 9), (permit(1, 3), 5, 6)]), Law::OneCapacity);
}

#[test]
fn a_token_that_does_not_rise_breaks_tokens_rise() {
    for token in [41, 40, 3] {
        let mut history = one_after_the_other(Claim::MUTEX, 100);
        history.sections[41].answer = Answer::Granted { at: 430, token: Some(token) };
        assert_broken(&history, Law::TokensRise);
        let excused = Laws { tokens: false, ..Laws::ALL };
        assert!(check(&history, excused).is_clean());
    }
}

#[test]
fn tokens_of_readers_need_not_rise() {
    let mut history = one_after_the_other(Claim::READER, 10);
    history.sections[5].answer = Answer::Granted { at: 70, token: Some(1) };
    assert_clean(&history);
}

#[test]
fn a_contender_that_overtakes_an_earlier_arrival_breaks_order() {
    let mut history = holders(&[(Claim::MUTEX, 10, 20), (Claim::MUTEX, 30, 40)]);
    history.sections[1].enqueue = Some(Enqueue { called: 1, returned: 4 });
    history.sections[0].enqueue = Some(Enqueue { called: 5, returned: 6 });
    assert_broken(&history, Law::Order);
    let report = check(&history, Laws { order: false, ..Laws::ALL });
    assert!(report.is_clean());
    // Arrivals that overlap may have come in either order.
    history.sections[0].enqueue = Some(Enqueue { called: 4, returned: 6 });
    assert_clean(&history);
}

#[test]
fn a_crowd_that_enters_at_an_unknown_time_may_be_served_in_any_order() {
    let mut history = history();
    for rank in 0..60 {
        let served = holder(Claim::MUTEX, 100 + rank * 10, 105 + rank * 10);
        history.sections.push(Section { called: 60 - rank, ..served });
    }
    assert_clean(&history);
    // The last one was there before any other called.
    history.sections[59].enqueue = Some(Enqueue { called: 1, returned: 1 });
    assert_broken(&history, Law::Order);
}

#[test]
fn a_crowd_that_enters_at_an_unknown_time_may_hold_as_many_permits_as_there_are() {
    let mut history = history();
    for rank in 0..60 {
        let granted = holder(permit(1, 5), 100 + rank / 5 * 10, 110 + rank / 5 * 10);
        history.sections.push(Section { called: 60 - rank, ..granted });
    }
    assert_clean(&history);
    (history.sections[30].released, history.sections[30].gone) = (Some(171), Some(171));
    assert_broken(&history, Law::Permits);
}

#[test]
fn contenders_that_can_share_may_learn_of_their_grants_in_any_order() {
    let mut history = holders(&[(Claim::READER, 10, 20), (Claim::READER, 11, 40), (Claim::WRITER, 50, 51)]);
    history.sections[1].enqueue = Some(Enqueue { called: 1, returned: 4 });
    history.sections[0].enqueue = Some(Enqueue { called: 5, returned: 6 });
    assert_clean(&history);
    history.sections[2].enqueue = Some(Enqueue { called: 2, returned: 3 });
    assert_broken(&history, Law::Order);
}

#[test]
fn a_busy_answer_needs_a_contender_in_the_queue_within_the_call() {
    // The holder may have been in the queue from 5 to 10.
    let cases = [((2, 5), true), ((7, 8), true), ((10, 11), true), ((2, 20), true), ((1, 4), false), ((11, 12), false)];
    for ((called, at), is_clean) in cases {
        let mut history = holders(&[(Claim::MUTEX, 5, 10)]);
        history.sections.push(refused(called, at));
        match is_clean {
            true => assert_clean(&history),
            false => assert_broken(&history, Law::BusyHasAWitness),
        }
    }
}

#[test]
fn a_refused_contender_can_be_the_one_ahead_only_if_another_was_ahead_of_it() {
    // The second is refused because of the first, which was refused because of the holder.
    let mut history = holders(&[(Claim::MUTEX, 0, 5)]);
    history.sections.extend([refused(4, 9), refused(8, 12)]);
    assert_clean(&history);
    // Two contenders that are refused because of each other alone.
    let mut history = holders(&[(Claim::MUTEX, 0, 3)]);
    history.sections.extend([refused(4, 9), refused(8, 12)]);
    assert_broken(&history, Law::BusyHasAWitness);
    assert_eq!(check(&history, Laws::ALL).violations.len(), 2);
}

#[test]
fn a_contender_whose_end_is_unknown_may_be_there_for_ever() {
    let mut history = holders(&[(Claim::MUTEX, 0, 3)]);
    history.sections[0].gone = None;
    history.sections.push(refused(1_000, 1_001));
    assert_clean(&history);
}

#[test]
fn an_older_token_accepted_after_a_newer_one_breaks_the_fenced_resource() {
    let mut history = one_after_the_other(Claim::MUTEX, 10);
    history.writes.push(Write { lock: 0, token: 9, accepted: false });
    assert_clean(&history);
    assert_eq!(check(&history, Laws::ALL).writes, (11, 1));
    history.writes.push(Write { lock: 0, token: 9, accepted: true });
    assert_broken(&history, Law::FencedResource);
    let report = check(&history, Laws::ALL);
    assert!(report.live_holders_exclude_each_other() && !report.resource_is_exclusive());
    assert!(report.describe(&history).contains("accepted: true"));
}

#[test]
fn resources_of_different_locks_are_apart() {
    let mut history = one_after_the_other(Claim::MUTEX, 10);
    let other = history.lock("other");
    history.writes.push(Write { lock: other, token: 1, accepted: true });
    assert_clean(&history);
}

#[test]
fn a_crashed_holder_was_inside_until_its_last_proof() {
    let mut history = holders(&[(Claim::MUTEX, 0, 5), (Claim::MUTEX, 8, 9)]);
    history.sections[0].released = None;
    history.sections[0].gone = None;
    assert_clean(&history);
    history.sections[0].seen_inside = 8;
    assert_clean(&history);
    history.sections[0].seen_inside = 9;
    assert_broken(&history, Law::Exclusion);
}

#[test]
fn a_holder_that_stopped_believing_in_time_is_no_violation() {
    let mut history = holders(&[(Claim::MUTEX, 0, 50), (Claim::MUTEX, 30, 40)]);
    assert_broken(&history, Law::Exclusion);
    history.sections[0].belief_end = Some(30);
    assert_clean(&history);
}

#[test]
fn a_grant_that_was_over_before_its_holder_knew_counts_for_nothing() {
    let mut history = one_after_the_other(Claim::MUTEX, 10);
    let mut late = holder(Claim::MUTEX, 75, 90);
    late.answer = Answer::Granted { at: 75, token: Some(2) };
    late.belief_end = Some(35);
    history.sections.push(late);
    assert_clean(&history);
}

#[test]
fn acquires_and_releases_without_an_answer_are_no_violation() {
    let mut history = one_after_the_other(Claim::MUTEX, 10);
    history.sections[4].gone = None;
    history.sections.push(Section::called(0, 1, Claim::MUTEX, 3));
    assert_clean(&history);
}

#[test]
fn an_overlap_is_excused_only_between_a_grant_before_a_lapse_and_one_after() {
    let with_lapse = |cores: &[(u64, u64)]| {
        let cores: Vec<_> = cores.iter().map(|(start, end)| (Claim::MUTEX, *start, *end)).collect();
        let mut history = holders(&cores);
        history.lapses.push(LAPSE);
        history
    };
    let excused = with_lapse(&[(90, 140), (120, 130), (130, 160)]);
    assert_clean(&excused);
    assert_eq!(check(&excused, Laws::ALL).excused, 2);
    // Both before the lapse, both after it, or a belief that lasted too long.
    for cores in [[(10, 30), (20, 40)], [(120, 140), (130, 160)], [(90, 151), (120, 130)]] {
        assert_broken(&with_lapse(&cores), Law::Exclusion);
    }
    // A holder from before the lapse hides no overlap of later holders.
    assert_broken(&with_lapse(&[(90, 125), (120, 140), (130, 160)]), Law::Exclusion);
    // Two contenders that asked after the lapse, however soon.
    assert_broken(&with_lapse(&[(106, 120), (108, 130)]), Law::Exclusion);
}

/// From 100 to 105; answers are read by 110.
const LAPSE: Lapse = Lapse { from: 100, over: 105, by: 110, believed_until: 150 };

/// Two clients that read of their grants in this order, each with its enqueueing and a token. `is_excused` adds a lapse.
fn read_of(first: (Enqueue, u64, i64), second: (Enqueue, u64, i64), is_excused: bool) -> History {
    let mut history = history();
    for ((enqueue, at, token), client) in [(first, 0), (second, 1)] {
        let mut section = Section::called(0, client, Claim::MUTEX, enqueue.called);
        section.enqueue = Some(enqueue);
        section.answer = Answer::Granted { at, token: Some(token) };
        (section.released, section.gone) = (Some(at), Some(at));
        history.sections.push(section);
    }
    history.lapses.extend(is_excused.then_some(LAPSE));
    history
}

#[test]
fn order_and_tokens_are_excused_only_between_a_grant_before_a_lapse_and_one_after() {
    let place = |called, returned| Enqueue { called, returned };
    let broken = |first, second, is_excused| {
        let history = read_of(first, second, is_excused);
        let broken = laws_broken(&history);
        judge_again(&history, broken.is_empty());
        broken
    };
    // Granted before the lapse, and logged after the grant of a later contender.
    let before = (place(90, 95), 109, 1);
    // Or of a contender that waited all the while, in a session that the clock did not end.
    for after in [(place(106, 107), 108, 2), (place(97, 98), 108, 2)] {
        assert_eq!(broken(after, before, true), []);
        assert_eq!(broken(after, before, false), [Law::TokensRise, Law::Order]);
    }
    for (first, second) in [
        // Both asked after the lapse, however soon.
        ((place(108, 108), 109, 2), (place(106, 107), 110, 1)),
        // Both were granted before the lapse.
        ((place(92, 93), 96, 2), (place(90, 91), 97, 1)),
        // No client reads so late of a grant from before the lapse.
        ((place(106, 107), 108, 2), (place(90, 95), 111, 1)),
    ] {
        assert_eq!(broken(first, second, true), [Law::TokensRise, Law::Order], "{first:?} {second:?}");
    }
}

#[test]
fn an_older_grant_that_is_logged_last_may_overlap_the_newer_one_after_a_lapse() {
    let mut history = holders(&[(Claim::MUTEX, 106, 130), (Claim::MUTEX, 109, 120)]);
    history.sections[1].called = 90;
    assert_broken(&history, Law::Exclusion);
    history.lapses.push(LAPSE);
    assert_clean(&history);
    assert_eq!(check(&history, Laws::ALL).excused, 1);
}

#[test]
fn a_lapse_excuses_no_write() {
    let mut history = history();
    history.lapses.push(Lapse { from: 0, over: 90, by: 100, believed_until: 200 });
    for token in [2, 1] {
        history.writes.push(Write { lock: 0, token, accepted: true });
    }
    assert_broken(&history, Law::FencedResource);
}
