//! The store `zk:` while other clients and operators change the same nodes, on real servers.
//!
//! Faults of servers, networks and requests, and the test that proves a clear error, or none, with nothing left behind.
//! Tests of the wire client are in `crates/fencelock-zookeeper/tests`.
//!
//! | fault | here | in the wire client | |---|---|---|
//! | no server there | `edges::where_no_server_listens_the_error_names_the_addresses` | `where_no_server_is_the_error_names_each_address_and_why` |
//! | another service on the port | `reach::a_service_that_is_no_zookeeper_is_recognised_by_its_answer` | `another_service_on_the_port_is_recognised_by_its_answer` |
//! | garbage | the same | `garbage_ends_the_connection_and_not_the_session`, `a_malformed_answer_is_reported_and_harms_nothing_else` |
//! | a frame that stops in the middle | the same | `a_server_that_stops_in_the_middle_of_its_first_frame_is_left`, `a_frame_that_stops_in_the_middle_ends_the_connection_in_time` |
//! | a missing chroot (here a parent, which is made) | `edges::a_request_that_access_lists_forbid_is_denied_and_nothing_is_left` | `a_chroot_that_is_not_there_is_named` |
//! | credentials refused | `reach::servers_that_demand_other_credentials_refuse_and_nothing_is_left` | `credentials_that_no_server_understands_are_refused_at_once`, `credentials_refused_on_a_reconnect_end_the_client` |
//! | access lists that refuse to create, or to delete | `edges::a_request_that_access_lists_forbid_is_denied_and_nothing_is_left`, `edges::a_release_that_is_denied_says_so_and_forgets_nothing` | `a_refusal_of_the_server_has_its_kind_and_names_its_path` |
//! | a quota | `edges::an_exceeded_quota_is_reported` | |
//! | a session timeout that is clamped | `edges::a_ttl_that_the_servers_do_not_grant_is_reported` | `the_session_timeout_is_what_the_server_grants` |
//! | all servers read-only | `tests/deep/zookeeper/reach.rs` | `servers_that_only_read_are_refused_and_named_so` |
//! | three wrong servers and one right | `reach::one_right_server_behind_three_wrong_ones_is_found` | `three_wrong_hosts_do_not_keep_a_client_from_the_right_one` |
//! | IPv6 | `reach::a_server_is_reached_by_an_address_of_ipv6_and_by_a_name` | `a_server_is_reached_by_ipv6` |
//! | several addresses of one name | | `all_addresses_of_a_name_are_tried` |
//! | 64 descriptors | `edges::sixty_four_descriptors_suffice_for_a_thousand_locks_and_a_lack_of_them_is_reported` | |
//! | more than an answer holds | `edges::more_children_than_an_answer_holds_are_reported_and_hide_no_other_name` | `frames_are_limited_before_they_are_sent_and_answers_when_they_come` |
//! | more nodes than a session can be closed with | `tests/deep/zookeeper/many.rs` | |
//! | a sequence at its end | `sequence::an_exhausted_sequence_is_refused_and_nothing_is_left` | `a_sequence_number_at_its_end_is_returned_unchanged` |

mod anew;
#[path = "../authority/mod.rs"]
mod authority;
mod breaks;
mod cuts;
mod edges;
mod foreign;
mod half_way;
mod hand_over;
mod kinds;
mod lab;
mod late;
#[path = "../wakes/mod.rs"]
mod line;
mod notes;
#[path = "../patience/mod.rs"]
mod patience;
mod reach;
#[path = "../refused/mod.rs"]
mod refused;
mod requests;
mod sequence;
mod sticky;
mod stuffed;
mod tls;
mod wakes;
