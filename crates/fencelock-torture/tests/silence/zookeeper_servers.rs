//! Servers of ZooKeeper whose process is stopped: they fall silent and keep their connections.

use crate::common::silence::{Silence, every_holder_keeps_its_lock, rounds, settings};
use fencelock_testbed::zookeeper::Ensemble;

fn stop_one_of(servers: usize, rounds: usize) {
    let ensemble = Ensemble::start(settings(servers)).unwrap();
    every_holder_keeps_its_lock(&ensemble, None, &[Silence::Stopped], rounds);
}

#[test]
fn idle_holders_with_the_default_ttl_survive_the_silence_of_one_follower_of_three() {
    stop_one_of(3, rounds(2));
}

#[test]
fn idle_holders_with_the_default_ttl_survive_the_silence_of_one_follower_of_five() {
    stop_one_of(5, rounds(1));
}
