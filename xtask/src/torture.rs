//! `cargo xtask torture <store>`: hands over to `crates/fencelock-torture`.

use crate::packages;
use crate::shell::{self, Result, cargo};

pub(crate) fn run(args: &[String]) -> Result {
    packages::ensure(packages::TESTS, packages::SERVERS)?;
    // All of its binaries: it runs the others itself.
    shell::run(&mut cargo(&["build", "--release", "--package", "fencelock-torture"]))?;
    let run = ["run", "--release", "--quiet", "--package", "fencelock-torture", "--bin", "fencelock-torture", "--"];
    shell::run(cargo(&run).args(args))
}
