//! `cargo xtask ci`: everything that has to hold before a change lands, each part with a budget of time.
//!
//! The tests are built first. Then they run, and the other parts beside them: most tests wait most of the time. What a part
//! prints is shown when it has ended. Every part runs even when another failed, so that one run tells everything.
//!
//! Budgets are for two cores and a clean clone. A part over its budget is said plainly, and is no failure: the machine may
//! be busy.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::schedule::{self, Class, Cost, Job};
use crate::shell::{self, Result, cargo};
use crate::{docs, examples, interop, readme, test, tidy};

/// The version that a fresh machine gets; another one that is there already is taken as it is.
const CARGO_DENY: &str = "0.20.2";

/// Everything together, in seconds.
const BUDGET: u64 = 20 * 60;

struct Part {
    name: &'static str,
    /// Seconds from its start to its end. What builds yields to the tests beside it, so that it takes about as long as they do.
    budget: u64,
    class: Class,
    run: fn() -> Result,
}

/// What the others run beside.
const TEST: Part = Part { name: "test", budget: 1050, class: Class::Alone, run: || test::run(&[]) };

const PARTS: &[Part] = &[
    Part { name: "format", budget: 10, class: Class::Computes, run: format },
    Part { name: "tidy", budget: 20, class: Class::Computes, run: || tidy::run(&[]) },
    Part { name: "clippy", budget: 100, class: Class::Builds, run: clippy },
    Part { name: "features", budget: 90, class: Class::Builds, run: features },
    Part { name: "oldest", budget: 60, class: Class::Builds, run: oldest },
    Part { name: "docs", budget: 60, class: Class::Builds, run: rustdoc },
    Part { name: "examples", budget: 80, class: Class::Builds, run: || examples::run(&[]) },
    Part { name: "README", budget: 300, class: Class::Builds, run: readme::first_command },
    Part { name: "package", budget: 10, class: Class::Computes, run: package },
    Part { name: "deny", budget: 150, class: Class::Builds, run: deny },
    // Its programs wait for each other; what it builds waits for other builds.
    Part { name: "interop", budget: 600, class: Class::Waits, run: || interop::run(&[]) },
];

struct Done {
    part: &'static Part,
    took: Duration,
    result: Result,
}

pub(crate) fn run(args: &[String]) -> Result {
    match args {
        [] => run_all(),
        [name] => match std::iter::once(&TEST).chain(PARTS).find(|part| part.name == name) {
            Some(part) => (part.run)(),
            None => Err(format!("there is no part {name:?}; the parts are {}", names().join(", "))),
        },
        _ => Err(format!("takes one part at most ({}), and was given {args:?}", names().join(", "))),
    }
}

fn names() -> Vec<&'static str> {
    std::iter::once(&TEST).chain(PARTS).map(|part| part.name).collect()
}

fn run_all() -> Result {
    let start = Instant::now();
    println!("=== {} (budget {} s): builds first", TEST.name, TEST.budget);
    let mut tests = test::prepare(None);
    let built = start.elapsed();
    println!("=== {} has built in {:.1} s", TEST.name, built.as_secs_f64());
    let jobs = tests.as_mut().map(|tests| std::mem::take(&mut tests.jobs)).unwrap_or_default();
    let jobs = PARTS.iter().map(job).chain(jobs).collect();
    let (parts, tested): (Vec<_>, Vec<_>) =
        schedule::run(jobs).into_iter().partition(|done| part(&done.name).is_some());
    let took = tested.iter().map(|done| built + done.began + done.took).max().unwrap_or(built);
    // The servers have run until here.
    let result = tests.map(drop).and_then(|()| test::report(&tested));
    let mut done = vec![Done { part: &TEST, took, result }];
    for ended in parts {
        if ended.result.is_err() {
            println!("\n=== FAILED {}\n{}", ended.name, schedule::failures(&ended.output));
        }
        done.extend(part(&ended.name).map(|part| Done { part, took: ended.took, result: ended.result }));
    }
    println!("\n{}", table(&done, start.elapsed()));
    match done.iter().filter(|done| done.result.is_err()).map(|done| done.part.name).collect::<Vec<_>>().join(", ") {
        failed if failed.is_empty() => Ok(()),
        failed => Err(format!("failed: {failed}")),
    }
}

fn part(name: &str) -> Option<&'static Part> {
    PARTS.iter().find(|part| part.name == name)
}

/// Runs a part in a process of its own, so that what it prints can be held back.
fn job(part: &Part) -> Job {
    // Ourselves, even after somebody has built us anew.
    let mut command = Command::new("/proc/self/exe");
    command.current_dir(shell::root()).args(["ci", part.name]);
    let seconds = u32::try_from(part.budget).unwrap_or(u32::MAX);
    Job { name: part.name.to_owned(), cost: Cost { class: part.class, seconds }, command }
}

/// The parts and what they took, in the order of their ends, and what all took side by side.
fn table(done: &[Done], total: Duration) -> String {
    let mut table = format!("{:<10}{:>8}{:>8}  result\n", "part", "took s", "budget");
    for Done { part, took, result } in done {
        let over = if took.as_secs() > part.budget { ", OVER BUDGET" } else { "" };
        let result = if result.is_ok() { "ok" } else { "FAILED" };
        let line = format!("{:<10}{:>8.1}{:>8}  {result}{over}\n", part.name, took.as_secs_f64(), part.budget);
        table.push_str(&line);
    }
    let over = if total.as_secs() > BUDGET { "OVER BUDGET" } else { "" };
    table.push_str(&format!("{:<10}{:>8.1}{:>8}  {over}", "total", total.as_secs_f64(), BUDGET));
    table
}

fn format() -> Result {
    shell::run(&mut cargo(&["fmt", "--all", "--check"]))
}

fn clippy() -> Result {
    let args = ["clippy", "--workspace", "--all-targets", "--all-features", "--", "--deny", "warnings"];
    shell::run(&mut cargo(&args))
}

/// The library without any feature, and with each one alone; the command and the examples without the unstable one.
fn features() -> Result {
    let check = |features: &str| {
        let args = ["clippy", "--package", "fencelock", "--no-default-features", "--features", features];
        shell::run(cargo(&args).args(["--", "--deny", "warnings"]))
    };
    check("")?;
    docs::features()?.iter().try_for_each(|feature| check(feature))?;
    small_builds()?;
    // By themselves: what they use without `unstable-store` is what users have.
    let users = ["clippy", "--package", "fencelock-cli", "--package", "fencelock-examples", "--", "--deny", "warnings"];
    shell::run(&mut cargo(&users))
}

/// The most crates of a build for a local directory alone.
const FILE_ALONE: usize = 40;

/// A build has as many crates as the document says, and one for a local directory is small.
fn small_builds() -> Result {
    let document = std::fs::read_to_string(shell::root().join(docs::STORES)).map_err(|error| error.to_string())?;
    for (features, said) in crates_said(&document) {
        let features = match features.as_str() {
            "none" => Some(String::new()),
            feature => feature.strip_prefix('`').map(|feature| feature.trim_end_matches('`').to_owned()),
        };
        let count = crates(features.as_deref())?;
        if count != said {
            return Err(format!("{} says {said} crates for {features:?}, and they are {count}", docs::STORES));
        }
        if features.as_deref() == Some("file") && count > FILE_ALONE {
            return Err(format!("a build with `file` alone has {count} crates, more than {FILE_ALONE}"));
        }
    }
    Ok(())
}

/// The rows of the table of small builds: features, and the number of crates.
fn crates_said(document: &str) -> Vec<(String, usize)> {
    let table = document.lines().skip_while(|line| !line.starts_with("| features | crates |")).skip(2);
    let row = |line: &str| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        Some((cells.next()?.to_owned(), cells.next()?.parse().ok()?))
    };
    table.map_while(row).collect()
}

/// How many crates a build of the library with these features has; `None` for the default ones.
fn crates(features: Option<&str>) -> Result<usize> {
    let mut tree =
        cargo(&["tree", "--package", "fencelock", "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    if let Some(features) = features {
        tree.args(["--no-default-features", "--features", features]);
    }
    let listed = shell::output(&mut tree)?;
    // A crate that was listed already has a mark behind its name.
    let name = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    Ok(listed.lines().filter(|line| !line.is_empty()).map(name).collect::<std::collections::BTreeSet<_>>().len())
}

/// What is published compiles on the oldest compiler that it names, with TLS and without.
fn oldest() -> Result {
    let manifest = std::fs::read_to_string(shell::root().join("Cargo.toml")).map_err(|error| error.to_string())?;
    let manifest: toml::Table = manifest.parse().map_err(|error| format!("Cargo.toml: {error}"))?;
    let version =
        manifest["workspace"]["package"]["rust-version"].as_str().ok_or("Cargo.toml names no rust-version")?;
    let version = &format!("{version}.0");
    let rustup = |args: &[&str]| {
        let mut command = shell::command("rustup");
        command.args(args);
        command
    };
    if !shell::succeeds(&mut rustup(&["run", version, "cargo", "--version"])) {
        shell::run(&mut rustup(&["toolchain", "install", version, "--profile", "minimal", "--no-self-update"]))?;
    }
    let check = |args: &[&str]| shell::run(rustup(&["run", version, "cargo", "check", "--locked"]).args(args));
    check(&[
        "--package",
        "fencelock-cli",
        "--package",
        "fencelock",
        "--package",
        "fencelock-zookeeper",
        "--all-features",
    ])?;
    // What stands in for TLS where it is left out. Every feature alone is a part of these two.
    check(&["--package", "fencelock", "--no-default-features", "--features", "file,memory,redis,zookeeper"])
}

fn rustdoc() -> Result {
    let doc =
        |args: &[&str]| shell::run(cargo(&["doc", "--no-deps"]).args(args).env("RUSTDOCFLAGS", "--deny warnings"));
    // Without features and with the default ones a link can lead to what is not there.
    doc(&["--package", "fencelock", "--no-default-features"])?;
    doc(&["--package", "fencelock"])?;
    doc(&["--workspace", "--all-features"])
}

/// What is published is complete: its metadata, licences and description. Not built from there, for that takes as long as all
/// else that is built.
fn package() -> Result {
    let published = published()?;
    let mut package = cargo(&["package", "--no-verify", "--allow-dirty"]);
    shell::run(package.args(published.iter().flat_map(|name| ["--package", name])))?;
    published.iter().try_for_each(|name| {
        let list = shell::output(&mut cargo(&["package", "--list", "--allow-dirty", "--package", name]))?;
        let missing = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];
        let missing: Vec<_> = missing.into_iter().filter(|file| !list.lines().any(|line| line == *file)).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("the package {name} lacks {}", missing.join(", "))) }
    })
}

/// The packages whose manifests do not say `publish = false`.
fn published() -> Result<Vec<String>> {
    let said = shell::output(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: serde_json::Value =
        serde_json::from_str(&said).map_err(|error| format!("cargo metadata: {error}"))?;
    let all = metadata["packages"].as_array().into_iter().flatten();
    Ok(all.filter(|one| one["publish"].is_null()).filter_map(|one| one["name"].as_str().map(str::to_owned)).collect())
}

fn deny() -> Result {
    ensure_cargo_deny()?;
    shell::run(&mut cargo(&["deny", "check", "bans", "licenses", "sources"]))
}

/// Builds cargo-deny where there is none.
pub(crate) fn ensure_cargo_deny() -> Result {
    if !shell::succeeds(&mut cargo(&["deny", "--version"])) {
        // Without optimisation it computes for a second longer, and is built in a third of the time.
        let mut install = cargo(&["install", "cargo-deny", "--version", CARGO_DENY, "--locked", "--debug"]);
        shell::run(install.env("CARGO_PROFILE_DEV_DEBUG", "0"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_may_take_longer_than_all_together() {
        assert!(std::iter::once(&TEST).chain(PARTS).all(|part| part.budget <= BUDGET));
    }

    #[test]
    fn the_table_says_what_failed_and_what_took_too_long() {
        let part = &PARTS[0];
        let slow = Done { part, took: Duration::from_secs(part.budget + 1), result: Ok(()) };
        let failed = Done { part, took: Duration::ZERO, result: Err(String::new()) };
        let table = table(&[slow, failed], Duration::from_secs(90));
        assert!(table.contains("total         90.0") && !table.ends_with("OVER BUDGET"), "{table}");
        assert!(table.contains("ok, OVER BUDGET") && table.contains("FAILED\n"), "{table}");
    }

    #[test]
    fn the_number_of_crates_is_read_from_the_table_of_small_builds() {
        let table = "# S\n\n| features | crates |\n|---|---:|\n| none | 30 |\n| `file` | 38 |\n\nmore | 7 |\n";
        assert_eq!(crates_said(table), [("none".to_owned(), 30), ("`file`".to_owned(), 38)]);
        let stores = std::fs::read_to_string(shell::root().join(docs::STORES)).unwrap();
        assert_eq!(crates_said(&stores).len(), 10);
    }

    #[test]
    fn a_part_that_is_not_there_is_refused_with_those_that_are() {
        let refused = run(&["lint".to_owned()]).unwrap_err();
        assert!(refused.contains("\"lint\"") && refused.contains("test, format, tidy, clippy"), "{refused}");
    }
}
