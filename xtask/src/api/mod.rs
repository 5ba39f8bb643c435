//! `cargo xtask api`: what users of the published crates can name, one line for each, kept in the repository.
//!
//! Read off the sources, not off the compiler: the formats that compilers write for tools change with every release, and a
//! fresh machine has one stable compiler. What this cannot see is said in `surface.rs`.

mod sources;
mod surface;
mod tokens;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use crate::shell::{self, Result};

/// A published crate and the list of what is public in it.
pub(crate) struct Snapshot {
    pub(crate) package: &'static str,
    pub(crate) list: &'static str,
}

pub(crate) const SNAPSHOTS: [Snapshot; 3] = [
    Snapshot { package: "crates/fencelock", list: "docs/api/fencelock.txt" },
    Snapshot { package: "crates/fencelock-sqlx", list: "docs/api/fencelock-sqlx.txt" },
    Snapshot { package: "crates/fencelock-zookeeper", list: "docs/api/fencelock-zookeeper.txt" },
];

pub(crate) fn run(args: &[String]) -> Result {
    let bless = match args {
        [] => false,
        [flag] if flag == "--bless" => true,
        _ => return Err(format!("takes --bless or nothing, and was given {args:?}")),
    };
    let mut changed = Vec::new();
    for Snapshot { package, list } in SNAPSHOTS {
        let now = current(&|path| std::fs::read_to_string(shell::root().join(path)).ok(), package)?;
        let path = shell::root().join(list);
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        if bless {
            write(&path, &now)?;
        } else if kept != now {
            println!("{list}:\n{}", difference(&kept, &now));
            changed.push(list);
        }
    }
    if changed.is_empty() { Ok(()) } else { Err(format!("{} not what users can name: {REMEDY}", changed.join(", "))) }
}

pub(crate) const REMEDY: &str = "run `cargo xtask api --bless` if users should see it so, and say it in CHANGELOG.md";

fn write(path: &Path, text: &str) -> Result {
    let folder = path.parent().unwrap_or(path);
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(path, text));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// The list for `package`, whose files `read` hands out by their path from the root.
pub(crate) fn current(read: &dyn Fn(&str) -> Option<String>, package: &str) -> Result<String> {
    let manifest = read(&format!("{package}/Cargo.toml")).ok_or_else(|| format!("{package} has no Cargo.toml"))?;
    let manifest: toml::Table = manifest.parse().map_err(|error| format!("{package}/Cargo.toml: {error}"))?;
    let name = manifest["package"]["name"].as_str().unwrap_or_default().replace('-', "_");
    let default = manifest.get("features").and_then(|features| features.get("default")?.as_array());
    let default: BTreeSet<String> =
        default.into_iter().flatten().filter_map(|feature| feature.as_str().map(str::to_owned)).collect();
    let sources = sources::Sources::read(read, &format!("{package}/src"))?;
    Ok(surface::lines(&sources, &name, &default).into_iter().map(|line| line + "\n").collect())
}

/// What went and what came, in the order of the lists.
pub(crate) fn difference(kept: &str, now: &str) -> String {
    let (before, after): (BTreeSet<&str>, BTreeSet<&str>) = (kept.lines().collect(), now.lines().collect());
    let mut told = String::new();
    for line in before.difference(&after) {
        let _ = writeln!(told, "    - {line}");
    }
    for line in after.difference(&before) {
        let _ = writeln!(told, "    + {line}");
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_and_what_came_is_told() {
        assert_eq!(difference("a\nb\n", "b\nc\n"), "    - a\n    + c\n");
    }
}
