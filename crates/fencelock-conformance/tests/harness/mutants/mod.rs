//! A store that breaks one law fails at least the test named for it: the suite does not pass with every store.

pub(crate) mod mutant;

use std::collections::BTreeSet;
use std::sync::Arc;

use fencelock::inspect::Claim;
use fencelock_conformance::{
    Fault, Fixture, Law, MemoryFixture, NoFaults, Process, judge, laws, read_excuses, run_by, wholes,
};
use futures_core::future::BoxFuture;

use self::mutant::{Flaw, Mutant};

/// The flaw of each mutant, and the laws that must notice it; other laws may.
const MUTANTS: &[(Flaw, &[&str])] = &[
    (Flaw::ForgetsDepartures, &["next_returns_within_its_bound_of_the_grant", "every_schedule_agrees_with_the_rule"]),
    (
        Flaw::GrantsTwice,
        &[
            "a_mutex_has_one_holder",
            "the_capacity_is_never_exceeded",
            "threads_that_race_never_hold_a_mutex_together",
            "no_rival_is_granted_while_a_holder_whose_time_is_up_still_runs",
        ],
    ),
    (Flaw::ReusesTokens, &["tokens_rise_with_every_grant", "tokens_rise_over_idle_times"]),
    (Flaw::LetsWithdrawnRequestsIn, &["a_withdrawn_request_never_takes_effect"]),
    (Flaw::WakesLate, &["next_returns_within_its_bound_of_the_grant"]),
    (
        Flaw::IgnoresWithdrawals,
        &["a_withdrawn_request_leaves_nothing", "a_dropped_enter_once_withdrawn_strands_nothing"],
    ),
    (Flaw::RejoinsAtTheTail, &["waiters_are_granted_in_arrival_order", "the_granted_are_a_prefix_of_the_queue"]),
    (Flaw::IgnoresCapacities, &["one_queue_has_one_capacity", "a_name_is_one_kind_of_lock_at_a_time"]),
    (
        Flaw::ForgetsRequests,
        &["the_same_request_finds_the_same_place", "a_request_whose_reply_was_lost_is_found_again"],
    ),
    (Flaw::KeepsRefusedTries, &["a_try_that_is_refused_leaves_nothing", "a_try_names_the_holder_and_leaves_nothing"]),
    (Flaw::LeavesByName, &["leaving_is_repeatable_and_gives_up_one_incarnation_only"]),
    (
        Flaw::LeavesNothing,
        &[
            "a_departure_is_final",
            "an_idle_name_leaves_nothing",
            "a_reader_that_never_leaves_costs_writers_their_patience_and_others_nothing",
            "the_limit_of_a_hold_ends_the_wait_for_one_that_never_leaves",
        ],
    ),
    (
        Flaw::NeverExpires,
        &[
            "a_dead_sessions_places_go_in_time",
            "an_expired_session_is_reported_as_expired",
            "locks_that_dead_clients_held_together_come_back_in_time",
            "a_waiter_that_dies_before_it_learns_of_its_grant_delays_no_other_for_long",
        ],
    ),
    (Flaw::KeepsTheEndToItself, &["an_expired_session_is_reported_as_expired"]),
    (Flaw::TellsTheEndTwice, &["an_expired_session_is_reported_as_expired"]),
    (
        Flaw::ForgetsItsEnd,
        &["an_expired_session_is_reported_as_expired", "a_closed_session_has_ended_and_takes_nothing_more"],
    ),
    (Flaw::ForgetsRenewals, &["a_renewed_session_outlives_its_ttl"]),
    (Flaw::RenewsBlindly, &["a_renewal_names_what_is_gone"]),
    (Flaw::NeverCloses, &["closing_a_session_ends_its_places_and_no_others"]),
    (
        Flaw::KeepsDowngradesToItself,
        &[
            "a_lighter_claim_lets_in_whom_it_makes_room_for",
            "a_lost_place_cannot_be_made_lighter",
            "a_downgrade_keeps_its_token_and_is_refused_while_the_writer_was_entered_again",
        ],
    ),
    (Flaw::GivesUpDowngradesInDoubt, &["a_downgrade_whose_answer_was_lost_is_found_done"]),
    (Flaw::DowngradesByTwoPlaces, &["wherever_a_downgrade_is_dropped_the_place_is_one"]),
    (
        Flaw::ServesBehindFewHolders,
        &["three_hundred_share_two_hundred_permits_in_order", "hundreds_of_readers_hold_together_between_writers"],
    ),
    (Flaw::OnlyMutexesExclude, &["the_capacity_is_never_exceeded", "readers_share_and_writers_do_not"]),
    (
        Flaw::WakesEverybody,
        &["a_departure_wakes_one_more_than_it_lets_in_at_most", "readers_and_permits_are_woken_as_sparingly"],
    ),
    (Flaw::WaitsForever, &["next_returns_when_its_time_is_up"]),
    (Flaw::WaitsThoughGranted, &["next_returns_at_once_when_granted"]),
    (Flaw::LosesWakesWhenDropped, &["a_dropped_next_loses_no_wake_up"]),
    (Flaw::BreaksWhoeverHolds, &["a_break_ends_the_grant_it_names_and_no_later_one"]),
    (Flaw::ForgetsBreaks, &["a_broken_holder_gets_the_reason_and_a_record_is_kept"]),
    (Flaw::KeepsBreaksToItself, &["a_section_behind_a_lent_guard_is_notified_of_its_break"]),
    (Flaw::TakesNotesOfAnybody, &["a_note_is_written_by_the_current_holder_alone"]),
    (Flaw::ForgetsNotes, &["a_note_outlives_its_grant_until_it_is_deleted_or_expires"]),
    (Flaw::HidesWaiters, &["the_queue_shows_holders_and_waiters"]),
    (Flaw::ShowsNewcomersFirst, &["no_place_appears_ahead_of_one_already_visible"]),
    (Flaw::CountsThePage, &["a_queue_is_read_by_pages_and_in_short"]),
    (Flaw::StandsStillForCrowds, &["a_crowd_that_gives_up_together_delays_no_other_client"]),
    (Flaw::CountsWaitersTwice, &["a_waiter_that_left_is_not_counted"]),
    (Flaw::TellsOfEverybody, &["looks_refusals_and_renewals_cost_the_same_however_many_wait"]),
    (Flaw::MisplacesTheMiddle, &["a_queue_is_read_by_pages_and_in_short"]),
    (Flaw::ListsIdleNames, &["an_idle_name_leaves_nothing", "names_lists_what_is_queued_for"]),
    (Flaw::FoldsCase, &["names_that_differ_never_share_a_queue"]),
    (Flaw::ClaimsNoTokens, &["the_capability_tells_the_truth"]),
    (Flaw::ReadersExclude, &["readers_share_and_writers_do_not", "every_schedule_agrees_with_the_rule"]),
    (Flaw::MakesTheFirstWait, &["the_first_contender_is_granted_at_once"]),
    (Flaw::ForgetsDeparturesOfWaiters, &["a_waiter_that_departs_lets_in_whom_it_held_up"]),
    (Flaw::LetsInAtOnce, &["an_answer_at_once_is_the_one_that_enter_gives"]),
    (Flaw::KeepsWhatItDoesNotAnswer, &["no_answer_at_once_leaves_anything_or_takes_time"]),
    (Flaw::StandsStillAtOnce, &["no_answer_at_once_leaves_anything_or_takes_time"]),
    (
        Flaw::RefusesCrowds,
        &["short_waits_for_a_held_lock_are_no_outage", "a_thousand_short_waits_for_a_held_lock_are_no_outage"],
    ),
    (Flaw::ServesFewWaiters, &["a_thousand_waiters_are_all_served_in_order"]),
];

const SEED: u64 = 0x5eed;

/// The claims with which a law is tried.
fn wholes_of(law: &Law) -> Vec<Claim> {
    wholes().into_iter().take(if law.is_exclusive { 3 } else { 1 }).collect()
}

#[test]
fn every_mutant_fails_the_law_named_for_it() {
    let mut wrong = Vec::new();
    for (flaw, expected) in MUTANTS {
        for name in *expected {
            let law = laws().iter().find(|law| law.name == *name).unwrap();
            for whole in wholes_of(law) {
                match run_by(whole, law, Arc::new(Mutant::new(*flaw)), SEED) {
                    Err(Fault::Broken(_)) => {}
                    verdict => wrong.push(format!("{flaw:?}: {name} by {whole} is {verdict:?}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "seed {SEED}: mutants that were not noticed:\n{}", wrong.join("\n"));
}

#[test]
fn every_law_is_failed_by_a_mutant() {
    let caught: BTreeSet<_> = MUTANTS.iter().flat_map(|(_, laws)| laws.iter().copied()).collect();
    let all: BTreeSet<_> = laws().iter().map(|law| law.name).collect();
    assert_eq!(caught, all);
}

#[test]
fn the_wrapper_of_the_mutants_breaks_nothing_by_itself() {
    for law in laws() {
        for whole in wholes_of(law) {
            let verdict = run_by(whole, law, Arc::new(Mutant::new(Flaw::None)), SEED);
            assert_eq!(verdict, Ok(()), "{} by {whole}", law.name);
        }
    }
}

#[test]
fn flaws_with_other_claims_than_a_mutexs_are_noticed_by_the_same_laws() {
    let law = laws().iter().find(|law| law.name == "a_mutex_has_one_holder").unwrap();
    let broken =
        wholes().map(|whole| run_by(whole, law, Arc::new(Mutant::new(Flaw::OnlyMutexesExclude)), SEED).is_err());
    assert_eq!(broken, [false, true, true]);
}

/// A store without faults that a test can inject.
struct Untroubled;

impl Fixture for Untroubled {
    fn process(&self) -> BoxFuture<'_, fencelock::Result<Process>> {
        Box::pin(async {
            let Process { store, .. } = MemoryFixture::default().process().await?;
            Ok(Process { store, faults: Arc::new(NoFaults) })
        })
    }
}

#[test]
fn an_excuse_must_be_needed_and_say_what_is_so() {
    const LAW: &str = "tokens_rise_with_every_grant";
    let excuse = |rest: &str| format!("[[excused]]\nstore = \"x\"\nlaw = \"{LAW}\"\n{rest}");
    let kept = || Arc::new(MemoryFixture::default());
    let broken = || Arc::new(Mutant::new(Flaw::ReusesTokens));
    let inapplicable = || Arc::new(Mutant::new(Flaw::ClaimsNoTokens));
    let (none, excused, admitted) = ("", excuse("reason = \"r\""), excuse("reason = \"r\"\nbroken = true"));
    judge("x", LAW, kept(), none, SEED).unwrap();
    judge("y", LAW, kept(), &excused, SEED).unwrap();
    judge("x", LAW, inapplicable(), &excused, SEED).unwrap();
    judge("x", LAW, broken(), &admitted, SEED).unwrap();
    judge("x", LAW, kept(), &excused, SEED).unwrap_err();
    judge("x", LAW, broken(), none, SEED).unwrap_err();
    judge("x", LAW, broken(), &excused, SEED).unwrap_err();
    // A law that the capability rules out needs no excuse.
    judge("x", LAW, inapplicable(), none, SEED).unwrap();
    judge("x", "a_request_whose_reply_was_lost_is_found_again", Arc::new(Untroubled), none, SEED).unwrap_err();
    judge("x", LAW, inapplicable(), &admitted, SEED).unwrap_err();
    for bad in [
        excuse("reason = \" \""),
        excuse(""),
        excuse("reason = \"r\"").replace("tokens_", ""),
        [excused.as_str(); 2].join("\n"),
    ] {
        read_excuses(&bad).unwrap_err();
    }
    read_excuses(fencelock_conformance::EXCUSED).unwrap();
}
