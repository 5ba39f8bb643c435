//! `cargo xtask test --changed [BASE]`: the tests that a change concerns.
//!
//! A file concerns its package and those that depend on it; a test concerns itself. What lies in a directory that is named
//! like a store concerns no test of another store.

use std::collections::BTreeSet;

use serde_json::Value;

use super::costs;
use crate::docs::rooms;
use crate::shell::{self, Result, cargo, command};

/// What is compared with when nothing is said.
const BASE: &str = "main";

/// What may belong to any package.
const EVERYTHING: [&str; 3] = ["Cargo.toml", "Cargo.lock", ".cargo"];

/// Whose tests look at documents and at what is in no package.
const REST: &str = "xtask";

/// The tests that are concerned.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes(BTreeSet<Concern>);

/// Tests of a package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Concern {
    package: String,
    /// No other tests than this binary's, or this module's of it (`binary::module`).
    target: Option<String>,
    /// No tests that are about another store.
    store: Option<&'static str>,
}

/// A package of ours.
struct Package {
    name: String,
    /// Its directory from the root, with a slash at the end.
    directory: String,
    /// Its files and directories of tests that are a binary each, and the modules that run by themselves (`binary::module`).
    tests: Vec<String>,
    /// The packages of ours that it is built with, and its tests with them.
    needs: Vec<String>,
}

/// What has changed since the history parted from the base, committed or not. `None` when nothing has.
pub(super) fn since(args: &[String]) -> Result<Option<Changes>> {
    let base = match args {
        [] => BASE,
        [base] => base,
        _ => return Err(format!("--changed takes one commit at most ({BASE} otherwise), and was given {args:?}")),
    };
    let parted = shell::output(command("git").args(["merge-base", base, "HEAD"]))?;
    let changed = shell::output(command("git").args(["diff", "--name-only", "--no-renames", parted.trim()]))?;
    let new = shell::output(command("git").args(["ls-files", "--others", "--exclude-standard"]))?;
    let files: Vec<_> = changed.lines().chain(new.lines()).collect();
    if files.is_empty() {
        println!("nothing has changed since {base}");
        return Ok(None);
    }
    let changes = Changes::of(&files, &packages()?);
    for Concern { package, target, store } in &changes.0 {
        let target = target.as_ref().map(|target| format!(", only {target}")).unwrap_or_default();
        let store = store.map(|store| format!(", no store but {store}")).unwrap_or_default();
        println!("concerned: {package}{target}{store}");
    }
    Ok(Some(changes))
}

fn packages() -> Result<Vec<Package>> {
    let said = shell::output(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&said).map_err(|error| format!("cargo metadata: {error}"))?;
    let all = metadata["packages"].as_array().into_iter().flatten();
    all.map(|package| self::package(package).ok_or("cargo metadata has a package without a field".to_owned())).collect()
}

fn package(package: &Value) -> Option<Package> {
    let manifest = std::path::Path::new(package["manifest_path"].as_str()?);
    let directory = manifest.parent()?.strip_prefix(shell::root()).ok()?;
    let names = |list: &str, is_meant: fn(&Value) -> bool| {
        let meant = package[list].as_array()?.iter().filter(|entry| is_meant(entry));
        Some(meant.filter_map(|entry| entry["name"].as_str().map(str::to_owned)).collect())
    };
    let name = package["name"].as_str()?.to_owned();
    let mut tests: Vec<String> = names("targets", |target| target["kind"][0] == "test")?;
    tests.extend(costs::modules(&name).map(str::to_owned));
    Some(Package {
        name,
        directory: format!("{}/", directory.display()),
        tests,
        needs: names("dependencies", |dependency| !dependency["path"].is_null())?,
    })
}

impl Changes {
    fn of(files: &[&str], packages: &[Package]) -> Self {
        let mut changes = Self::default();
        for file in files {
            changes.add(file, packages);
        }
        changes
    }

    fn add(&mut self, file: &str, packages: &[Package]) {
        let all = |package: &Package| Concern { package: package.name.clone(), target: None, store: None };
        if EVERYTHING.iter().any(|top| file.split('/').next() == Some(top)) {
            return self.0.extend(packages.iter().map(all));
        }
        // Tidy reads everything.
        self.0.insert(Concern { package: REST.to_owned(), target: None, store: None });
        let Some(package) = packages.iter().find(|package| file.starts_with(&package.directory)) else { return };
        let path = &file[package.directory.len()..];
        let Some(test) = path.strip_prefix("tests/") else {
            let users = with_users(&package.name, packages).into_iter();
            let store = store_of(path).or_else(|| rooms().find(|store| package.name.ends_with(store)));
            return self.0.extend(users.map(|package| Concern { package, target: None, store }));
        };
        let mut parts = test.trim_end_matches(".rs").split('/');
        let binary = parts.next().unwrap_or(test).to_owned();
        let module = parts.next().map(|module| format!("{binary}::{module}"));
        // What does not run by itself is shared by all tests of the binary, and what is in none by all of the package.
        let target = module.into_iter().chain([binary]).find(|name| package.tests.contains(name));
        self.0.insert(Concern { package: package.name.clone(), target, store: None });
    }

    /// Whether the tests can turn out differently that run by the name of `target`, a binary or a module of it.
    pub(super) fn concern(&self, package: &str, target: &str) -> bool {
        let about = rooms().find(|store| target.split(['_', '-', ':']).any(|word| word == *store));
        let is_part_of =
            |of: &str| target.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
        self.0.iter().any(|concern| {
            concern.package == package
                && concern.target.as_deref().is_none_or(is_part_of)
                && (concern.store.is_none() || about.is_none() || concern.store == about)
        })
    }

    /// Whether the examples in the comments of code can turn out differently.
    pub(super) fn concern_docs(&self) -> bool {
        self.0.iter().any(|concern| concern.target.is_none() && concern.package != REST)
    }
}

/// The store whose directory a file lies in.
fn store_of(path: &str) -> Option<&'static str> {
    let (directories, _) = path.rsplit_once('/')?;
    directories.split('/').find_map(|part| rooms().find(|store| *store == part))
}

/// A package, and all that are built with it.
fn with_users(name: &str, packages: &[Package]) -> BTreeSet<String> {
    let mut found = BTreeSet::from([name.to_owned()]);
    loop {
        let users = packages.iter().filter(|package| package.needs.iter().any(|need| found.contains(need)));
        let more: BTreeSet<_> = users.map(|package| package.name.clone()).chain(found.clone()).collect();
        if more.len() == found.len() {
            return found;
        }
        found = more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages() -> Vec<Package> {
        let package = |name: &str, tests: &[&str], needs: &[&str]| Package {
            name: name.to_owned(),
            directory: if name == REST { format!("{name}/") } else { format!("crates/{name}/") },
            tests: tests.iter().map(|test| (*test).to_owned()).collect(),
            needs: needs.iter().map(|need| (*need).to_owned()).collect(),
        };
        vec![
            package("lib", &["redis", "zookeeper", "mutex_laws"], &["lib-zookeeper"]),
            package("lib-zookeeper", &["watches"], &[]),
            package("cli", &["command", "command::redis", "command::zookeeper"], &["lib"]),
            package(REST, &[], &["lib"]),
        ]
    }

    /// What runs, of all tests.
    fn concerned(files: &[&str]) -> Vec<String> {
        let changes = Changes::of(files, &packages());
        let of = |package: Package| {
            let runs = std::iter::once(package.name.clone()).chain(package.tests);
            let concerned = runs.filter(|run| changes.concern(&package.name, run));
            concerned.collect::<Vec<_>>()
        };
        packages().into_iter().flat_map(of).collect()
    }

    const ALL: [&str; 10] = [
        "lib",
        "redis",
        "zookeeper",
        "mutex_laws",
        "lib-zookeeper",
        "watches",
        "cli",
        "command",
        "command::redis",
        "command::zookeeper",
    ];

    #[test]
    fn a_file_of_code_concerns_its_package_and_those_that_depend_on_it() {
        assert_eq!(
            concerned(&["crates/cli/src/main.rs"]),
            ["cli", "command", "command::redis", "command::zookeeper", REST]
        );
        let lib: Vec<_> =
            ALL.into_iter().filter(|name| !["lib-zookeeper", "watches"].contains(name)).chain([REST]).collect();
        assert_eq!(concerned(&["crates/lib/src/error.rs"]), lib);
    }

    #[test]
    fn a_store_concerns_no_test_of_another_store() {
        let redis = concerned(&["crates/lib/src/stores/redis/mod.rs"]);
        assert_eq!(redis, ["lib", "redis", "mutex_laws", "cli", "command", "command::redis", REST]);
        let zookeeper = concerned(&["crates/lib-zookeeper/src/lib.rs"]);
        let all: Vec<_> = ALL.into_iter().filter(|name| !name.contains("redis")).chain([REST]).collect();
        assert_eq!(zookeeper, all);
        let both = concerned(&["crates/lib/src/stores/redis/mod.rs", "crates/lib/src/stores/zookeeper/mod.rs"]);
        assert!(both.contains(&"command::redis".to_owned()) && both.contains(&"command::zookeeper".to_owned()));
        let common = concerned(&["crates/lib/src/stores/redis/mod.rs", "crates/lib/src/stores/mod.rs"]);
        assert!(common.contains(&"command::zookeeper".to_owned()));
    }

    #[test]
    fn a_test_concerns_itself_and_what_tests_share_all_tests_of_the_package() {
        assert_eq!(concerned(&["crates/lib/tests/redis/ways.rs"]), ["redis", REST]);
        assert_eq!(concerned(&["crates/lib/tests/mutex_laws.rs"]), ["mutex_laws", REST]);
        assert_eq!(concerned(&["crates/cli/tests/command/redis.rs"]), ["command::redis", REST]);
        for shared in ["run.rs", "common/mod.rs", "main.rs"] {
            let file = format!("crates/cli/tests/command/{shared}");
            assert_eq!(concerned(&[&file]), ["command", "command::redis", "command::zookeeper", REST], "{shared}");
        }
        assert_eq!(concerned(&["crates/lib/tests/support/mod.rs"]), ["lib", "redis", "zookeeper", "mutex_laws", REST]);
    }

    #[test]
    fn documents_concern_what_reads_them_and_the_workspace_concerns_everything() {
        assert_eq!(concerned(&["docs/stores.md"]), [REST]);
        assert!(!Changes::of(&["docs/stores.md"], &packages()).concern_docs());
        let all: Vec<_> = ALL.into_iter().chain([REST]).collect();
        assert_eq!(concerned(&["Cargo.lock"]), all);
        assert!(concerned(&[]).is_empty());
    }

    #[test]
    fn packages_are_known_with_their_tests_and_needs() {
        let packages = super::packages().unwrap();
        let cli = packages.iter().find(|package| package.name == "fencelock-cli").unwrap();
        assert_eq!(cli.directory, "crates/fencelock-cli/");
        assert!(cli.tests.contains(&"command::run".to_owned()) && cli.needs.contains(&"fencelock".to_owned()));
        assert!(with_users("fencelock", &packages).contains(REST));
    }
}
