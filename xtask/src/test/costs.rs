//! What each test binary asks of the machine: the one place to say it.
//!
//! To fill in a row, run the binary on a quiet machine: its processor time divided by its time says which class it is.

use super::binaries::Binary;
use crate::schedule::Class::{self, Computes, Contends, Waits};
use crate::shell::Result;

/// What a test binary asks of the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    package: &'static str,
    target: &'static str,
    pub(super) class: Class,
    /// About, on two quiet cores. Decides what starts first, and nothing else.
    pub(super) seconds: u32,
    /// How many of its tests run at once: as many as there are cores, when nothing is said.
    pub(super) threads: Option<u32>,
    /// In how many processes it runs, each with a share of its tests. For tests that take turns with servers which live as
    /// long as the process: each part has its own.
    pub(super) parts: u32,
}

impl Row {
    const fn threads(self, threads: u32) -> Self {
        Self { threads: Some(threads), ..self }
    }

    const fn parts(self, parts: u32) -> Self {
        Self { parts, ..self }
    }
}

const fn row(package: &'static str, target: &'static str, class: Class, seconds: u32) -> Row {
    Row { package, target, class, seconds, threads: None, parts: 1 }
}

/// A binary that has no row here runs alone: that is slow, and disturbs nothing.
const TABLE: &[Row] = &[
    row("fencelock", "connect_laws", Waits, 1),
    row("fencelock", "crowd_laws", Computes, 1),
    row("fencelock", "doubt_laws", Computes, 1),
    row("fencelock", "fencelock", Computes, 110),
    row("fencelock", "mutex_laws", Computes, 1),
    row("fencelock", "queue_laws", Computes, 15),
    row("fencelock", "queue_laws_random", Computes, 10),
    row("fencelock", "redis", Waits, 70).threads(4),
    row("fencelock", "redis_crowds", Computes, 26),
    row("fencelock", "rwlock_laws", Computes, 1),
    row("fencelock", "semaphore_laws", Computes, 1),
    row("fencelock", "stubborn_laws", Computes, 1),
    row("fencelock", "thread_laws", Computes, 5),
    row("fencelock", "zookeeper", Contends, 120).threads(4),
    row("fencelock-bench", "fencelock-bench", Computes, 1),
    row("fencelock-bench", "smoke", Computes, 40),
    row("fencelock-bench", "zookeeper", Contends, 180),
    row("fencelock-cli", "fencelock", Computes, 1),
    row("fencelock-cli", "test_bench", Computes, 5),
    row("fencelock-cli", "test_break", Waits, 5),
    row("fencelock-cli", "test_container", Waits, 2),
    row("fencelock-cli", "test_guardian", Waits, 65),
    row("fencelock-cli", "test_hostile", Waits, 30),
    row("fencelock-cli", "test_loss", Waits, 10),
    row("fencelock-cli", "test_ls", Waits, 5),
    row("fencelock-cli", "test_outage", Waits, 12),
    row("fencelock-cli", "test_redis", Waits, 20),
    row("fencelock-cli", "test_run", Waits, 12),
    row("fencelock-cli", "test_servers", Waits, 25).threads(4),
    row("fencelock-cli", "test_show", Waits, 5),
    row("fencelock-cli", "test_ssh", Waits, 5),
    row("fencelock-cli", "test_store", Waits, 60),
    row("fencelock-cli", "test_stores", Computes, 1),
    row("fencelock-cli", "test_sudo", Waits, 5),
    row("fencelock-cli", "test_terminal", Waits, 5),
    row("fencelock-cli", "test_terminal_programs", Waits, 30),
    row("fencelock-cli", "test_zookeeper", Waits, 30),
    row("fencelock-cli", "test_zookeeper_by_hand", Waits, 20),
    row("fencelock-cli", "test_zookeeper_others", Waits, 2),
    row("fencelock-conformance", "fencelock-conformance-holder", Computes, 0),
    row("fencelock-conformance", "fencelock-conformance-worker", Computes, 0),
    row("fencelock-conformance", "fencelock_conformance", Computes, 0),
    row("fencelock-conformance", "file", Waits, 35).threads(4),
    row("fencelock-conformance", "harness_faults", Waits, 3),
    row("fencelock-conformance", "harness_resource", Waits, 1),
    row("fencelock-conformance", "history_differential", Computes, 3),
    row("fencelock-conformance", "history_log", Waits, 2),
    row("fencelock-conformance", "history_planted", Computes, 1),
    row("fencelock-conformance", "memory", Waits, 4),
    row("fencelock-conformance", "mutants", Waits, 30),
    row("fencelock-conformance", "processes_file", Computes, 45),
    row("fencelock-conformance", "redis", Waits, 65).threads(4),
    row("fencelock-conformance", "scenes_file", Waits, 2),
    row("fencelock-conformance", "zookeeper", Contends, 190).threads(4),
    row("fencelock-examples", "fencelock_examples", Computes, 0),
    row("fencelock-examples", "mutex", Computes, 0),
    row("fencelock-examples", "rwlock", Computes, 0),
    row("fencelock-examples", "semaphore", Computes, 0),
    row("fencelock-examples", "stock", Computes, 0),
    row("fencelock-interop", "fencelock-interop", Computes, 1),
    row("fencelock-interop", "fencelock_interop", Computes, 1),
    row("fencelock-testbed", "fencelock_testbed", Computes, 1),
    row("fencelock-testbed", "proxy", Waits, 5),
    row("fencelock-testbed", "redis", Waits, 10),
    row("fencelock-testbed", "zookeeper", Contends, 30),
    row("fencelock-torture", "fencelock-torture", Computes, 0),
    row("fencelock-torture", "fencelock-torture-holder", Computes, 0),
    row("fencelock-torture", "fencelock-torture-worker", Computes, 0),
    row("fencelock-torture", "fencelock_torture", Computes, 1),
    row("fencelock-torture", "redis_drills", Contends, 200).parts(2),
    row("fencelock-torture", "redis_experiments", Waits, 10),
    row("fencelock-torture", "redis_scenes", Waits, 75),
    row("fencelock-torture", "zookeeper_black_holes", Contends, 100),
    row("fencelock-torture", "zookeeper_drills", Contends, 400).parts(2),
    row("fencelock-torture", "zookeeper_edges", Waits, 70),
    row("fencelock-torture", "zookeeper_hosts", Contends, 40),
    row("fencelock-torture", "zookeeper_leader", Contends, 100),
    row("fencelock-torture", "zookeeper_limits", Contends, 125),
    row("fencelock-torture", "zookeeper_scenes", Waits, 180),
    row("fencelock-torture", "zookeeper_silence", Contends, 30),
    row("fencelock-zookeeper", "bad_servers", Waits, 5),
    row("fencelock-zookeeper", "fencelock_zookeeper", Computes, 5),
    row("fencelock-zookeeper", "hostile", Waits, 11),
    row("fencelock-zookeeper", "liveness", Contends, 20),
    row("fencelock-zookeeper", "multi", Waits, 1),
    row("fencelock-zookeeper", "reconnect", Waits, 20),
    row("fencelock-zookeeper", "requests", Waits, 7),
    row("fencelock-zookeeper", "tls", Waits, 20),
    row("fencelock-zookeeper", "watches", Waits, 1),
    row("xtask", "xtask", Computes, 10),
];

/// What the binary asks for.
pub(super) fn of(binary: &Binary) -> Row {
    let row = TABLE.iter().find(|row| row.is_for(binary)).copied();
    row.unwrap_or(self::row("", "", Class::Alone, 0))
}

impl Row {
    fn is_for(&self, binary: &Binary) -> bool {
        self.package == binary.package && self.target == binary.target
    }
}

/// Fails when a row is for no binary, and names the binaries without a row.
pub(super) fn check(binaries: &[Binary]) -> Result {
    for binary in binaries.iter().filter(|binary| !TABLE.iter().any(|row| row.is_for(binary))) {
        println!("{} {} runs alone until it has a row in xtask/src/test/costs.rs", binary.package, binary.target);
    }
    match TABLE.iter().find(|row| !binaries.iter().any(|binary| row.is_for(binary))) {
        None => Ok(()),
        Some(Row { package, target, .. }) => {
            Err(format!("{package} has no tests {target}: see xtask/src/test/costs.rs"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(package: &str, target: &str) -> Binary {
        Binary {
            package: package.to_owned(),
            target: target.to_owned(),
            executable: "/x".into(),
            directory: "/".into(),
        }
    }

    #[test]
    fn a_binary_has_one_row_and_those_of_a_package_stand_together() {
        assert!(TABLE.is_sorted_by(|one, next| (one.package, one.target) < (next.package, next.target)));
        assert!(TABLE.iter().all(|row| row.parts > 0 && row.threads != Some(0)));
    }

    #[test]
    fn what_nobody_knows_runs_alone_and_in_one_process() {
        let row = of(&binary("fencelock", "no_such_test"));
        assert_eq!((row.class, row.threads, row.parts), (Class::Alone, None, 1));
    }

    #[test]
    fn a_row_for_no_binary_is_refused() {
        let mut all: Vec<_> = TABLE.iter().map(|row| binary(row.package, row.target)).collect();
        all.push(binary("fencelock", "new"));
        assert_eq!(check(&all), Ok(()));
        let first = format!("{} has no tests {}:", TABLE[0].package, TABLE[0].target);
        assert!(check(&all[1..]).unwrap_err().starts_with(&first));
    }
}
