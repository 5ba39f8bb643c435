//! A thousand waiters of one process wait for the lock that a hundred workers contend for on ZooKeeper.

use std::path::Path;
use std::sync::Arc;

use crate::common::{Directory, topology};
use crate::judge::is_possible;
use fencelock_lab::history::Answer;
use fencelock_lab::{Drill, Outage, Strategy};
use fencelock_torture::Breakable;
use fencelock_torture::table::site_name;

#[test]
fn a_thousand_waiters_are_one_queue_with_a_hundred_workers_through_resets_of_all_connections() {
    const CROWD: usize = 1_000;
    let bed = (topology("zookeeper").start)().unwrap();
    let (site, seed) = (Breakable::new(&bed, &site_name(), 6).unwrap(), fencelock_conformance::seed());
    let (logs, worker) = (Directory::new("drill"), Path::new(env!("CARGO_BIN_EXE_fencelock-torture-worker")));
    let drill = Drill::at(Arc::new(site), logs.path(), worker, Strategy::Brief(Outage::ConnectionsReset), seed);
    let verdict = Drill { tasks: 25, crowd: CROWD, locks: 1, strikes: 2, ..drill }.run().unwrap();
    assert!(verdict.is_clean() && verdict.report.writes.0 > 50, "{verdict}\nagain: FENCELOCK_SEED={seed}");
    assert!(is_possible(logs.path(), verdict.laws), "the judges disagree: {verdict}\nagain: FENCELOCK_SEED={seed}");
    let waited = most_at_once(verdict.history.sections.iter().filter_map(|section| match section.answer {
        // A busy machine may be out of reach of the servers for longer than an acquire tries.
        Answer::Granted { at, .. } | Answer::GaveUp { at } => Some((section.called, at)),
        _ => None,
    }));
    assert!(waited >= CROWD, "{waited} waited at once: {verdict}");
}

/// The largest number of these spans that overlap at one time.
fn most_at_once(times: impl Iterator<Item = (u64, u64)>) -> usize {
    let mut changes: Vec<(u64, isize)> = times.flat_map(|(from, to)| [(from, 1), (to, -1)]).collect();
    changes.sort_unstable();
    let counts = changes.iter().scan(0, |count, (_, change)| {
        *count += change;
        Some(*count)
    });
    counts.max().map_or(0, isize::unsigned_abs)
}
