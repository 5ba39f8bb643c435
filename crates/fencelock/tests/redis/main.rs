//! The store `redis:` on real servers: refusals, servers in trouble, replies and messages that never come. Memory that is lost, clocks
//! that jump, servers that end and short ttls: `tests/deep/redis/`.
//!
//! Faults of Redisson's locks, by the numbers of its issues, and the tests that would find them here. Scenes are in
//! `fencelock-conformance` and played by `failures::scenes` of `fencelock-torture`; laws are in `fencelock-conformance`; tests of
//! the scripts alone are in `stores/redis/fair/scripts/tests`, and stand last.
//!
//! | issue | fault | here | |---|---|---|
//! | 2714, 4368 | a grant comes after its caller left, and is renewed for ever | scenes `an_acquire_dropped_at_any_await_leaves_nothing`, `a_request_held_back_past_its_withdrawal_never_takes_effect`; `one_answer_lost_at_withdraw_strands_nothing`; `a_withdrawn_request_never_takes_effect_however_late_it_comes`, `a_dropped_enter_once_withdrawn_strands_nothing` |
//! | 7272 | a key without a holder is renewed | cannot exist: a session is renewed, and no lock; law
//! `leaving_is_repeatable_and_gives_up_one_incarnation_only`; `a_session_with_thousands_of_locks_is_renewed_at_once` |
//! | 3194 | no renewal after a reconnect | scene `a_lock_outlives_a_restart_of_every_connection`; `one_answer_lost_at_renew_costs_no_lock`; `a_new_connection_of_a_session_outdates_what_the_old_one_held_up` |
//! | 1602 | a release fails and renewal continues | `one_answer_lost_at_leave_gives_up_this_grant_and_no_later_one`,
//! `a_release_while_the_way_is_cut_is_made_up_for`; `a_release_retried_after_a_lost_reply_never_ends_a_newer_grant` |
//! | 6144, 6962 | renewal ends after one exception, or with many locks | `one_answer_lost_at_renew_costs_no_lock`,
//! `a_session_is_renewed_by_a_server_without_memory`; a session renews all its locks at once |
//! | 5761, 5762 | messages are missed, and waiters hang | `a_message_that_dies_with_its_connection_is_repaired`, `a_message_that_the_server_drops_is_repaired_by_looking`; `a_waiter_that_looks_when_the_server_asks_finds_the_dead_holder_gone` |
//! | 3577, 2575, 4064 | the subscriptions of many waiters run out or leak | cannot exist: a client has one channel; scene
//! `a_crowd_of_waiters_is_served_in_order_through_a_reset_of_all_connections`;
//! `many_readers_are_let_in_at_once_by_one_message_for_each_session` |
//! | 1104, 2100 | the times of waiters that are gone add up | no place has a time of its own; scene `a_killed_holder_is_followed_within_the_ttl_and_the_slack`; `a_waiter_that_is_dead_when_its_turn_comes_is_passed_over` |
//! | 757, 5019, 6150 | a try that failed, or a program that died, stays in the queue | scene `an_acquire_dropped_at_any_await_while_it_waits_leaves_nothing`; the census after every drill; `a_try_finds_the_lock_of_a_dead_holder_free`, `a_dead_waiter_delays_no_other_for_longer_than_its_lease` |
//! | 3004 | a living waiter is evicted for its age | cannot exist: the server's age is not checked; law `a_renewed_session_outlives_its_ttl`; `a_renewed_holder_is_not_taken_for_dead_and_the_next_look_is_later` |
//! | 3994, 4822, 4706 | a lock is granted although no replica has it | cannot be refused by one server, which the capability's certainty says; `tokens_rise_over_a_failover_that_lost_the_last_grants` |
//! | 4871, 6651, 6844 | a repeated release gets the error that the lock is not held |
//! `one_answer_lost_at_leave_gives_up_this_grant_and_no_later_one`; `the_scripts_answer_as_the_rule_does_in_150_queues`,
//! `leaving_is_repeatable_and_gives_up_one_incarnation_only` |
//! | 891, 7098, 7251 | a reader's release ends a writer's grant, or another's | places are named by request; `one_answer_lost_at_lighten_leaves_a_reader_or_a_writer_and_no_gap`; `a_request_left_over_from_an_earlier_session_starts_again_at_the_tail`, `places_of_other_sessions_survive_when_one_closes_with_their_ids` |
//! | 2172, 2018, 4818 | several locks taken as one | `two_callers_with_the_names_in_opposite_orders_never_wait_for_each_other`, the laws in `tests/laws/multi.rs`; `an_ended_session_lets_nothing_in_and_is_not_revived` |
//! | 2224, 4467, 6878 | two tasks of one thread both hold | cannot exist: the holder is a request, no thread; law `the_same_request_finds_the_same_place` |

#[path = "../authority/mod.rs"]
mod authority;
mod canary;
mod cluster;
mod cuts;
mod election;
mod fencing;
mod foreign;
mod lab;
#[path = "../wakes/mod.rs"]
mod line;
mod link;
mod looking;
mod masters;
mod multi;
mod passwords;
#[path = "../patience/mod.rs"]
mod patience;
mod plain;
mod redisson;
mod redisson_shared;
mod redisson_trouble;
mod redlock;
mod refusals;
#[path = "../refused/mod.rs"]
mod refused;
mod sentinel;
mod sticky;
mod theirs;
mod trouble;
mod wakes;
mod ways;
