//! The store `redis:` on real servers: who refuses us and how, servers in trouble, memory that is lost, clocks that jump,
//! answers and messages that never come.
//!
//! What went wrong in Redisson's locks, by the numbers of its issues, and what would notice it here. Scenes are in
//! `fencelock-conformance` and played by `redis_scenes` of `fencelock-torture`; laws are in `fencelock-conformance`.
//!
//! | issue | what went wrong | here |
//! |---|---|---|
//! | 2714, 4368 | a grant comes after its caller left, and is renewed for ever | scenes `an_acquire_dropped_at_any_await_leaves_nothing`, `what_was_held_back_past_its_withdrawal_never_takes_effect`; `one_answer_lost_at_withdraw_strands_nothing` |
//! | 7272 | a key is renewed that nobody holds | cannot exist: a session is renewed, and no lock; law `leaving_is_repeatable_and_gives_up_one_incarnation_only` |
//! | 3194 | no renewal after a reconnect | scene `a_lock_outlives_a_restart_of_every_connection`; `one_answer_lost_at_renew_costs_no_lock` |
//! | 1602 | a release fails and renewal goes on | `one_answer_lost_at_leave_gives_up_this_grant_and_no_later_one`, `a_release_while_the_way_is_cut_is_made_up_for` |
//! | 6144, 6962 | renewal ends after one exception, or with many locks | `one_answer_lost_at_renew_costs_no_lock`, `a_session_is_renewed_by_a_server_without_memory`; one renewal for any number of locks |
//! | 5761, 5762 | messages are missed, and waiters hang | `a_message_that_dies_with_its_connection_is_repaired`, `a_message_that_the_server_drops_is_repaired_by_looking`, `a_subscription_of_its_own_that_ends_is_made_again_and_nobody_is_forgotten` |
//! | 3577, 2575, 4064 | the subscriptions of many waiters run out or leak | cannot exist: one channel for each client; scene `a_crowd_of_waiters_is_served_in_order_through_a_reset_of_all_connections` |
//! | 1104, 2100 | the times of waiters that are gone add up | no place has a time of its own; scene `a_killed_holder_is_followed_within_the_ttl_and_the_slack` |
//! | 757, 5019, 6150 | a try that failed, or a program that died, stays in the queue | scene `an_acquire_dropped_at_any_await_while_it_waits_leaves_nothing`; the census after every drill |
//! | 3004 | a living waiter is evicted for its age | cannot exist: age is not looked at; law `a_renewed_session_outlives_its_ttl` |
//! | 3994, 4822, 4706 | a lock is granted although no replica has it | cannot be refused by one server, which the capability's certainty says; `tokens_rise_over_a_failover_that_lost_the_last_grants` |
//! | 4871, 6651, 6844 | a release tried again is told that the lock is not held | `one_answer_lost_at_leave_gives_up_this_grant_and_no_later_one` |
//! | 891, 7098, 7251 | a reader's release ends a writer's grant, or another's | places are named by request; `one_answer_lost_at_lighten_leaves_a_reader_or_a_writer_and_no_gap` |
//! | 2172, 2018, 4818 | several locks taken as one | cannot exist: there is no such lock |
//! | 2224, 4467, 6878 | two tasks of one thread both hold | cannot exist: whoever holds is a request, no thread; law `the_same_request_finds_the_same_place` |

mod clocks;
mod cuts;
mod lab;
mod memory;
mod refusals;
mod trouble;
mod ways;
