//! `cargo xtask docs`: the parts of the documents that are made from the code, by the tests that compare them with it.

use crate::gate;
use crate::shell::{self, Result, cargo};

/// Tells those tests to write what they would compare.
const WRITE: (&str, &str) = ("FENCELOCK_WRITE_DOCUMENTS", "1");

pub(crate) fn run(args: &[String]) -> Result {
    shell::no_arguments(args)?;
    let (name, value) = WRITE;
    gate::run(gate::cargo_test().args(["--test", "command", "--", "documents::"]).env(name, value))?;
    shell::run(cargo(&["test", "--package", "fencelock-bench", "--bins", "--", "figures::"]).env(name, value))
}
