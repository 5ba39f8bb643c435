//! `cargo xtask interop`: clients in other languages on the same locks; hands over to `crates/fencelock-interop`.

use crate::packages;
use crate::shell::{self, Result, cargo};

pub(crate) fn run(args: &[String]) -> Result {
    packages::ensure(packages::INTEROP, packages::SERVERS)?;
    shell::run(cargo(&["run", "--package", "fencelock-interop", "--"]).args(args))
}
