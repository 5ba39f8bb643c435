//! Processes that are killed and stopped while they lock in one directory.
//!
//! `FENCELOCK_SEED=<number>` runs every drill with that seed alone.

use std::fs;
use std::path::{Path, PathBuf};

use fencelock_lab::{Drill, Strategy, Toll, Uses, Verdict};

use crate::judge::{is_possible, plant_faults};

/// A directory of this test's own; kept when the test fails, so that the logs can be read.
struct Directory(PathBuf);

impl Directory {
    fn new(strategy: Strategy, uses: Uses, seed: u64) -> Self {
        let name = format!("fencelock-{strategy:?}-{uses:?}-{seed}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("logs")).unwrap();
        Self(path)
    }

    fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }

    fn store(&self) -> PathBuf {
        self.0.join("store")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the logs are in {}", self.0.display());
        } else {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("FENCELOCK_SEED") {
        Ok(seed) => vec![seed.parse().expect("FENCELOCK_SEED is a number")],
        Err(_) => vec![1, 2, 3],
    }
}

/// Runs the strategy with every seed; `hit` says whether it did what the test is about.
fn drill(strategy: Strategy, hit: impl Fn(&Toll) -> bool) {
    for seed in seeds() {
        let verdict = run(strategy, Uses::Mutexes, seed);
        assert!(hit(&verdict.toll), "{strategy:?}, seed {seed} did not do what it is for: {}", verdict.toll);
    }
}

/// Runs every strategy that hurts processes, over locks with these uses.
fn drill_all(uses: Uses) {
    for (strategy, seed) in Strategy::PROCESSES.into_iter().zip(seeds().into_iter().cycle()) {
        let verdict = run(strategy, uses, seed);
        let claims: Vec<_> = verdict.history.sections.iter().map(|section| section.claim).collect();
        let is_shared = claims.iter().any(|claim| !claim.is_whole());
        let shares = matches!(uses, Uses::ReadWriteLocks | Uses::Semaphores | Uses::Mixed);
        assert_eq!(is_shared, shares, "{verdict}");
    }
}

fn run(strategy: Strategy, uses: Uses, seed: u64) -> Verdict {
    let directory = Directory::new(strategy, uses, seed);
    let url = format!("file://{}", directory.store().display());
    let worker = Path::new(env!("CARGO_BIN_EXE_fencelock-conformance-worker"));
    let drill = Drill::new(&url, &directory.logs(), worker, strategy, seed);
    let locks = if uses == Uses::Mixed { 3 } else { drill.locks };
    // A sixth of the contenders for permits writes, and the check below needs enough writes.
    let verdict = Drill { uses, locks, grants_after: 120, ..drill }.run().unwrap();
    println!("{verdict}");
    assert!(verdict.is_clean(), "{verdict}");
    assert!(is_worth_something(&verdict), "{verdict}");
    assert!(is_possible(&directory.logs(), verdict.laws), "the judges disagree: {verdict}");
    if uses == Uses::Mutexes {
        plant_faults(&directory.logs());
    }
    let (tickets, sessions) = (files(&directory.store().join("b")), files(&directory.store().join("sessions")));
    assert!(tickets.is_empty() && sessions.is_empty(), "{verdict}: {tickets:?} {sessions:?}");
    verdict
}

/// All files in `directory`, without half-made ones, which an opening removes once they are a minute old.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let mut found = Vec::new();
    for entry in entries {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false if entry.file_name().to_string_lossy().starts_with("tmp.") => {}
            false => found.push(entry.path()),
        }
    }
    found
}

/// A clean verdict over too few sections would prove nothing.
fn is_worth_something(verdict: &Verdict) -> bool {
    let queued = verdict.history.sections.iter().filter(|section| section.enqueue.is_some()).count();
    verdict.report.grants > 50 && verdict.report.busy_answers > 0 && verdict.report.writes.0 > 20 && queued > 10
}

#[test]
fn unharmed_processes_share_their_locks() {
    drill(Strategy::Calm, |toll| *toll == Toll::default());
}

#[test]
fn a_process_killed_at_any_moment_blocks_no_other_and_leaves_nothing() {
    drill(Strategy::KillAnybody, |toll| toll.killed == 20);
}

#[test]
fn a_killed_holder_blocks_no_waiter_and_leaves_nothing() {
    drill(Strategy::KillHolders, |toll| toll.killed_holders > 0);
}

#[test]
fn a_killed_waiter_blocks_no_other_and_leaves_nothing() {
    drill(Strategy::KillWaiters, |toll| toll.killed_waiters > 0);
}

#[test]
fn a_stopped_holder_keeps_its_lock() {
    drill(Strategy::StopHolders, |toll| toll.stopped_holders > 0);
}

#[test]
fn stops_and_kills_together_break_no_law() {
    drill(Strategy::Everything, |toll| toll.stopped > 0 && toll.killed > 0);
}

#[test]
fn writers_alone_keep_the_laws_of_a_mutex_under_every_fault() {
    drill_all(Uses::Writers);
}

#[test]
fn takers_of_all_permits_keep_the_laws_of_a_mutex_under_every_fault() {
    drill_all(Uses::AllPermits);
}

#[test]
fn readers_and_writers_keep_their_laws_under_every_fault() {
    drill_all(Uses::ReadWriteLocks);
}

#[test]
fn takers_of_permits_keep_their_laws_under_every_fault() {
    drill_all(Uses::Semaphores);
}

#[test]
fn mutexes_read_write_locks_and_semaphores_in_use_together_keep_their_laws() {
    drill_all(Uses::Mixed);
}
