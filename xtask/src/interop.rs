//! `cargo xtask interop`: clients in other languages on the same locks.

use crate::shell::{self, Result};

pub(crate) fn run(args: &[String]) -> Result {
    shell::no_arguments(args)?;
    println!("No foreign client is covered yet: the stores that they share with fencelock are not there yet.");
    Ok(())
}
