//! `cargo xtask ci`: everything that has to hold before a change lands, each part with a budget of time.
//!
//! Budgets are for two cores and a clean clone. A part over its budget is said plainly, and is no failure: the machine may
//! be busy. Every part runs even when an earlier one failed, so that one run tells everything.

use std::time::{Duration, Instant};

use crate::shell::{self, Result, cargo};
use crate::{docs, examples, interop, readme, test, tidy};

/// The version that a fresh machine gets; another one that is there already is taken as it is.
const CARGO_DENY: &str = "0.20.2";

/// Everything together, in seconds.
const BUDGET: u64 = 40 * 60;

struct Part {
    name: &'static str,
    /// Seconds.
    budget: u64,
    run: fn() -> Result,
}

const PARTS: &[Part] = &[
    Part { name: "format", budget: 10, run: || shell::run(&mut cargo(&["fmt", "--all", "--check"])) },
    Part { name: "tidy", budget: 20, run: || tidy::run(&[]) },
    Part { name: "clippy", budget: 100, run: clippy },
    Part { name: "features", budget: 60, run: features },
    Part { name: "docs", budget: 60, run: rustdoc },
    Part { name: "test", budget: 1390, run: || test::run(&[]) },
    Part { name: "examples", budget: 60, run: || examples::run(&[]) },
    Part { name: "README", budget: 120, run: readme::first_command },
    Part { name: "deny", budget: 280, run: deny },
    Part { name: "interop", budget: 300, run: || interop::run(&[]) },
];

struct Done {
    part: &'static Part,
    took: Duration,
    result: Result,
}

pub(crate) fn run(args: &[String]) -> Result {
    shell::no_arguments(args)?;
    let done: Vec<Done> = PARTS.iter().map(perform).collect();
    println!("\n{}", table(&done));
    let failed: Vec<_> = done.iter().filter(|done| done.result.is_err()).map(|done| done.part.name).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

fn perform(part: &'static Part) -> Done {
    println!("\n=== {} (budget {} s)", part.name, part.budget);
    let start = Instant::now();
    let result = (part.run)();
    let took = start.elapsed();
    if let Err(fault) = &result {
        println!("FAILED {}: {fault}", part.name);
    }
    println!("=== {} took {:.1} s", part.name, took.as_secs_f64());
    if took.as_secs() > part.budget {
        println!("WARNING: {} is over its budget of {} s", part.name, part.budget);
    }
    Done { part, took, result }
}

fn table(done: &[Done]) -> String {
    let mut table = format!("{:<10}{:>8}{:>8}  result\n", "part", "took s", "budget");
    for Done { part, took, result } in done {
        let over = if took.as_secs() > part.budget { ", OVER BUDGET" } else { "" };
        let result = if result.is_ok() { "ok" } else { "FAILED" };
        let line = format!("{:<10}{:>8.1}{:>8}  {result}{over}\n", part.name, took.as_secs_f64(), part.budget);
        table.push_str(&line);
    }
    let total: Duration = done.iter().map(|done| done.took).sum();
    let over = if total.as_secs() > BUDGET { "OVER BUDGET" } else { "" };
    table.push_str(&format!("{:<10}{:>8.1}{:>8}  {over}", "total", total.as_secs_f64(), BUDGET));
    table
}

fn clippy() -> Result {
    let args = ["clippy", "--workspace", "--all-targets", "--all-features", "--", "--deny", "warnings"];
    shell::run(&mut cargo(&args))
}

/// The library without any feature, and with each one alone.
fn features() -> Result {
    let check = |features: &str| {
        let args = ["clippy", "--package", "fencelock", "--no-default-features", "--features", features];
        shell::run(cargo(&args).args(["--", "--deny", "warnings"]))
    };
    check("")?;
    docs::features()?.iter().try_for_each(|feature| check(feature))
}

fn rustdoc() -> Result {
    let args = ["doc", "--workspace", "--no-deps", "--all-features"];
    shell::run(cargo(&args).env("RUSTDOCFLAGS", "--deny warnings"))
}

fn deny() -> Result {
    if !shell::succeeds(&mut cargo(&["deny", "--version"])) {
        shell::run(&mut cargo(&["install", "cargo-deny", "--version", CARGO_DENY, "--locked"]))?;
    }
    shell::run(&mut cargo(&["deny", "check", "bans", "licenses", "sources"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_fit_the_budget_of_the_whole() {
        assert!(PARTS.iter().map(|part| part.budget).sum::<u64>() <= BUDGET);
    }

    #[test]
    fn the_table_says_what_failed_and_what_took_too_long() {
        let part = &PARTS[0];
        let slow = Done { part, took: Duration::from_secs(part.budget + 1), result: Ok(()) };
        let failed = Done { part, took: Duration::ZERO, result: Err(String::new()) };
        let table = table(&[slow, failed]);
        assert!(table.contains("ok, OVER BUDGET") && table.contains("FAILED\n"), "{table}");
    }
}
