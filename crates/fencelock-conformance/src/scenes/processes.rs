//! Holders that die or sleep.

use std::time::Duration;

use fencelock::FencingToken;

use super::holder::Holder;
use super::{LOCK, Stage, now, pass, release, rival, until_contenders};
use fencelock_lab::{Outage, Resource};

/// The hand-over of a lock whose holder was killed.
#[derive(Debug, Clone, Copy)]
pub struct Takeover {
    /// The time from the kill to the grant of the next holder.
    pub took: Duration,
    /// How long sessions live unrenewed.
    pub ttl: Duration,
    /// The longest such time that the store promises.
    pub bound: Duration,
}

/// Kills a process that holds a lock on `stage` while another one waits for it, and measures when that one is granted.
#[must_use]
pub fn takeover(stage: &Stage) -> Takeover {
    stage.block_on(async {
        let mut holder = Holder::start(stage, 0);
        let other = stage.connect(1).await;
        let waiting = rival(&other);
        until_contenders(&other, 2).await;
        holder.kill();
        let killed = now();
        let (guard, granted) = waiting.await.unwrap();
        let (ttl, capability) = (other.timing().ttl, other.capability());
        let bound = ttl + capability.detection_slack + capability.wake_bound;
        release(guard).await;
        other.close().await.unwrap();
        Takeover { took: granted.since(killed), ttl, bound }
    })
}

pub(super) fn a_killed_holder_is_followed_within_the_ttl_and_the_slack(stage: &Stage) {
    for _round in 0..3 {
        let Takeover { took, bound, .. } = takeover(stage);
        println!("bound: a killed holder is followed: {:.2} s of {:.2} s", took.as_secs_f64(), bound.as_secs_f64());
        assert!(took <= bound, "followed after {took:?}, and {bound:?} were promised");
    }
}

pub(super) fn a_holder_stopped_past_its_session_knows_at_its_first_look_and_its_late_writes_are_refused(stage: &Stage) {
    stage.block_on(async {
        let mut holder = Holder::start(stage, 0);
        let other = stage.connect(1).await;
        let waiting = rival(&other);
        until_contenders(&other, 2).await;
        holder.stop();
        // The holder reads this first of all when it continues.
        holder.look();
        let (guard, _) = waiting.await.unwrap();
        let resource = Resource::open(&stage.directory, LOCK).unwrap();
        assert!(resource.write(guard.token().map_or(0, FencingToken::to_i64)).unwrap());
        // The holder must notice by its own clock: no message of the store reaches it.
        stage.strike(Outage::WorkerCut, 0, 0);
        holder.go_on();
        assert_eq!(holder.says(), "lost, 0 late writes accepted");
        stage.heal();
        pass(stage.site.ttl() / 4).await;
        guard.check().unwrap();
        release(guard).await;
    });
}
