//! The package for Debian: the command, its manual and its completions.

use std::fs;

use crate::checks;
use crate::shell::{self, Result, cargo, command, root};

/// Built where there is none.
const CARGO_DEB: &str = "3.8.0";

/// The directory for the files of the package; `Cargo.toml` of the command names it.
const MADE: &str = "target/package-assets";

/// The shells, and the files of their completions.
const SHELLS: [(&str, &str); 3] = [("bash", "fencelock"), ("zsh", "_fencelock"), ("fish", "fencelock.fish")];

/// Builds the command, lets it write its completions and its manual, packs all of it with cargo-deb, and lets lintian look at it.
pub(crate) fn run(args: &[String]) -> Result {
    checks::ensure_cargo("deb", CARGO_DEB)?;
    shell::run(&mut cargo(&["build", "--release", "--locked", "--package", "fencelock-cli"]))?;
    let (made, program) = (root().join(MADE), root().join("target/release/fencelock"));
    let failed = |error: std::io::Error| format!("{MADE}: {error}");
    if made.exists() {
        fs::remove_dir_all(&made).map_err(failed)?;
    }
    fs::create_dir_all(made.join("man")).map_err(failed)?;
    shell::run(command(&program).args(["man", "--directory"]).arg(made.join("man")))?;
    for (shell, file) in SHELLS {
        let script = command(&program).args(["completions", shell]).output().map_err(failed)?;
        if !script.status.success() {
            return Err(format!("no completions for {shell}: {}", script.status));
        }
        fs::write(made.join(file), script.stdout).map_err(failed)?;
    }
    let mut pack = cargo(&["deb", "--no-build", "--strip", "--locked", "--package", "fencelock-cli"]);
    let packed = shell::output(pack.args(args))?;
    let package = packed.trim();
    println!("{package}");
    if !shell::succeeds(command("lintian").arg("--version")) {
        println!("NOT CHECKED: there is no lintian here");
        return Ok(());
    }
    shell::run(command("lintian").args(["--fail-on", "error,warning", package]))
}
