//! A hundred workers contend for locks on ZooKeeper while packets between its hosts are dropped. Needs root.

mod common;

use std::sync::Arc;

use common::drill_at;
use fencelock_lab::{Outage, Site, Strategy};
use fencelock_torture::ZooKeeperHosts;

#[test]
fn packets_dropped_before_the_leader_grant_nothing_twice() {
    let site = Arc::new(ZooKeeperHosts::start().unwrap());
    let drills = || {
        for outage in [Outage::LeaderCutOff, Outage::FollowerCut] {
            drill_at(Arc::clone(&site) as Arc<dyn Site>, Strategy::Long(outage), 1);
        }
    };
    site.network().inside(drills).unwrap();
}
