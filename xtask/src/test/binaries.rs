//! The test binaries: built once, by cargo, which says where they are.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::shell::{self, Result, cargo};

/// What cargo builds and runs for `cargo xtask test`.
pub(super) const WHAT: [&str; 2] = ["--workspace", "--all-features"];

/// A test binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binary {
    pub(super) package: String,
    /// The name of the library, the program or the file of tests.
    pub(super) target: String,
    pub(super) executable: PathBuf,
    /// Where the package is, and where cargo runs its tests.
    pub(super) directory: PathBuf,
}

/// Builds every test binary, and all that tests run besides.
pub(super) fn build() -> Result<Vec<Binary>> {
    let args = ["test", "--no-run", "--message-format=json-render-diagnostics"];
    let binaries = listed(&shell::output(cargo(&args).args(WHAT))?)?;
    if binaries.is_empty() { Err("cargo has built no test binary".to_owned()) } else { Ok(binaries) }
}

/// The test binaries in what cargo says of a build: a line of JSON for each thing that it built.
fn listed(messages: &str) -> Result<Vec<Binary>> {
    let mut binaries = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line).map_err(|error| format!("cargo said {line:?}: {error}"))?;
        // A program that tests run is an executable too, and no test.
        if message["reason"] != "compiler-artifact"
            || message["profile"]["test"] != true
            || message["executable"].is_null()
        {
            continue;
        }
        binaries.push(binary(&message).ok_or_else(|| format!("this line of cargo's lacks a field: {line}"))?);
    }
    Ok(binaries)
}

fn binary(message: &Value) -> Option<Binary> {
    let directory = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    // An id ends in `#version` where the directory is named like the package, and in `#name@version` elsewhere.
    let (path, name) = message["package_id"].as_str()?.rsplit_once('#')?;
    let package = name.split_once('@').map(|(name, _)| name).or_else(|| path.rsplit('/').next())?;
    Some(Binary {
        package: package.to_owned(),
        target: message["target"]["name"].as_str()?.to_owned(),
        executable: message["executable"].as_str()?.into(),
        directory,
    })
}

impl Binary {
    /// Runs it as cargo does.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory);
        command
    }

    /// The names of its tests.
    pub(super) fn tests(&self) -> Result<Vec<String>> {
        let list = shell::output(self.command().args(["--list", "--format", "terse"]))?;
        Ok(list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, test: bool, executable: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"path+file:///x/{id}","manifest_path":"/x/crates/a/Cargo.toml","target":{{"name":"t"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
        )
    }

    #[test]
    fn tests_are_told_from_programs_and_libraries() {
        let said = [
            message("crates/a#0.1.0", true, r#""/x/target/t-1""#),
            message("crates/a#0.1.0", false, r#""/x/target/t""#),
            message("crates/a#0.1.0", true, "null"),
            message("crates/a#b@0.1.0", true, r#""/x/target/t-2""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
            "something else".to_owned(),
        ];
        let binaries = listed(&said.join("\n")).unwrap();
        let names: Vec<_> =
            binaries.iter().map(|binary| (binary.package.as_str(), binary.executable.to_str())).collect();
        assert_eq!(names, [("a", Some("/x/target/t-1")), ("b", Some("/x/target/t-2"))]);
        assert_eq!((binaries[0].target.as_str(), binaries[0].directory.to_str()), ("t", Some("/x/crates/a")));
    }

    #[test]
    fn a_message_that_is_not_understood_is_a_failure() {
        assert!(listed("{").unwrap_err().contains("cargo said"));
        let odd = r#"{"reason":"compiler-artifact","profile":{"test":true},"executable":"/x"}"#;
        assert!(listed(odd).unwrap_err().contains("lacks a field"));
    }
}
