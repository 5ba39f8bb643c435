//! Requests whose answers, or which themselves, do not come through in time.

use std::time::Duration;

use super::{PATIENCE, Stage, contenders, mutex, now, pass, until_contenders};
use crate::harness::{Outage, Rng};

/// How many cuts there are.
const CUTS: u64 = 24;

/// Further than any answer to one acquire reaches.
const ANSWER: usize = 400;

pub(super) fn an_answer_cut_at_any_byte_leaves_one_place_or_none(stage: &Stage) {
    let mut rng = Rng::new(stage.seed);
    stage.block_on(async {
        let (client, other) = (stage.connect(0).await, stage.connect(1).await);
        for cut in 0..CUTS {
            // The first bytes one by one in steps of a field, then anywhere.
            let after = if cut < 8 { cut * 4 } else { rng.below(ANSWER) as u64 };
            stage.strike(Outage::AnswerCut, 0, after);
            let mutex = mutex(&client);
            match cut % 3 {
                0 => drop(tokio::time::timeout(Duration::from_millis(2), mutex.acquire()).await),
                _ => {
                    let guard =
                        mutex.acquire().await.unwrap_or_else(|error| panic!("cut after {after} bytes: {error}"));
                    let there = contenders(&other).await;
                    assert_eq!(there, 1, "cut after {after} bytes: there are ghosts (seed {})", stage.seed);
                    guard.release().await.unwrap_or_else(|error| panic!("cut after {after} bytes: {error}"));
                }
            }
            until_contenders(&other, 0).await;
        }
    });
}

pub(super) fn what_was_held_back_past_its_withdrawal_never_takes_effect(stage: &Stage) {
    stage.block_on(async {
        let (client, other) = (stage.connect(0).await, stage.connect(1).await);
        // So that nothing is left to be set up on the way of the acquire that is held back.
        mutex(&client).acquire().await.unwrap().release().await.unwrap();
        for wait in [Duration::from_millis(20), stage.site.ttl() / 2] {
            stage.strike(Outage::WorkerHeldBack, 0, 0);
            // Gives up while its request is on the way, and withdraws it by another one.
            let gave_up = tokio::time::timeout(wait, mutex(&client).acquire()).await;
            drop(gave_up);
            let start = now();
            while client.places() > 0 {
                assert!(now().since(start) < PATIENCE, "the withdrawal does not end");
                pass(Duration::from_millis(5)).await;
            }
            // On a connection that is not held back; what was withdrawn is gone.
            until_contenders(&other, 0).await;
            stage.heal();
            let healed = now();
            while now().since(healed) < stage.site.ttl() {
                assert_eq!(contenders(&other).await, 0, "a withdrawn request took effect");
                pass(Duration::from_millis(20)).await;
            }
            mutex(&other).acquire().await.unwrap().release().await.unwrap();
            mutex(&client).acquire().await.unwrap().release().await.unwrap();
        }
    });
}
