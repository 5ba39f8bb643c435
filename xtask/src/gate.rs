//! The gate: the conditions before a change lands. `.ci/run` is its list of steps; two of them are verbs here.

use std::process::Command;
use std::time::Duration;

use crate::packages;
use crate::shell::{self, Result, cargo};

/// The build of the gate: all but the crates of which nothing is tested in it. The selection is the same for every call of cargo, so that
/// nothing is built twice.
const SELECTION: [&str; 7] =
    ["--workspace", "--exclude", "fencelock-bench", "--exclude", "fencelock-interop", "--exclude", "fencelock-torture"];

/// Random tests play the same games in every run of the gate. The deep tier leaves them to chance.
const SEEDS: [(&str, &str); 2] = [("FENCELOCK_SEED", "1"), ("PROPTEST_RNG_SEED", "1")];

/// Most tests wait for servers: more of them than there are cores keep the cores busy.
const THREADS: &str = "--test-threads=12";

/// A gate that hangs fails. A test is patient for three minutes, and a law that hangs for ten.
const LIMIT: Duration = Duration::from_secs(60 * 60);

pub(crate) fn lint(args: &[String]) -> Result {
    shell::no_arguments(args)?;
    shell::run(cargo(&["clippy"]).args(SELECTION).args(["--all-targets", "--", "--deny", "warnings"]))
}

pub(crate) fn test(args: &[String]) -> Result {
    packages::ensure(packages::GATE, packages::GATE_SERVERS)?;
    match args {
        [] => run(cargo_test().args(["--", THREADS])),
        args => run(cargo_test().args(args)),
    }
}

/// Runs tests of the gate's selection.
pub(crate) fn run(test: &mut Command) -> Result {
    let seeds = SEEDS.into_iter().filter(|(name, _)| std::env::var_os(name).is_none());
    shell::limit(LIMIT);
    shell::run(test.envs(seeds))
}

/// `cargo test` of the gate's selection.
pub(crate) fn cargo_test() -> Command {
    let mut test = cargo(&["test"]);
    test.args(SELECTION);
    test
}
