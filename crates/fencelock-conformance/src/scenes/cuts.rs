//! The network between a holder and its store.

use fencelock::Loss;

use super::{LONG, Stage, is_kept_for, mutex, now, pass, release, rival, until_contenders};
use fencelock_lab::Outage;

pub(super) fn a_client_cut_for_less_than_its_session_keeps_its_lock(stage: &Stage) {
    stage.block_on(async {
        let (holder, other) = (stage.connect(0).await, stage.connect_for(LONG, 1).await);
        let guard = mutex(&holder).acquire().await.unwrap();
        let waiting = rival(&other);
        until_contenders(&other, 2).await;
        // Waits for renewals: a working session was confirmed a moment ago.
        pass(stage.site.ttl() / 2).await;
        stage.strike(Outage::WorkerCut, 0, 0);
        pass(stage.site.ttl() / 6).await;
        stage.heal();
        is_kept_for(stage.site.ttl() * 2, guard, waiting).await;
    });
}

pub(super) fn a_client_cut_beyond_its_session_is_notified_before_a_rival_is_granted(stage: &Stage) {
    is_notified_before_a_rival_is_granted(stage, Outage::WorkerCut);
}

pub(super) fn a_client_whose_answers_are_swallowed_is_notified_before_a_rival_is_granted(stage: &Stage) {
    is_notified_before_a_rival_is_granted(stage, Outage::WorkerHoled);
}

/// The outage hits the holder alone, and is not mended before the rival is granted: only the end of the
/// holder's session can have granted it.
fn is_notified_before_a_rival_is_granted(stage: &Stage, outage: Outage) {
    stage.block_on(async {
        let (holder, other) = (stage.connect(0).await, stage.connect_for(LONG, 1).await);
        let guard = mutex(&holder).acquire().await.unwrap();
        let waiting = rival(&other);
        until_contenders(&other, 2).await;
        stage.strike(outage, 0, 0);
        let loss = guard.lost().await;
        let told = now();
        assert!(matches!(loss, Loss::Unconfirmed | Loss::Expired), "{loss}");
        assert!(guard.check().is_err());
        let (granted, at) = waiting.await.unwrap();
        assert!(told < at, "notified {:?} after the rival's grant", told.since(at));
        assert!(granted.token() > guard.token());
        stage.heal();
        // The holder's client works like a new one.
        release(granted).await;
        release(mutex(&holder).acquire().await.unwrap()).await;
        until_contenders(&other, 0).await;
    });
}

pub(super) fn a_lock_outlives_a_restart_of_every_connection(stage: &Stage) {
    stage.block_on(async {
        let (holder, other) = (stage.connect_for(LONG, 0).await, stage.connect_for(LONG, 1).await);
        let guard = mutex(&holder).acquire().await.unwrap();
        let waiting = rival(&other);
        until_contenders(&other, 2).await;
        for _reset in 0..3 {
            stage.strike(Outage::ConnectionsReset, 0, 0);
            until_contenders(&holder, 2).await;
            until_contenders(&other, 2).await;
            guard.check().unwrap();
        }
        release(guard).await;
        // The watch that notifies the rival survived the connections.
        release(waiting.await.unwrap().0).await;
        until_contenders(&other, 0).await;
    });
}
