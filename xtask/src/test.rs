//! `cargo xtask test`: everything except the foreign clients.

use crate::shell::{self, Result, cargo};
use crate::{packages, servers};

pub(crate) fn run(args: &[String]) -> Result {
    packages::ensure(packages::TESTS)?;
    servers::none_is_needed()?;
    let mut test = cargo(&["test", "--workspace", "--all-features", "--no-fail-fast"]);
    // What follows goes to cargo as it is: `cargo xtask test --lib -- wake`.
    shell::run(test.args(args))
}
