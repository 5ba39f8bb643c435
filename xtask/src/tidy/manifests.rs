//! Rules about manifests.

use toml::{Table, Value};

use super::Violation;
use super::tree::Tree;

pub(super) fn complete(tree: &Tree) -> Vec<Violation> {
    tree.ending("Cargo.toml").flat_map(|(path, text)| faults(path, text)).collect()
}

fn faults(path: &str, text: &str) -> Vec<Violation> {
    let fault = |fault: &str, fix| Violation { path: path.to_owned(), line: 0, fault: fault.to_owned(), fix };
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(_) => return vec![fault("cannot be read", "see `cargo metadata`")],
    };
    let mut faults = Vec::new();
    if manifest.contains_key("workspace") && lookup(&manifest, "workspace.lints.rust.unsafe_code") != Some("forbid") {
        faults.push(fault("does not forbid unsafe code", "say unsafe_code = \"forbid\" in [workspace.lints.rust]"));
    }
    let Some(package) = manifest.get("package").and_then(Value::as_table) else { return faults };
    let inherits = |table: Option<&Value>| table.and_then(|value| value.get("workspace")).and_then(Value::as_bool);
    if inherits(manifest.get("lints")) != Some(true) {
        faults.push(fault("does not take the lints of the workspace", "add [lints] workspace = true"));
    }
    if package.get("description").and_then(Value::as_str).is_none_or(str::is_empty) {
        faults.push(fault("has no description", "say in one line what the crate is"));
    }
    if inherits(package.get("license")) != Some(true) {
        faults.push(fault("does not take the licence of the workspace", "add license.workspace = true"));
    }
    faults
}

fn lookup<'a>(table: &'a Table, path: &str) -> Option<&'a str> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    match table.get(first)? {
        Value::Table(inner) => lookup(inner, rest),
        value => value.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "[package]\nname = \"a\"\ndescription = \"b\"\nlicense.workspace = true\n[lints]\nworkspace = true\n";

    #[test]
    fn a_manifest_that_lacks_lints_licence_or_description_is_found() {
        assert!(complete(&Tree::of(&[("a/Cargo.toml", GOOD)])).is_empty());
        assert_eq!(complete(&Tree::of(&[("a/Cargo.toml", "[package]\nname = \"a\"\n")])).len(), 3);
    }

    #[test]
    fn a_workspace_that_allows_unsafe_code_is_found() {
        let allows = "[workspace.lints.rust]\nunsafe_code = \"warn\"\n";
        assert_eq!(complete(&Tree::of(&[("Cargo.toml", allows)])).len(), 1);
    }
}
