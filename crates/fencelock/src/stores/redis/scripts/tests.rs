//! The scripts on a real server.
//!
//! What went wrong in Redisson's locks, by its own issues, and which test here would notice it, or why it cannot be:
//!
//! | issue there | what went wrong | here |
//! |---|---|---|
//! | 2714, 4368 | a grant arrives after its caller left, and is renewed for ever | `a_withdrawn_request_never_takes_effect_however_late_it_comes`, the law `a_dropped_enter_once_withdrawn_strands_nothing` |
//! | 7272 | a release before the renewal was scheduled: the key is renewed without a holder | cannot be: nothing is scheduled for a lock, renewal is of the session and touches no place. `a_session_with_thousands_of_locks_is_renewed_by_two_commands` |
//! | 3194 | no renewal after a reconnect | `a_new_connection_of_a_session_outdates_what_the_old_one_held_up`; that sessions go on after a cut is the store's to show |
//! | 1602 | a release failed, but the renewal went on | the engine repeats a failed release: `a_release_retried_after_a_lost_reply_never_ends_a_newer_grant` |
//! | 5761, 5762 | a message is missed, and waiters hang | `a_waiter_that_looks_when_it_is_told_to_finds_the_dead_holder_gone`; the store looks again every so often |
//! | 6144, 6962 | renewal stops: by re-entry, an exception, many locks | cannot be by re-entry, which is local; many locks are one renewal, as above |
//! | 3577, 2575, 4064 | too many subscriptions | cannot be: one channel for each session. `many_readers_are_let_in_at_once_by_one_message_for_each_session` |
//! | 1104, 2100 | the time-outs of waiters who left add up | `whoever_is_dead_when_its_turn_comes_is_passed_over` |
//! | 757, 5019, 6150 | a try that failed, or a crashed waiter, stays in the queue | `who_only_tries_finds_the_lock_of_a_dead_holder_free`, `a_dead_waiter_holds_up_nobody_for_longer_than_its_lease` |
//! | 3004 | a waiter that lives is thrown out as too old | cannot be: waiters live by their session alone. `a_renewed_holder_is_not_taken_for_dead_and_the_next_look_is_later` |
//! | 3994, 4822, 4706 | the answer of WAIT is not looked at | cannot be: no grant waits for replicas; `capability.certainty` says what that means |
//! | 4871, 6651, 6844 | a release is repeated after its answer was lost, and fails | `the_scripts_answer_as_the_rule_does_by_resp2`, which leaves twice; the law `leaving_is_repeatable_and_gives_up_one_incarnation_only` |
//! | 891, 7098, 7251 | releases of one mode or owner end another's | places are named by request and number: `a_request_left_over_from_an_earlier_session_starts_again_at_the_tail`, `places_of_other_sessions_survive_when_one_closes_with_their_ids` |
//! | 2172, 2018, 4818 | locks of many names granted twice, or released without being there | cannot be yet: no lock spans names. What is not there is said so: `a_session_that_is_over_lets_nothing_in_and_is_not_revived` |
//! | 2224, 4467, 6878 | the thread is the owner | cannot be: no script knows a thread, each request is another contender |

mod bed;
mod costs;
mod differential;
mod edges;
mod leases;
mod numbers;
mod sessions;
