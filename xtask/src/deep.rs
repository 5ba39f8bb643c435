//! `cargo xtask deep`: the rows outside the gate, in turn, alone on the machine.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::shell::{self, Result, cargo};
use crate::{api, checks, gate, mutants, packages, programs};

struct Row {
    name: &'static str,
    /// Minutes after which it is killed: three times what it takes on two quiet cores, and five at least.
    limit: u64,
    run: Run,
}

enum Run {
    /// A test target, how many of its tests run at once, and how the names of its tests begin: all of them where none is given.
    Tests(&'static [&'static str], usize, &'static [&'static str]),
    Check(fn() -> Result),
}
use Run::{Check, Tests};

const DEEP: &[&str] = &["--test", "deep"];
const FAILURES: &[&str] = &["--test", "failures"];

const fn row(name: &'static str, limit: u64, run: Run) -> Row {
    Row { name, limit, run }
}

const ROWS: &[Row] = &[
    row("clippy", 10, Check(|| checks::clippy(&[]))),
    row("rustdoc", 10, Check(checks::rustdoc)),
    row("package", 5, Check(checks::package)),
    row("api", 10, Check(api::check)),
    row("deny", 10, Check(checks::deny)),
    row("features", 10, Check(checks::features)),
    row("oldest", 10, Check(checks::oldest)),
    row("fuzz", 15, Check(|| programs::fuzz(&[]))),
    row("coverage", 30, Check(checks::coverage)),
    row("readme", 10, Check(checks::readme)),
    row("interop", 20, Check(checks::interop)),
    // The gate's random tests, left to chance, and the unit tests that are deep.
    row("units", 5, Tests(&["--lib", "--bins"], 8, &[])),
    row("random", 5, Tests(&["--test", "laws", "--test", "harness", "--test", "stores"], 4, &[])),
    row("threads", 5, Tests(DEEP, 2, &["thread_laws::"])),
    row("sessions", 5, Tests(DEEP, 4, &["liveness::", "reconnect::"])),
    row("guardian", 5, Tests(DEEP, 4, &["guardian::"])),
    row("outage", 5, Tests(DEEP, 4, &["outage::", "hostile::", "addresses::", "--skip", "zookeeper::"])),
    row("loss", 5, Tests(DEEP, 4, &["loss::", "servers::"])),
    row("verify", 5, Tests(DEEP, 3, &["verify::"])),
    row("terminal", 5, Tests(DEEP, 4, &["terminal_programs::", "container::", "ssh::", "sudo::"])),
    row("processes", 5, Tests(DEEP, 2, &["faults::", "processes_file::", "scenes_file::"])),
    row("simulation", 7, Tests(DEEP, 1, &["simulation::"])),
    row("judges", 5, Tests(DEEP, 4, &["history_planted::"])),
    row("laws-etcd", 5, Tests(DEEP, 4, &["laws::etcd::"])),
    row("laws-file", 5, Tests(DEEP, 4, &["laws::file::"])),
    row("laws-redis", 5, Tests(DEEP, 4, &["laws::redis::", "laws::redlock::"])),
    row("laws-mysql", 5, Tests(DEEP, 4, &["laws::mysql::"])),
    row("laws-postgres", 5, Tests(DEEP, 4, &["laws::postgres::"])),
    row("laws-zookeeper", 5, Tests(DEEP, 4, &["laws::zookeeper::"])),
    row("redis", 5, Tests(DEEP, 4, &["redis::", "--skip", "laws::", "--skip", "servers::", "--skip", "cluster::"])),
    row("redis-cluster", 8, Tests(DEEP, 2, &["redis::cluster::"])),
    row("etcd", 5, Tests(DEEP, 2, &["etcd::", "--skip", "laws::"])),
    row("mysql", 5, Tests(DEEP, 4, &["mysql::", "--skip", "laws::", "--skip", "servers::"])),
    row("postgres", 5, Tests(DEEP, 4, &["postgres::", "--skip", "laws::", "--skip", "servers::"])),
    row("zookeeper", 5, Tests(DEEP, 4, &["zookeeper::", "--skip", "laws::", "--skip", "servers::"])),
    row("policies", 5, Tests(DEEP, 1, &["policies::"])),
    row("sticky", 5, Tests(DEEP, 1, &["sticky::"])),
    row("redis-crowds", 5, Tests(&["--test", "redis_crowds"], 1, &[])),
    row("fenced", 5, Tests(FAILURES, 2, &["fenced::"])),
    row("redis-experiments", 5, Tests(FAILURES, 2, &["redis_experiments::"])),
    row("scenes", 10, Tests(FAILURES, 3, &["scenes::"])),
    row("drills", 40, Tests(FAILURES, 1, &["drills::"])),
    row("writers", 5, Tests(FAILURES, 2, &["writers::"])),
    row("zookeeper-edges", 5, Tests(FAILURES, 2, &["zookeeper_edges::"])),
    row("zookeeper-limits", 5, Tests(FAILURES, 2, &["zookeeper_limits::"])),
    row("zookeeper-silence", 10, Tests(&["--test", "silence"], 1, &[])),
    row("zookeeper-black-holes", 10, Tests(&["--test", "zookeeper_black_holes"], 1, &[])),
    row("stall", 60, Check(gate::stall)),
    row("bench", 15, Tests(&["--test", "smoke"], 1, &[])),
    row("mutants", 120, Check(mutants::check)),
    row("cycles", 150, Check(checks::cycles)),
];

/// The build of every row of tests: everything, so that nothing is built twice.
const SELECTION: [&str; 2] = ["--workspace", "--all-features"];

pub(crate) fn run(args: &[String]) -> Result {
    if args == ["--list"] {
        ROWS.iter().for_each(|row| println!("{:<20} {}", row.name, row.about()));
        return Ok(());
    }
    let rows = chosen(args)?;
    if rows.iter().any(|row| row.needs_programs()) {
        packages::ensure(packages::GATE, packages::SERVERS)?;
        shell::run(cargo(&["build"]).args(SELECTION))?;
    }
    let mut table = format!("{:<20}{:>8}{:>8}{:>8}  result\n", "row", "took s", "limit s", "tests");
    let (mut failed, mut bounds) = (Vec::new(), String::new());
    for row in rows {
        println!("\n=== {}", row.name);
        let (start, mut seen) = (Instant::now(), Seen::default());
        let result = row.execute(&mut seen);
        let said = result.as_ref().err().map_or("ok", String::as_str);
        let took = start.elapsed().as_secs_f64();
        println!("=== {}: {said}, {took:.0} s", row.name);
        table.push_str(&format!("{:<20}{took:>8.1}{:>8}{:>8}  {said}\n", row.name, row.limit * 60, seen.passed));
        bounds.extend(seen.bounds.iter().map(|line| format!("{:<20}{line}\n", row.name)));
        failed.extend(result.is_err().then_some(row.name));
    }
    println!("\n{bounds}\n{table}");
    match failed.join(", ") {
        failed if failed.is_empty() => Ok(()),
        failed => Err(format!("failed: {failed}")),
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Row>> {
    let all: Vec<_> = ROWS.iter().map(|row| row.name).collect();
    if let Some(unknown) = names.iter().find(|name| !all.contains(&name.as_str())) {
        return Err(format!("there is no row {unknown:?}; the rows are {}", all.join(", ")));
    }
    Ok(ROWS.iter().filter(|row| names.is_empty() || names.iter().any(|name| row.name == name)).collect())
}

/// The lines of a row that its end repeats.
#[derive(Default)]
struct Seen {
    passed: u64,
    /// Judgements by time: the bound, and the time taken.
    bounds: Vec<String>,
}

impl Seen {
    fn line(&mut self, line: &str) {
        self.passed += passed_in(line);
        self.bounds.extend(line.strip_prefix("bound: ").map(str::to_owned));
    }
}

impl Row {
    fn execute(&self, seen: &mut Seen) -> Result {
        shell::limit(Duration::from_secs(self.limit * 60));
        match self.run {
            Check(check) => check(),
            Tests(target, threads, filters) => {
                shell::run_and_look(&mut tests(target, threads, filters), |line| seen.line(line))?;
                if seen.passed == 0 { Err("it has no tests".to_owned()) } else { Ok(()) }
            }
        }
    }

    /// Some tests start programs of other crates.
    fn needs_programs(&self) -> bool {
        matches!(self.run, Tests(..)) || self.name == "interop"
    }

    fn about(&self) -> String {
        match self.run {
            Tests(target, _, filters) => [target, filters].concat().join(" "),
            Check(_) => String::new(),
        }
    }
}

fn tests(target: &[&str], threads: usize, filters: &[&str]) -> Command {
    let mut test = cargo(&["test", "--no-fail-fast"]);
    test.args(SELECTION).args(target).args(["--", "--show-output", &format!("--test-threads={threads}")]);
    test.args(filters);
    test
}

/// How many tests passed, by the last line of a test binary.
fn passed_in(line: &str) -> u64 {
    let counted = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "));
    counted.and_then(|(_, counts)| counts.split_once(" passed")?.0.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_name_and_one_that_is_not_there_is_refused_with_those_that_are() {
        assert_eq!(chosen(&[]).unwrap().len(), ROWS.len());
        assert_eq!(chosen(&["deny".to_owned()]).unwrap().len(), 1);
        let refused = chosen(&["lint".to_owned()]).err().unwrap();
        assert!(refused.contains("\"lint\"") && refused.contains("clippy, rustdoc"), "{refused}");
    }

    #[test]
    fn every_module_of_the_deep_tier_has_a_row() {
        let targets =
            ["fencelock", "fencelock-cli", "fencelock-conformance", "fencelock-testbed", "fencelock-zookeeper"];
        let mains = targets.map(|name| (DEEP, format!("crates/{name}/tests/deep/main.rs")));
        for (target, main) in
            mains.into_iter().chain([(FAILURES, "crates/fencelock-torture/tests/failures/main.rs".to_owned())])
        {
            let text = shell::read(&main).unwrap();
            let modules = text.lines().filter_map(|line| line.trim_start().strip_prefix("mod ")?.strip_suffix(';'));
            for module in modules.filter(|module| !["common", "fixtures", "judge", "lab", "patience"].contains(module))
            {
                let is_run = |row: &&Row| matches!(row.run, Tests(of, _, filters) if of == target && filters.iter().any(|filter| filter.contains(&format!("{module}::"))));
                assert!(ROWS.iter().any(|row| is_run(&row)), "no row runs {module} of {main}");
            }
        }
    }

    #[test]
    fn passed_tests_are_counted() {
        assert_eq!(passed_in("test result: ok. 12 passed; 0 failed; 0 ignored"), 12);
        assert_eq!(passed_in("test result: FAILED. 7 passed; 1 failed"), 7);
        assert_eq!(passed_in("test a ... ok"), 0);
    }
}
