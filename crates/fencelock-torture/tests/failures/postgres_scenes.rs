//! What a lock's users in PostgreSQL see when one thing goes wrong at one moment.

use crate::common::{Servers, Set};
use fencelock_conformance::scenes::{play, scenes};
use fencelock_torture::postgres;

static ONE: Servers<postgres::Servers> = Servers::new(postgres::Servers::start);

/// Nobody is there to follow it.
const NOT_OF_ONE_SERVER: &[&str] = &["a_held_lock_outlives_its_leader"];

macro_rules! scenes_of_one_server {
    ($($scene:ident)*) => {
        const PLAYED: &[&str] = &[$(stringify!($scene)),*];

        $(
            #[test]
            fn $scene() {
                play(stringify!($scene), Set::on(&ONE).as_ref());
            }
        )*
    };
}

scenes_of_one_server! {
    a_client_cut_for_less_than_its_session_keeps_its_lock
    a_client_cut_beyond_its_session_is_told_before_a_rival_is_granted
    a_client_whose_answers_are_swallowed_is_told_before_a_rival_is_granted
    a_held_lock_outlives_a_restart_of_every_server
    a_lock_outlives_a_restart_of_every_connection
    a_killed_holder_is_followed_within_the_ttl_and_the_slack
    a_holder_stopped_past_its_session_knows_at_its_first_look_and_its_late_writes_are_refused
    an_answer_cut_at_any_byte_leaves_one_place_or_none
    what_was_held_back_past_its_withdrawal_never_takes_effect
    an_acquire_dropped_at_any_await_leaves_nothing
    an_acquire_dropped_at_any_await_while_it_waits_leaves_nothing
    a_crowd_of_waiters_is_served_in_order_through_a_reset_of_all_connections
}

#[test]
fn every_scene_is_played_but_those_that_need_servers_that_replicate() {
    for scene in scenes() {
        let named = [PLAYED, NOT_OF_ONE_SERVER].concat().contains(&scene.name);
        assert!(named, "{} is neither played here nor said to be impossible", scene.name);
    }
}
