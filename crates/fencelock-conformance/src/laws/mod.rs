//! The laws, one function each, named by its sentence.

pub mod admission;
pub mod at_once;
pub mod breaks;
pub mod costs;
pub mod crowds;
pub mod departed;
pub mod identity;
pub mod lighter;
pub mod limits;
pub mod notes;
pub mod primitives;
pub mod schedules;
pub mod time;
pub mod tokens;
pub mod view;

use futures_core::future::LocalBoxFuture;

use crate::world::{Verdict, World};

/// A law of every store.
#[derive(Clone, Copy)]
pub struct Law {
    /// The law as a sentence, in words joined by underscores.
    pub name: &'static str,
    /// Whether the law is about exclusive locks: writers and holders of all permits keep it as well.
    pub is_exclusive: bool,
    /// Tries the law on the store of a world.
    pub run: fn(World) -> LocalBoxFuture<'static, Verdict>,
}

/// The parts of the contract that a store may offer. Each tier includes the tiers before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Places: exclusion, order, tokens, sessions that end, requests that are withdrawn.
    Lock,
    /// Looks at queues and names.
    Look,
    /// Grants that can be broken, and the records of it.
    Break,
}

/// The laws about views of queues and names.
const LOOK: &[&str] = &[
    "the_queue_shows_holders_and_waiters",
    "a_queue_is_read_by_pages_and_in_short",
    "names_lists_what_is_queued_for",
    "no_place_appears_ahead_of_one_already_visible",
    "a_try_names_the_holder_and_leaves_nothing",
    "a_waiter_that_left_is_not_counted",
    "looks_refusals_and_renewals_cost_the_same_however_many_wait",
];
/// The laws about grants that are broken.
const BREAK: &[&str] = &[
    "a_break_ends_the_grant_it_names_and_no_later_one",
    "a_broken_holder_gets_the_reason_and_a_record_is_kept",
    "a_section_behind_a_lent_guard_is_notified_of_its_break",
];

impl Law {
    /// The lowest tier of stores that must keep the law.
    #[must_use]
    pub fn tier(&self) -> Tier {
        match self.name {
            name if BREAK.contains(&name) => Tier::Break,
            name if LOOK.contains(&name) => Tier::Look,
            _ => Tier::Lock,
        }
    }
}

/// Hands the list of all laws to another macro: first the laws of exclusive locks, which are tried with every claim to a whole
/// lock, then all other laws; then the same two of the laws that judge real time, or load a server.
#[doc(hidden)]
#[macro_export]
macro_rules! with_laws {
    ($then:ident $arguments:tt) => {
        $crate::$then! { $arguments [
            admission::a_mutex_has_one_holder,
            admission::waiters_are_granted_in_arrival_order,
            admission::a_try_that_is_refused_leaves_nothing,
            admission::names_that_differ_never_share_a_queue,
            at_once::an_answer_at_once_is_the_one_that_enter_gives,
            identity::the_same_request_finds_the_same_place,
            identity::a_departure_is_final,
            identity::leaving_is_repeatable_and_gives_up_one_incarnation_only,
            identity::a_withdrawn_request_leaves_nothing,
            identity::a_dropped_enter_once_withdrawn_strands_nothing,
            identity::a_dropped_next_loses_no_wake_up,
            identity::closing_a_session_ends_its_places_and_no_others,
            identity::no_place_appears_ahead_of_one_already_visible,
            identity::a_request_whose_reply_was_lost_is_found_again,
            tokens::tokens_rise_with_every_grant,
            tokens::tokens_rise_over_idle_times,
            time::next_returns_at_once_when_granted,
            time::a_closed_session_has_ended_and_takes_nothing_more,
            time::a_renewal_names_what_is_gone,
            breaks::a_break_ends_the_grant_it_names_and_no_later_one,
            breaks::a_broken_holder_gets_the_reason_and_a_record_is_kept,
            notes::a_note_is_written_by_the_current_holder_alone,
            notes::a_note_outlives_its_grant_until_it_is_deleted_or_expires,
            view::the_queue_shows_holders_and_waiters,
            view::a_queue_is_read_by_pages_and_in_short,
            view::names_lists_what_is_queued_for,
            view::an_idle_name_leaves_nothing,
            schedules::a_departure_wakes_one_more_than_it_lets_in_at_most,
        ] [
            admission::the_first_contender_is_granted_at_once,
            admission::the_capacity_is_never_exceeded,
            admission::the_granted_are_a_prefix_of_the_queue,
            admission::readers_share_and_writers_do_not,
            admission::a_lighter_claim_lets_in_whom_it_makes_room_for,
            admission::a_waiter_that_departs_lets_in_whom_it_held_up,
            admission::one_queue_has_one_capacity,
            at_once::no_answer_at_once_leaves_anything_or_takes_time,
            identity::a_withdrawn_request_never_takes_effect,
            view::the_capability_tells_the_truth,
            schedules::every_schedule_agrees_with_the_rule,
            schedules::readers_and_permits_are_woken_as_sparingly,
            lighter::a_downgrade_whose_answer_was_lost_is_found_done,
            lighter::wherever_a_downgrade_is_dropped_the_place_is_one,
            lighter::a_lost_place_cannot_be_made_lighter,
            primitives::a_reader_that_never_leaves_costs_writers_their_patience_and_others_nothing,
            primitives::the_limit_of_a_hold_ends_the_wait_for_one_that_never_leaves,
            primitives::a_try_names_the_holder_and_leaves_nothing,
            primitives::a_downgrade_keeps_its_token_and_is_refused_while_the_writer_was_entered_again,
            primitives::a_name_is_one_kind_of_lock_at_a_time,
            primitives::a_section_behind_a_lent_guard_is_notified_of_its_break,
            limits::a_waiter_that_left_is_not_counted,
            limits::short_waits_for_a_held_lock_are_no_outage,
        ] [
            time::next_returns_when_its_time_is_up,
            time::a_dead_sessions_places_go_in_time,
            time::a_renewed_session_outlives_its_ttl,
            time::an_expired_session_is_reported_as_expired,
            schedules::threads_that_race_never_hold_a_mutex_together,
        ] [
            time::next_returns_within_its_bound_of_the_grant,
            departed::locks_that_dead_clients_held_together_come_back_in_time,
            departed::a_waiter_that_dies_before_it_learns_of_its_grant_delays_no_other_for_long,
            crowds::a_thousand_waiters_are_all_served_in_order,
            crowds::three_hundred_share_two_hundred_permits_in_order,
            crowds::hundreds_of_readers_hold_together_between_writers,
            limits::no_rival_is_granted_while_a_holder_whose_time_is_up_still_runs,
            limits::a_crowd_that_gives_up_together_delays_no_other_client,
            limits::a_thousand_short_waits_for_a_held_lock_are_no_outage,
            costs::looks_refusals_and_renewals_cost_the_same_however_many_wait,
        ] }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __law_list {
    (() [$($a:ident :: $first:ident,)*] [$($b:ident :: $law:ident,)*]
        [$($c:ident :: $timed_first:ident,)*] [$($d:ident :: $timed:ident,)*]) => {
        &[
            $($crate::__law!($a $first true),)*
            $($crate::__law!($b $law false),)*
            $($crate::__law!($c $timed_first true),)*
            $($crate::__law!($d $timed false),)*
        ]
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __law {
    ($group:ident $law:ident $exclusive:literal) => {
        $crate::Law {
            name: stringify!($law),
            is_exclusive: $exclusive,
            run: |world| Box::pin($crate::laws::$group::$law(world)),
        }
    };
}

/// Every law, in the order in which they are best read.
#[must_use]
pub fn laws() -> &'static [Law] {
    crate::with_laws!(__law_list())
}
