//! What tests ask of the machine: the one place to say it.
//!
//! To fill in a row, run its tests on a quiet machine: their processor time divided by their time says which class they are.

use super::binaries::Binary;
use crate::schedule::Class::{self, Computes, Contends, Waits};
use crate::shell::Result;

/// What a test binary, or one module of it, asks of the machine. It runs in a process of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    package: &'static str,
    /// `binary::module`, or `binary` for all of its tests that no other row is for.
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

/// What has no row here runs alone: that is slow, and disturbs nothing.
const TABLE: &[Row] = &[
    row("fencelock", "fencelock", Computes, 110),
    row("fencelock", "laws", Computes, 6),
    row("fencelock", "laws::queue", Computes, 15),
    row("fencelock", "laws::queue_random", Computes, 10),
    row("fencelock", "postgres", Waits, 45).threads(4),
    row("fencelock", "redis", Waits, 70).threads(4),
    row("fencelock", "redis::redlock", Waits, 50).threads(4),
    row("fencelock", "redis_crowds", Computes, 26),
    row("fencelock", "thread_laws", Computes, 5),
    row("fencelock", "zookeeper", Contends, 120).threads(4),
    row("fencelock-bench", "fencelock-bench", Computes, 1),
    row("fencelock-bench", "smoke", Computes, 40),
    row("fencelock-bench", "smoke::postgres", Waits, 15),
    row("fencelock-bench", "smoke::redis", Waits, 15),
    row("fencelock-bench", "smoke::zookeeper", Contends, 180),
    row("fencelock-cli", "command", Waits, 35),
    row("fencelock-cli", "command::guardian", Waits, 65),
    row("fencelock-cli", "command::hostile", Waits, 30),
    row("fencelock-cli", "command::outage", Waits, 12),
    row("fencelock-cli", "command::postgres", Waits, 6),
    row("fencelock-cli", "command::redis", Waits, 20),
    row("fencelock-cli", "command::run", Waits, 12),
    row("fencelock-cli", "command::servers", Waits, 25).threads(4),
    row("fencelock-cli", "command::store", Waits, 60),
    row("fencelock-cli", "command::terminal_programs", Waits, 30),
    row("fencelock-cli", "command::zookeeper", Waits, 30),
    row("fencelock-cli", "command::zookeeper_by_hand", Waits, 20),
    row("fencelock-cli", "command::zookeeper_others", Waits, 2),
    row("fencelock-cli", "fencelock", Computes, 1),
    row("fencelock-cli", "loss", Waits, 10),
    row("fencelock-conformance", "harness", Computes, 12),
    row("fencelock-conformance", "harness::mutants", Waits, 30),
    row("fencelock-conformance", "harness::processes_file", Computes, 45),
    row("fencelock-conformance", "stores::file", Waits, 35).threads(4),
    row("fencelock-conformance", "stores::memory", Waits, 4),
    row("fencelock-conformance", "stores::postgres", Waits, 100).threads(4),
    row("fencelock-conformance", "stores::redis", Waits, 85).threads(4),
    row("fencelock-conformance", "stores::redlock", Waits, 20).threads(4),
    row("fencelock-conformance", "stores::zookeeper", Contends, 190).threads(4),
    row("fencelock-interop", "fencelock-interop", Computes, 1),
    row("fencelock-interop", "fencelock_interop", Computes, 1),
    row("fencelock-sqlx", "transactions", Waits, 5),
    row("fencelock-testbed", "fencelock_testbed", Computes, 1),
    row("fencelock-testbed", "servers::postgres", Waits, 10),
    row("fencelock-testbed", "servers::proxy", Waits, 5),
    row("fencelock-testbed", "servers::redis", Waits, 10),
    row("fencelock-testbed", "servers::zookeeper", Contends, 30),
    row("fencelock-torture", "failures::postgres_drills", Contends, 200).parts(2),
    row("fencelock-torture", "failures::postgres_scenes", Waits, 75),
    row("fencelock-torture", "failures::postgres_writers", Waits, 30),
    row("fencelock-torture", "failures::redis_drills", Contends, 200).parts(2),
    row("fencelock-torture", "failures::redis_experiments", Waits, 10),
    row("fencelock-torture", "failures::redis_scenes", Waits, 75),
    row("fencelock-torture", "failures::zookeeper_drills", Contends, 400).parts(2),
    row("fencelock-torture", "failures::zookeeper_edges", Waits, 70),
    row("fencelock-torture", "failures::zookeeper_limits", Contends, 125),
    row("fencelock-torture", "failures::zookeeper_scenes", Waits, 180),
    row("fencelock-torture", "fencelock_torture", Computes, 1),
    row("fencelock-torture", "silence::zookeeper_leader", Contends, 100),
    row("fencelock-torture", "silence::zookeeper_servers", Contends, 30),
    row("fencelock-torture", "zookeeper_black_holes", Contends, 100),
    row("fencelock-torture", "zookeeper_hosts", Contends, 40),
    row("fencelock-zookeeper", "client", Waits, 9),
    row("fencelock-zookeeper", "client::bad_servers", Waits, 5),
    row("fencelock-zookeeper", "client::hostile", Waits, 11),
    row("fencelock-zookeeper", "client::liveness", Contends, 20),
    row("fencelock-zookeeper", "client::reconnect", Waits, 20),
    row("fencelock-zookeeper", "client::tls", Waits, 20),
    row("fencelock-zookeeper", "fencelock_zookeeper", Computes, 5),
    row("xtask", "xtask", Computes, 10),
];

impl Row {
    fn binary(&self) -> &'static str {
        self.target.split_once("::").map_or(self.target, |(binary, _)| binary)
    }

    fn is_for(&self, binary: &Binary) -> bool {
        self.package == binary.package && self.binary() == binary.target
    }

    /// Whether the test belongs to the module that the row is for, if it is for one.
    fn takes(&self, test: &str) -> bool {
        let Some((_, module)) = self.target.split_once("::") else { return true };
        test.strip_prefix(module).is_some_and(|rest| rest.starts_with("::"))
    }
}

/// The rows of a package that are for a module.
pub(super) fn modules(package: &str) -> impl Iterator<Item = &'static str> {
    TABLE.iter().filter(move |row| row.package == package && row.target.contains("::")).map(|row| row.target)
}

/// Some tests of a binary, and what they ask for.
#[derive(Debug)]
pub(super) struct Share {
    /// As in the table: the binary, or `binary::module`.
    pub(super) name: String,
    pub(super) row: Row,
    pub(super) tests: Vec<String>,
}

/// Shares out the tests of a binary to its rows. What no row is for is a share too, and is said.
pub(super) fn shares(binary: &Binary, tests: Vec<String>) -> Result<Vec<Share>> {
    shares_by(TABLE, binary, tests)
}

fn shares_by(table: &[Row], binary: &Binary, tests: Vec<String>) -> Result<Vec<Share>> {
    let share = |row: Row, name: &str| Share { name: name.to_owned(), row, tests: Vec::new() };
    let rows = table.iter().filter(|row| row.is_for(binary));
    let mut shares: Vec<_> = rows.map(|row| share(*row, row.target)).collect();
    // A binary's own row is for what is left.
    shares.sort_by_key(|share| share.row.target == share.row.binary());
    let mut rest = share(row("", "", Class::Alone, 0), &binary.target);
    for test in tests {
        let of = shares.iter_mut().find(|share| share.row.takes(&test)).unwrap_or(&mut rest);
        of.tests.push(test);
    }
    if let Some(empty) = shares.iter().find(|share| share.tests.is_empty()) {
        return Err(format!("{} has no tests {}: see xtask/src/test/costs.rs", binary.package, empty.name));
    }
    if !rest.tests.is_empty() {
        let (package, name, first) = (&binary.package, &rest.name, &rest.tests[0]);
        println!("{package} {name}: {first} and what else has no row in xtask/src/test/costs.rs runs alone");
        shares.push(rest);
    }
    Ok(shares)
}

/// Fails when a row is for no binary.
pub(super) fn check(binaries: &[Binary]) -> Result {
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
    fn a_target_has_one_row_and_those_of_a_package_stand_together() {
        assert!(TABLE.is_sorted_by(|one, next| (one.package, one.target) < (next.package, next.target)));
        assert!(TABLE.iter().all(|row| row.parts > 0 && row.threads != Some(0)));
    }

    /// What becomes of these tests of the binary `b`: the shares' names, and their tests.
    fn shared(rows: &[&'static str], tests: &[&str]) -> Result<Vec<(String, String)>> {
        let table: Vec<_> = rows.iter().map(|target| row("p", target, Waits, 1)).collect();
        let shares = shares_by(&table, &binary("p", "b"), tests.iter().map(|test| (*test).to_owned()).collect())?;
        Ok(shares.into_iter().map(|share| (share.name, share.tests.join(" "))).collect())
    }

    fn pairs(expected: &[(&str, &str)]) -> Result<Vec<(String, String)>> {
        Ok(expected.iter().map(|(name, tests)| ((*name).to_owned(), (*tests).to_owned())).collect())
    }

    #[test]
    fn every_test_is_in_one_share_and_those_without_a_module_of_their_own_in_that_of_the_binary() {
        let tests = ["run::a", "runs::b", "run::c::d", "e"];
        let expected = pairs(&[("b::run", "run::a run::c::d"), ("b", "runs::b e")]);
        assert_eq!(shared(&["b", "b::run", "other"], &tests), expected);
        assert_eq!(shared(&["b"], &tests), pairs(&[("b", "run::a runs::b run::c::d e")]));
    }

    #[test]
    fn what_nobody_knows_runs_alone_and_in_one_process() {
        assert_eq!(shared(&["b::run"], &["run::a", "c"]), pairs(&[("b::run", "run::a"), ("b", "c")]));
        let new = shares(&binary("fencelock", "no_such_test"), vec!["a".to_owned()]).unwrap();
        let [Share { row, .. }] = new.as_slice() else { panic!("{new:?}") };
        assert_eq!((row.class, row.threads, row.parts), (Class::Alone, None, 1));
    }

    #[test]
    fn a_row_without_tests_is_refused() {
        assert!(shared(&["b::run", "b"], &["run::a"]).unwrap_err().starts_with("p has no tests b:"));
        assert!(shared(&["b::gone", "b"], &["run::a"]).unwrap_err().starts_with("p has no tests b::gone:"));
        let mut all: Vec<_> = TABLE.iter().map(|row| binary(row.package, row.binary())).collect();
        all.push(binary("fencelock", "new"));
        assert_eq!(check(&all), Ok(()));
        all.retain(|binary| binary.package != TABLE[0].package);
        let first = format!("{} has no tests {}:", TABLE[0].package, TABLE[0].target);
        assert!(check(&all).unwrap_err().starts_with(&first));
    }
}
