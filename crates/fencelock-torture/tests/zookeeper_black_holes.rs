//! Hosts of ZooKeeper servers that are cut off: their packets are dropped, and no connection is reset. Needs root.

mod common;

use std::sync::Arc;

use common::silence::{Silence, every_holder_keeps_its_lock, rounds, settings};
use fencelock_testbed::Network;
use fencelock_testbed::zookeeper::{Ensemble, Settings};

/// A single test: a process has one thread of the library, and that thread is in one network only.
#[test]
fn idle_holders_with_the_default_ttl_survive_a_follower_whose_host_is_cut_off() {
    let network = Arc::new(Network::start(5).unwrap());
    for (servers, usual) in [(3, 4), (5, 2)] {
        let ensemble = Ensemble::start(Settings { network: Some(Arc::clone(&network)), ..settings(servers) }).unwrap();
        let ways = [Silence::BlackHole, Silence::NoCable];
        let drill = || every_holder_keeps_its_lock(&ensemble, Some(&network), &ways, rounds(usual));
        network.inside(drill).unwrap();
    }
}
