//! Words that have no place in a part of the code, and types of store clients in what is public.

use super::Violation;
use super::source::{Source, has_word, identifiers};
use super::tree::Tree;

const LIBRARY: &str = "crates/fencelock/src/";

/// Words that the library code of a folder may not contain.
struct Forbidden {
    folder: &'static str,
    words: &'static [&'static str],
    /// Files that may.
    except: &'static [&'static str],
    fix: &'static str,
}

const FORBIDDEN: &[Forbidden] = &[
    Forbidden {
        folder: "crates/fencelock/src/queue/",
        words: &[
            "std::time",
            "std::io",
            "std::fs",
            "std::net",
            "std::thread",
            "tokio",
            "rustix",
            "async",
            "Clock",
            "Moment",
            "Instant",
            "SystemTime",
            "Duration",
        ],
        except: &[],
        fix: "the rule is pure: pass in what it needs to know, and do I/O and time in engine/",
    },
    Forbidden {
        folder: "crates/fencelock/src/stores/redis/wire/",
        words: &["fair", "try_again"],
        except: &[],
        fix: "the wire knows a layout by the trait `LinkUser` alone: hand over what it needs there",
    },
    Forbidden {
        folder: "crates/fencelock/src/kit/",
        words: &["stores", "engine", "primitives", "redis", "postgres", "mysql", "rustix", "fencelock_zookeeper"],
        except: &[],
        fix: "a part of kit/ says nothing about one store, nor about the engine: hand over what it needs",
    },
    Forbidden {
        folder: LIBRARY,
        words: &["spawn"],
        except: &[
            "engine/hold.rs",
            "engine/io.rs",
            "engine/look.rs",
            "engine/mod.rs",
            "engine/opening.rs",
            "primitives/sticky.rs",
            "store/opening.rs",
            "stores/etcd/connection.rs",
            "stores/etcd/session.rs",
            "stores/mysql/connection.rs",
            "stores/postgres/connection.rs",
            "stores/redis/wire/connection.rs",
            "stores/redis/cluster/nodes.rs",
            "stores/redis/cluster/session.rs",
            "stores/redis/sentinel/replicas.rs",
            "stores/redis/redlock/servers.rs",
            "stores/file/watch.rs",
        ],
        fix: "ARCHITECTURE.md says which tasks there are: name the file there and in this rule",
    },
    Forbidden {
        folder: LIBRARY,
        words: &["println!", "print!", "eprintln!", "eprint!", "dbg!", "std::env", "env::var", "env::var_os"],
        except: &[],
        fix: "the library says things by errors, `tracing` and the Observer, and takes its settings from its caller",
    },
];

pub(super) fn words(tree: &Tree) -> Vec<Violation> {
    FORBIDDEN.iter().flat_map(|rule| find(tree, rule)).collect()
}

fn find(tree: &Tree, rule: &Forbidden) -> Vec<Violation> {
    let mut violations = Vec::new();
    let may = |source: &Source<'_>| rule.except.iter().any(|file| source.path == format!("{LIBRARY}{file}"));
    for source in tree.rust(rule.folder).filter(|source| !may(source)) {
        for (line, code) in source.shipped_lines() {
            for word in rule.words.iter().filter(|word| has_word(code, word)) {
                let fault = format!("`{word}` has no place here");
                violations.push(Violation::at(source.path, line, fault, rule.fix));
            }
        }
    }
    violations
}

pub(super) fn features_in_few_files(tree: &Tree) -> Vec<Violation> {
    const PLACES: [&str; 4] = ["kit/mod.rs", "stores/mod.rs", "store/registry.rs", "lib.rs"];
    let is_place = |source: &Source<'_>| PLACES.iter().any(|file| source.path == format!("{LIBRARY}{file}"));
    let mut violations = Vec::new();
    for source in tree.rust(LIBRARY).filter(|source| !is_place(source)) {
        for (line, code) in source.lines().filter(|(_, code)| asks_for_a_feature(code)) {
            let fault = format!("`{}` decides by feature", code.trim());
            let fix =
                "decide in kit/mod.rs, stores/mod.rs, store/registry.rs or lib.rs, where whole rooms are switched";
            violations.push(Violation::at(source.path, line, fault, fix));
        }
    }
    violations
}

/// Whether a line of code decides by a feature; tests of the deep tier may, everywhere.
fn asks_for_a_feature(code: &str) -> bool {
    let code = code.trim_start();
    let names_one = code.contains("feature =") || code.contains("feature=");
    let is_deep = code.starts_with("#[cfg(all(test, feature =");
    names_one && !is_deep && (code.contains("cfg") || code.starts_with("feature") || code.contains("(feature"))
}

pub(super) fn no_client_types(tree: &Tree) -> Vec<Violation> {
    tree.rust(LIBRARY).flat_map(|source| client_types(&source)).collect()
}

const CLIENTS: [&str; 9] = [
    "redis",
    "sqlx",
    "tokio_postgres",
    "mysql_async",
    "etcd_client",
    "zookeeper_client",
    "fencelock_zookeeper",
    "rustix",
    "rustls",
];

fn client_types(source: &Source<'_>) -> Vec<Violation> {
    let imported = imported_types(source);
    let mut violations = Vec::new();
    let mut signature = false;
    for (line, code) in source.shipped_lines() {
        signature |= code.trim_start().starts_with("pub ");
        if signature {
            // A body is not part of what callers see; a signature ends where it begins.
            let seen = code.split_once('{').filter(|_| !code.contains("use ")).map_or(code, |(seen, _)| seen);
            let client = CLIENTS.iter().find(|client| has_word(seen, &format!("{client}::")));
            let named = identifiers(seen).find(|word| imported.contains(word));
            if let Some(name) = client.copied().or(named) {
                let fault = format!("a public item names `{name}`, which belongs to a store's client crate");
                let fix = "wrap it in a type of our own, or make the item private to its room";
                violations.push(Violation::at(source.path, line, fault, fix));
            }
            signature = !code.contains(['{', ';', '}']) && !code.trim_end().ends_with(',');
        }
    }
    violations
}

/// The types that a file imports from client crates.
fn imported_types<'s>(source: &'s Source<'_>) -> Vec<&'s str> {
    let mut imported = Vec::new();
    let mut inside = false;
    for (_, code) in source.lines() {
        let code = code.trim_start();
        inside |= code.strip_prefix("use ").is_some_and(|path| CLIENTS.iter().any(|client| path.starts_with(client)));
        if inside {
            imported.extend(identifiers(code).filter(|word| word.starts_with(char::is_uppercase)));
            inside = !code.contains(';');
        }
    }
    imported
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planted(check: fn(&Tree) -> Vec<Violation>, path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_word_is_found_where_it_has_no_place_and_nowhere_else() {
        let text =
            "use std::time::Instant; // tokio\nfn a() {}\n#[cfg(test)]\nmod tests {\n    use std::time::Duration;\n}\n";
        assert_eq!(planted(words, "crates/fencelock/src/queue/rule.rs", text), [1, 1]);
        assert!(planted(words, "crates/fencelock/src/time.rs", text).is_empty());
        let text = "fn a(tasks: &Tasks) {\n    tasks.spawn(b());\n    println!();\n}\n";
        assert_eq!(planted(words, "crates/fencelock/src/stores/x/a.rs", text), [2, 3]);
        assert_eq!(planted(words, "crates/fencelock/src/stores/redis/wire/connection.rs", text), [3]);
        assert!(planted(words, "crates/fencelock-cli/src/a.rs", text).is_empty());
    }

    #[test]
    fn a_feature_is_decided_in_few_files_only() {
        let text =
            "#[cfg(feature = \"file\")]\nmod file;\n#[cfg(all(\n    feature = \"file\",\n))]\nlet feature = 1;\n";
        assert_eq!(planted(features_in_few_files, "crates/fencelock/src/client.rs", text), [1, 4]);
        assert!(planted(features_in_few_files, "crates/fencelock/src/lib.rs", text).is_empty());
        let deep = "#[cfg(all(test, feature = \"deep\"))]\nmod deep;\n";
        assert!(planted(features_in_few_files, "crates/fencelock/src/client.rs", deep).is_empty());
    }

    #[test]
    fn a_client_type_in_a_public_signature_is_found() {
        let text = concat!(
            "use redis::{Client, Value};\n",
            "pub fn a(x: sqlx::Row) -> u8 {\n    redis::go()\n}\n",
            "pub fn b(\n    x: u8\n) -> Client {\n    c()\n}\n",
            "pub(crate) fn c() -> Client { d() }\n",
            "pub use rustix::fs::Mode;\n",
            "fn e() -> Value { f() }\n",
        );
        assert_eq!(planted(no_client_types, "crates/fencelock/src/a.rs", text), [2, 7, 11]);
    }
}
