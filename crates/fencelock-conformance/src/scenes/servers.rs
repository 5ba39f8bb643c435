//! Servers that die under a lock that is held.

use super::{Stage, is_kept_for, mutex, rival, until_contenders};
use fencelock_lab::Outage;

/// The length of the two clients' sessions, in sessions of the site. An election and a reconnect must fit into a session on
/// a busy machine, too.
const SESSIONS: u32 = 2;

pub(super) fn a_held_lock_outlives_its_leader(stage: &Stage) {
    is_held_through(stage, &[(Outage::LeaderKilled, 0)]);
}

pub(super) fn a_held_lock_outlives_a_restart_of_every_server(stage: &Stage) {
    // The number draws the server that restarts.
    is_held_through(stage, &[0, 1, 2].map(|server| (Outage::ServerRestarted, server)));
}

/// The servers fail in turn, and each outage is mended before the next.
fn is_held_through(stage: &Stage, outages: &[(Outage, u64)]) {
    stage.block_on(async {
        let ttl = stage.site.ttl() * SESSIONS;
        let (holder, other) = (stage.connect_for(SESSIONS, 0).await, stage.connect_for(SESSIONS, 1).await);
        let guard = mutex(&holder).acquire().await.unwrap();
        let waiting = rival(&other);
        until_contenders(&other, 2).await;
        for (outage, random) in outages {
            stage.strike(*outage, 0, *random);
            // The store serves again, and its new leader knows both contenders.
            until_contenders(&holder, 2).await;
            until_contenders(&other, 2).await;
            guard.check().unwrap();
            stage.heal();
        }
        // A session that the new leader did not take over would end within this time.
        is_kept_for(ttl + ttl / 4, guard, waiting).await;
        until_contenders(&other, 0).await;
    });
}
