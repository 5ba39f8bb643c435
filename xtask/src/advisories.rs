//! `cargo xtask advisories`: whether anything that we depend on has a known fault. For a scheduler, once a week: the list
//! of advisories changes without us, so this is no part of what a change has to pass.

use crate::ci;
use crate::shell::{self, Result, cargo};

/// Fails on an advisory that concerns us. Where the list cannot be fetched it says so and succeeds: a machine without a
/// network cannot know, and must not cry wolf every week.
pub(crate) fn run(args: &[String]) -> Result {
    shell::no_arguments(args)?;
    ci::ensure_cargo_deny()?;
    if let Err(fault) = shell::run(&mut cargo(&["deny", "fetch", "db"])) {
        println!("NOT CHECKED: the list of advisories cannot be fetched here ({fault})");
        return Ok(());
    }
    shell::run(&mut cargo(&["deny", "check", "--disable-fetch", "advisories"]))
}
