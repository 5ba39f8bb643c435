//! `cargo xtask test`: everything except the foreign clients.

use crate::shell::{self, Result, cargo};
use crate::{packages, servers};

pub(crate) fn run(args: &[String]) -> Result {
    packages::ensure(packages::TESTS, packages::SERVERS)?;
    // Dropped, and so stopped, after the tests.
    let servers = servers::start()?;
    let mut test = cargo(&["test", "--workspace", "--all-features", "--no-fail-fast"]);
    test.envs(servers.iter().map(|server| &server.variable).map(|(name, value)| (name, value)));
    // What follows goes to cargo as it is: `cargo xtask test --lib -- wake`.
    shell::run(test.args(args))
}
