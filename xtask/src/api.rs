//! `cargo xtask api`: the names that users of the published crates can use, one line for each, kept in the repository.
//!
//! cargo-public-api reads it off rustdoc's JSON, which the stable compiler writes when it poses as a nightly one.

use crate::checks;
use crate::shell::{self, Result, cargo};

/// Reads the format of this workspace's compiler.
const CARGO_PUBLIC_API: &str = "0.52.0";

/// A part of the command in a crate of its own, without a stable interface.
const LAB: &str = "fencelock-lab";

/// Writes the lists anew.
pub(crate) fn write(args: &[String]) -> Result {
    shell::no_arguments(args)?;
    written().map(drop)
}

/// Writes outdated lists anew, and fails if there was one.
pub(crate) fn check() -> Result {
    let changed = written()?.join(", ");
    let fault = format!("{changed} was not what users can name: commit the written list, and say it in CHANGELOG.md");
    if changed.is_empty() { Ok(()) } else { Err(fault) }
}

/// The lists that changed.
fn written() -> Result<Vec<String>> {
    checks::ensure_cargo("public-api", CARGO_PUBLIC_API)?;
    let mut changed = Vec::new();
    let has_users = |name: &String| name != LAB && shell::read(&format!("crates/{name}/src/lib.rs")).is_ok();
    for package in checks::published()?.into_iter().filter(has_users) {
        let list = format!("docs/api/{package}.txt");
        let mut api = cargo(&["public-api", "--package", &package, "--all-features", "-sss"]);
        // A directory of its own: flags of the compiler that are not the build's would make the build begin anew.
        let now = shell::output(api.env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", "target/api"))?;
        if shell::read(&list).unwrap_or_default() != now {
            std::fs::write(shell::root().join(&list), now).map_err(|error| format!("{list}: {error}"))?;
            changed.push(list);
        }
    }
    Ok(changed)
}
