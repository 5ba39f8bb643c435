//! `cargo xtask api`: what users of the published crates can name, one line for each, kept in the repository.
//!
//! cargo-public-api reads it off rustdoc's JSON, which the stable compiler writes when it is told to be a nightly one.

use crate::checks;
use crate::shell::{self, Result, cargo, command};

/// Reads the format of the compiler that this workspace is built with.
const CARGO_PUBLIC_API: &str = "0.52.0";

const LISTS: &str = "docs/api";

/// Writes the lists anew.
pub(crate) fn write(args: &[String]) -> Result {
    shell::no_arguments(args)?;
    checks::ensure_cargo("public-api", CARGO_PUBLIC_API)?;
    let is_library = |package: &&String| shell::root().join(format!("crates/{package}/src/lib.rs")).exists();
    checks::published()?.iter().filter(is_library).try_for_each(|package| {
        let list = format!("{LISTS}/{package}.txt");
        let mut api = cargo(&["public-api", "--package", package, "--all-features", "-sss"]);
        // A directory of its own: flags of the compiler that are not the build's would make the build begin anew.
        let now = shell::output(api.env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", "target/api"))?;
        std::fs::write(shell::root().join(&list), now).map_err(|error| format!("{list}: {error}"))
    })
}

/// Fails when a list was not what users can name, and leaves it written anew.
pub(crate) fn check() -> Result {
    write(&[])?;
    let changed = shell::run(command("git").args(["diff", "--exit-code", "--", LISTS]));
    changed
        .map_err(|_| format!("{LISTS} was not what users can name: commit it as it is now, and say it in CHANGELOG.md"))
}
