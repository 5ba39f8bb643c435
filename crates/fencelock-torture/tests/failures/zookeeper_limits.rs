//! A hundred workers contend for locks on ZooKeeper while what has a limit reaches it.

use std::sync::Arc;

use crate::common::{Servers, drill, drill_with};
use fencelock_lab::history::Answer;
use fencelock_lab::{Drill, Outage, Strategy};
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
    const CROWD: usize = 1_000;
    let servers = ONE.take();
    let strategy = Strategy::Brief(Outage::ConnectionsReset);
    let drill = |drill| Drill { crowd: CROWD, locks: 1, strikes: 2, ..drill };
    let verdict = drill_with(Arc::new(servers.site(6)), strategy, drill);
    let waited = most_at_once(verdict.history.sections.iter().filter_map(|section| match section.answer {
        // A busy machine may be out of reach of the servers for longer than an acquire tries.
        Answer::Granted { at, .. } | Answer::GaveUp { at } => Some((section.called, at)),
        _ => None,
    }));
    assert!(waited >= CROWD, "{waited} waited at once: {verdict}");
}

/// In how many of these times, from the one to the other, there was something at once at most.
fn most_at_once(times: impl Iterator<Item = (u64, u64)>) -> usize {
    let mut changes: Vec<(u64, isize)> = times.flat_map(|(from, to)| [(from, 1), (to, -1)]).collect();
    changes.sort_unstable();
    let counts = changes.iter().scan(0, |count, (_, change)| {
        *count += change;
        Some(*count)
    });
    counts.max().map_or(0, isize::unsigned_abs)
}
