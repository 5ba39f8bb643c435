//! The rows of the deep tier that are no tests: every feature, the oldest compiler, packages, dependencies, README, other clients.

use std::collections::BTreeSet;

use crate::packages;
use crate::shell::{self, Result, cargo};

/// The versions that a fresh machine gets; installed ones of other versions are used.
const CARGO_DENY: &str = "0.20.2";
const CARGO_LLVM_COV: &str = "0.9.1";

/// The document that says how many crates a small build has.
const STORES: &str = "docs/stores.md";

pub(crate) fn clippy(args: &[String]) -> Result {
    let mut clippy = cargo(&["clippy", "--workspace", "--all-targets", "--all-features"]);
    shell::run(clippy.args(args).args(["--", "--deny", "warnings"]))
}

/// A million contended cycles over one name, and over 64, in each database.
pub(crate) fn cycles() -> Result {
    packages::ensure(packages::GATE, packages::SERVERS)?;
    let args = ["test", "--release", "--package", "fencelock-bench", "--test", "cycles", "--", "--show-output"];
    shell::run(cargo(&args).arg("--test-threads=1"))
}

/// Published crates without any feature, and with each one alone; the command and the examples without the unstable one.
pub(crate) fn features() -> Result {
    for package in published()? {
        let check = |features: &str| {
            let args = ["clippy", "--package", &package, "--no-default-features", "--features", features];
            shell::run(cargo(&args).args(["--", "--deny", "warnings"]))
        };
        check("")?;
        let manifest = shell::read(&format!("crates/{package}/Cargo.toml"))?;
        section(&manifest, "features").filter(|(name, _)| *name != "default").try_for_each(|(name, _)| check(name))?;
    }
    small_builds()?;
    // Apart from the workspace: users build them without `unstable-store`.
    let users = ["clippy", "--package", "fencelock-cli", "--package", "fencelock-examples", "--", "--deny", "warnings"];
    shell::run(&mut cargo(&users))
}

/// The lines `key = value` of a section of a manifest. A value over several lines is cut.
fn section<'a>(manifest: &'a str, name: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let head = format!("[{name}]");
    let lines =
        manifest.lines().skip_while(move |line| *line != head).skip(1).take_while(|line| !line.starts_with('['));
    let is_entry = |line: &&str| line.starts_with(|c: char| c.is_ascii_alphanumeric());
    lines.filter(is_entry).filter_map(|line| line.split_once(" = "))
}

/// The most crates of a build for a local directory alone.
const FILE_ALONE: usize = 40;

/// A build has as many crates as the document says, and one for a local directory is small.
fn small_builds() -> Result {
    for (features, said) in crates_said(&shell::read(STORES)?) {
        let features = match features.as_str() {
            "none" => Some(String::new()),
            feature => feature.strip_prefix('`').map(|feature| feature.trim_end_matches('`').to_owned()),
        };
        let count = crates(features.as_deref())?;
        if count != said {
            return Err(format!("{STORES} says {said} crates for {features:?}, and they are {count}"));
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
    Ok(listed.lines().filter(|line| !line.is_empty()).map(name).collect::<BTreeSet<_>>().len())
}

/// Published crates compile on the oldest compiler that they name, with TLS and without.
pub(crate) fn oldest() -> Result {
    let all = ["--package", "fencelock-cli", "--package", "fencelock", "--package", "fencelock-zookeeper"];
    check_on("Cargo.toml", &[&all[..], &["--all-features"]].concat())?;
    // The choice where TLS is left out. Every feature alone is a part of these two.
    let plain = "file,memory,redis,zookeeper,postgres,mysql,etcd";
    check_on("Cargo.toml", &["--package", "fencelock", "--no-default-features", "--features", plain])?;
    // The oldest compiler of fencelock-sqlx is that of sqlx.
    check_on("crates/fencelock-sqlx/Cargo.toml", &["--package", "fencelock-sqlx", "--all-features"])
}

/// Checks with the oldest compiler that this manifest names, which is installed where there is none.
fn check_on(manifest: &str, args: &[&str]) -> Result {
    let text = shell::read(manifest)?;
    let version = text.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'));
    let version = &format!("{}.0", version.ok_or_else(|| format!("{manifest} names no rust-version"))?);
    let rustup = |args: &[&str]| {
        let mut command = shell::command("rustup");
        // A directory apart: another compiler would make all builds begin anew. A wrapper in the environment is the newer clippy's.
        command.args(args).env("CARGO_TARGET_DIR", "target/oldest").env_remove("RUSTC_WORKSPACE_WRAPPER");
        command
    };
    if !shell::succeeds(&mut rustup(&["run", version, "cargo", "--version"])) {
        shell::run(&mut rustup(&["toolchain", "install", version, "--profile", "minimal", "--no-self-update"]))?;
    }
    shell::run(rustup(&["run", version, "cargo", "check", "--locked"]).args(args))
}

/// The part of the library that its unit tests and the laws on `memory:` run: the line TOTAL. Needs rustup's component `llvm-tools`, or
/// `LLVM_COV` and `LLVM_PROFDATA` of the compiler's version.
pub(crate) fn coverage() -> Result {
    packages::ensure(packages::GATE, packages::GATE_SERVERS)?;
    ensure_cargo("llvm-cov", CARGO_LLVM_COV)?;
    let args = ["llvm-cov", "--summary-only", "--all-features", "--package", "fencelock", "--lib", "--test", "laws"];
    shell::run(cargo(&args).env("CARGO_TARGET_DIR", "target/coverage"))
}

pub(crate) fn rustdoc() -> Result {
    let doc =
        |args: &[&str]| shell::run(cargo(&["doc", "--no-deps"]).args(args).env("RUSTDOCFLAGS", "--deny warnings"));
    // Without features, and with the default ones, the target of a link can be missing.
    doc(&["--package", "fencelock", "--no-default-features"])?;
    doc(&["--package", "fencelock"])?;
    doc(&["--workspace", "--all-features"])
}

/// Published crates are complete: metadata, licences and description. No package is built: that takes as long as all else.
pub(crate) fn package() -> Result {
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
pub(crate) fn published() -> Result<Vec<String>> {
    let crates = shell::root().join("crates");
    let entries = crates.read_dir().map_err(|error| format!("{}: {error}", crates.display()))?;
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str().map(str::to_owned)).collect();
    names.sort();
    let published = |name: &String| {
        let manifest = shell::read(&format!("crates/{name}/Cargo.toml")).unwrap_or_default();
        !manifest.is_empty() && !section(&manifest, "package").any(|entry| entry == ("publish", "false"))
    };
    names.retain(published);
    Ok(names)
}

/// README's first command, as it stands there, built from nothing.
pub(crate) fn readme() -> Result {
    let readme = shell::read("README.md")?;
    let line = readme.lines().find(|line| line.starts_with("cargo run --"));
    let line = line.ok_or("README has no line that starts with `cargo run --`")?;
    let scratch = shell::root().join("target/readme");
    // The directory is there only after an earlier run.
    let _ = std::fs::remove_dir_all(&scratch);
    let mut shell = shell::command("sh");
    shell.args(["-c", line]).env("CARGO_TARGET_DIR", &scratch).env_remove("FENCELOCK_STORE");
    // Neither the locks nor the settings of the user that runs this play a part.
    let state = scratch.join("state");
    match shell::output(shell.env("XDG_STATE_HOME", &state).env("XDG_CONFIG_HOME", &state))?.trim() {
        "I hold the lock" => Ok(()),
        printed => Err(format!("README's first command printed {printed:?}")),
    }
}

/// Plays with clients in other languages on the same locks; the program was built with all else.
pub(crate) fn interop() -> Result {
    packages::ensure(packages::INTEROP, packages::SERVERS)?;
    shell::run(&mut shell::command(shell::root().join("target/debug/fencelock-interop")))
}

/// Licences, sources, bans.
pub(crate) fn deny() -> Result {
    ensure_cargo("deny", CARGO_DENY)?;
    shell::run(&mut cargo(&["deny", "check", "bans", "licenses", "sources"]))
}

/// `cargo xtask advisories`: fails on an advisory that concerns us. Where the list cannot be fetched it says so and succeeds: a
/// machine without a network cannot know, and must not cry wolf every week.
pub(crate) fn advisories(args: &[String]) -> Result {
    shell::no_arguments(args)?;
    ensure_cargo("deny", CARGO_DENY)?;
    if let Err(fault) = shell::run(&mut cargo(&["deny", "fetch", "db"])) {
        println!("NOT CHECKED: the list of advisories cannot be fetched here ({fault})");
        return Ok(());
    }
    shell::run(&mut cargo(&["deny", "check", "--disable-fetch", "advisories"]))
}

/// Builds a subcommand of cargo where there is none.
pub(crate) fn ensure_cargo(verb: &str, version: &str) -> Result {
    if !shell::succeeds(&mut cargo(&[verb, "--version"])) {
        // Without optimisation it computes for a second longer, and is built in a third of the time.
        let mut install = cargo(&["install", &format!("cargo-{verb}"), "--version", version, "--locked", "--debug"]);
        shell::run(install.env("CARGO_PROFILE_DEV_DEBUG", "0"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_crates_is_read_from_the_table_of_small_builds() {
        let table = "# S\n\n| features | crates |\n|---|---:|\n| none | 30 |\n| `file` | 38 |\n\nmore | 7 |\n";
        assert_eq!(crates_said(table), [("none".to_owned(), 30), ("`file`".to_owned(), 38)]);
        assert_eq!(crates_said(&shell::read(STORES).unwrap()).len(), 14);
    }

    #[test]
    fn a_section_of_a_manifest_is_read() {
        let manifest = "[package]\nname = \"a\"\n\n[features]\n# One.\none = [\n    \"two\",\n]\ntwo = []\n\n[lints]\n";
        let names: Vec<_> = section(manifest, "features").map(|(name, _)| name).collect();
        assert_eq!(names, ["one", "two"]);
        let published = published().unwrap();
        assert!(published.contains(&"fencelock".to_owned()) && !published.contains(&"fencelock-testbed".to_owned()));
    }
}
