//! A hundred workers contend for locks on ZooKeeper while servers, network and workers fail.
//!
//! `FENCELOCK_SEED=<number>` decides the schedules; `FENCELOCK_TEST_SERVERS=1` plays with one server instead of three.

use std::sync::Arc;

use crate::common::{Servers, count, drill, drill_at, drill_with};
use fencelock_lab::{Drill, Outage, Site, Strategy, Uses};
use fencelock_testbed::zookeeper::Ensemble;
use fencelock_torture::zookeeper::ZooKeeper;

static SERVERS: Servers<Arc<Ensemble>> = Servers::new(|| ZooKeeper::start(count()));

#[test]
fn workers_that_nobody_hurts_share_their_locks() {
    drill(&SERVERS, Strategy::Calm, 5);
}

#[test]
fn a_leader_that_is_killed_takes_no_lock_with_it() {
    drill(&SERVERS, Strategy::Brief(Outage::LeaderKilled), 3);
}

#[test]
fn a_leader_that_is_paused_and_goes_on_grants_nothing_twice() {
    drill(&SERVERS, Strategy::Long(Outage::LeaderPaused), 2);
}

#[test]
fn a_leader_cut_off_from_everybody_grants_nothing_twice() {
    drill(&SERVERS, Strategy::Long(Outage::LeaderCutOff), 2);
}

#[test]
fn a_follower_cut_off_from_its_leader_alone_grants_nothing_twice() {
    drill(&SERVERS, Strategy::Long(Outage::FollowerCut), 2);
}

#[test]
fn workers_cut_inside_their_sessions_grant_nothing_twice() {
    drill(&SERVERS, Strategy::Brief(Outage::WorkerCut), 3);
}

#[test]
fn workers_cut_beyond_their_sessions_grant_nothing_twice() {
    drill(&SERVERS, Strategy::Long(Outage::WorkerCut), 2);
}

#[test]
fn workers_whose_connections_swallow_everything_grant_nothing_twice() {
    drill(&SERVERS, Strategy::Long(Outage::WorkerHoled), 2);
}

#[test]
fn a_server_that_swallows_everything_is_left() {
    drill(&SERVERS, Strategy::Long(Outage::ServerHoled), 2);
}

#[test]
fn servers_may_be_restarted() {
    drill(&SERVERS, Strategy::Brief(Outage::ServerRestarted), 3);
}

#[test]
fn connections_may_be_reset() {
    drill(&SERVERS, Strategy::Brief(Outage::ConnectionsReset), 4);
}

#[test]
fn answers_may_be_cut_anywhere() {
    let servers = SERVERS.take();
    let site = Arc::new(servers.site(5));
    let verdict = drill_at(Arc::clone(&site) as Arc<dyn Site>, Strategy::Brief(Outage::AnswerCut), 8);
    let struck = verdict.toll.outages[&Outage::AnswerCut] as u64;
    assert!(site.cuts() >= struck, "{} cuts: {verdict}", site.cuts());
}

#[test]
fn bytes_that_were_held_back_for_longer_than_a_session_take_no_effect() {
    drill(&SERVERS, Strategy::Long(Outage::WorkerHeldBack), 2);
}

#[test]
fn holders_that_are_killed_block_nobody() {
    let verdict = drill(&SERVERS, Strategy::KillHolders, 3).unwrap();
    assert!(verdict.toll.killed_holders > 0, "{verdict}");
}

#[test]
fn holders_stopped_past_their_session_write_nothing_late() {
    let verdict = drill(&SERVERS, Strategy::StopHoldersPastTheirSession, 2).unwrap();
    assert!(verdict.toll.stopped_holders > 0, "{verdict}");
}

#[test]
fn a_storm_of_everything_breaks_no_law() {
    drill(&SERVERS, Strategy::Storm, 4);
}

/// Locks that are used so, in a storm of everything.
fn storm(uses: Uses) {
    let servers = SERVERS.take();
    let verdict =
        drill_with(Arc::new(servers.site(5)), Strategy::Storm, |drill| Drill { uses, locks: 3, strikes: 6, ..drill });
    let is_shared = verdict.history.sections.iter().any(|section| !section.claim.is_whole());
    assert!(is_shared, "nobody shared anything: {verdict}");
}

#[test]
fn readers_and_writers_keep_their_laws_in_a_storm() {
    storm(Uses::ReadWriteLocks);
}

#[test]
fn takers_of_permits_keep_their_laws_in_a_storm() {
    storm(Uses::Semaphores);
}

#[test]
fn mutexes_read_write_locks_and_semaphores_beside_each_other_keep_their_laws_in_a_storm() {
    storm(Uses::Mixed);
}
