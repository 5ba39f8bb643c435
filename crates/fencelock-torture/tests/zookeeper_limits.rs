//! A hundred workers contend for locks on ZooKeeper while what has a limit reaches it.

mod common;

use std::sync::Arc;

use common::{Servers, drill, drill_with};
use fencelock_conformance::harness::{Drill, Outage, Strategy};
use fencelock_testbed::zookeeper::Ensemble;
use fencelock_torture::zookeeper::ZooKeeper;

static ONE: Servers<Arc<Ensemble>> = Servers::new(|| ZooKeeper::start(1));

#[test]
fn numbers_that_end_grant_nothing_twice_and_whoever_comes_later_is_refused() {
    drill(&ONE, Strategy::Long(Outage::NumbersEnd), 2);
}

#[test]
fn queues_that_do_not_fit_into_an_answer_grant_nothing_twice() {
    drill(&ONE, Strategy::Long(Outage::QueuesOverflow), 2);
}

#[test]
fn a_thousand_waiters_are_one_queue_with_a_hundred_workers_through_resets_of_all_connections() {
    let servers = ONE.take();
    let strategy = Strategy::Brief(Outage::ConnectionsReset);
    let drill = |drill| Drill { crowd: 1_000, locks: 1, strikes: 2, ..drill };
    drill_with(Arc::new(servers.site(6)), strategy, drill);
}
