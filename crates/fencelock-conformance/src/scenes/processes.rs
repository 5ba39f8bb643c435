//! Holders that die or sleep.

use fencelock::FencingToken;

use super::holder::Holder;
use super::{LOCK, Stage, now, pass, rival, until_contenders};
use crate::harness::{Outage, Resource};

pub(super) fn a_killed_holder_is_followed_within_the_ttl_and_the_slack(stage: &Stage) {
    stage.block_on(async {
        for _round in 0..3 {
            let mut holder = Holder::start(stage, 0);
            let other = stage.connect(1).await;
            let waiting = rival(&other);
            until_contenders(&other, 2).await;
            holder.kill();
            let killed = now();
            let (guard, granted) = waiting.await.unwrap();
            let capability = other.capability();
            let bound = other.timing().ttl + capability.detection_slack + capability.wake_bound;
            let took = granted.since(killed);
            println!("followed after {took:?}, at most {bound:?} were promised");
            assert!(took <= bound, "followed after {took:?}, and {bound:?} were promised");
            guard.release().await.unwrap();
            other.close().await.unwrap();
        }
    });
}

pub(super) fn a_holder_stopped_past_its_session_knows_at_its_first_look_and_its_late_writes_are_refused(stage: &Stage) {
    stage.block_on(async {
        let mut holder = Holder::start(stage, 0);
        let other = stage.connect(1).await;
        let waiting = rival(&other);
        until_contenders(&other, 2).await;
        holder.stop();
        // It reads this first of all when it goes on.
        holder.look();
        let (guard, _) = waiting.await.unwrap();
        let resource = Resource::open(&stage.directory, LOCK).unwrap();
        assert!(resource.write(guard.token().map_or(0, FencingToken::to_i64)).unwrap());
        // It must know by its own clock: no word of the store reaches it.
        stage.strike(Outage::WorkerCut, 0, 0);
        holder.go_on();
        assert_eq!(holder.says(), "lost, 0 late writes accepted");
        stage.heal();
        pass(stage.site.ttl() / 4).await;
        guard.check().unwrap();
        guard.release().await.unwrap();
    });
}
