//! A hundred workers contend for locks on Redis while server, network, clock and workers fail.
//!
//! Two of them may believe in their locks at once only where a loss of memory or a jump of the clock lies between their
//! grants, and resources refuse the older one; see `fencelock_torture::redis`. `FENCELOCK_SEED=<number>` decides the
//! schedules.

use std::sync::Arc;

use crate::common::{Servers, drill, drill_at};
use fencelock_lab::{Outage, Site, Strategy};
use fencelock_torture::redis;

static DURABLE: Servers<redis::Servers> = Servers::new(redis::Servers::durable);
static FORGETFUL: Servers<redis::Servers> = Servers::new(redis::Servers::forgetful);

#[test]
fn workers_that_nobody_hurts_share_their_locks() {
    drill(&DURABLE, Strategy::Calm, 5);
}

#[test]
fn a_server_that_is_killed_and_remembers_grants_nothing_twice() {
    drill(&DURABLE, Strategy::Brief(Outage::LeaderKilled), 2);
}

#[test]
fn a_server_that_is_restarted_and_remembers_grants_nothing_twice() {
    drill(&DURABLE, Strategy::Brief(Outage::ServerRestarted), 3);
}

#[test]
fn a_server_that_is_paused_and_goes_on_grants_nothing_twice() {
    drill(&DURABLE, Strategy::Long(Outage::LeaderPaused), 1);
}

#[test]
fn a_server_that_is_busy_beyond_all_sessions_grants_nothing_twice() {
    drill(&DURABLE, Strategy::Long(Outage::ServerBusy), 1);
}

#[test]
fn a_server_that_lets_everybody_wait_grants_nothing_twice() {
    drill(&DURABLE, Strategy::Long(Outage::ServerWaits), 1);
    drill(&DURABLE, Strategy::Brief(Outage::ServerWaits), 2);
}

#[test]
fn a_server_that_swallows_everything_grants_nothing_twice() {
    drill(&DURABLE, Strategy::Long(Outage::ServerHoled), 1);
}

#[test]
fn workers_cut_grant_nothing_twice() {
    drill(&DURABLE, Strategy::Brief(Outage::WorkerCut), 3);
    drill(&DURABLE, Strategy::Long(Outage::WorkerCut), 1);
}

#[test]
fn workers_whose_connections_swallow_everything_grant_nothing_twice() {
    drill(&DURABLE, Strategy::Long(Outage::WorkerHoled), 1);
}

#[test]
fn connections_may_be_reset() {
    drill(&DURABLE, Strategy::Brief(Outage::ConnectionsReset), 4);
}

#[test]
fn scripts_may_be_forgotten() {
    drill(&DURABLE, Strategy::Brief(Outage::ScriptsForgotten), 4);
}

#[test]
fn answers_may_be_cut_anywhere() {
    let servers = DURABLE.take();
    let site = Arc::new(servers.site(5));
    let verdict = drill_at(Arc::clone(&site) as Arc<dyn Site>, Strategy::Brief(Outage::AnswerCut), 8);
    let struck = verdict.toll.outages[&Outage::AnswerCut] as u64;
    assert!(site.cuts() >= struck, "{} cuts: {verdict}", site.cuts());
}

#[test]
fn bytes_that_were_held_back_for_longer_than_a_session_take_no_effect() {
    drill(&DURABLE, Strategy::Long(Outage::WorkerHeldBack), 1);
}

#[test]
fn holders_that_are_killed_block_nobody() {
    drill(&DURABLE, Strategy::KillHolders, 3);
}

#[test]
fn holders_stopped_past_their_session_write_nothing_late() {
    drill(&DURABLE, Strategy::StopHoldersPastTheirSession, 1);
}

#[test]
fn a_clock_that_jumps_lets_tokens_rise_and_resources_refuse_the_older_ones() {
    drill(&DURABLE, Strategy::Brief(Outage::ClockAhead), 2);
    drill(&DURABLE, Strategy::Brief(Outage::ClockBehind), 2);
}

#[test]
fn memory_that_is_lost_lets_tokens_rise_and_resources_refuse_the_older_ones() {
    drill(&FORGETFUL, Strategy::Brief(Outage::MemoryLost), 4);
    drill(&FORGETFUL, Strategy::Brief(Outage::LeaderKilled), 2);
}

#[test]
fn a_storm_of_everything_breaks_no_law() {
    drill(&DURABLE, Strategy::Storm, 2);
    drill(&FORGETFUL, Strategy::Storm, 2);
}
