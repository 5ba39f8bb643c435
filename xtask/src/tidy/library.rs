//! Rules about the library's code.

use super::Violation;
use super::source::{Source, has_word, identifiers};
use super::tree::Tree;

const LIBRARY: &str = "crates/fencelock/src/";

/// Finds `words` in lines and says what is wrong with them.
fn find<'a>(
    path: &str,
    lines: impl Iterator<Item = (usize, &'a str)>,
    words: &[&str],
    fix: &'static str,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (line, code) in lines {
        for word in words.iter().filter(|word| has_word(code, word)) {
            violations.push(Violation {
                path: path.to_owned(),
                line,
                fault: format!("`{word}` has no place here"),
                fix,
            });
        }
    }
    violations
}

pub(super) fn no_unsafe(tree: &Tree) -> Vec<Violation> {
    let fix = "use the safe call (rustix wraps the system calls), or leave it out: the whole house forbids it";
    tree.rust("").flat_map(|source| find(source.path, source.lines(), &["unsafe"], fix)).collect()
}

pub(super) fn features_in_few_files(tree: &Tree) -> Vec<Violation> {
    const PLACES: [&str; 4] = ["kit/mod.rs", "stores/mod.rs", "store/registry.rs", "lib.rs"];
    let mut violations = Vec::new();
    for source in
        tree.rust(LIBRARY).filter(|source| !PLACES.iter().any(|file| source.path == format!("{LIBRARY}{file}")))
    {
        for (line, code) in source.lines().filter(|(_, code)| asks_for_a_feature(code)) {
            violations.push(Violation {
                path: source.path.to_owned(),
                line,
                fault: format!("`{}` decides by feature", code.trim()),
                fix: "decide in kit/mod.rs, stores/mod.rs, store/registry.rs or lib.rs, where whole rooms are switched",
            });
        }
    }
    violations
}

fn asks_for_a_feature(code: &str) -> bool {
    let code = code.trim_start();
    let names_one = code.contains("feature =") || code.contains("feature=");
    names_one && (code.contains("cfg") || code.starts_with("feature") || code.contains("(feature"))
}

pub(super) fn no_client_types(tree: &Tree) -> Vec<Violation> {
    tree.rust(LIBRARY).flat_map(|source| client_types(&source)).collect()
}

const CLIENTS: [&str; 8] =
    ["redis", "sqlx", "tokio_postgres", "etcd_client", "zookeeper_client", "fencelock_zookeeper", "rustix", "rustls"];

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
                violations.push(Violation {
                    path: source.path.to_owned(),
                    line,
                    fault: format!("a public item names `{name}`, which belongs to a store's client crate"),
                    fix: "wrap it in a type of our own, or make the item private to its room",
                });
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

pub(super) fn queue_is_pure(tree: &Tree) -> Vec<Violation> {
    const WORDS: [&str; 13] = [
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
    ];
    let fix = "the rule is pure: pass in what it needs to know, and do I/O and time in engine/";
    let queue = format!("{LIBRARY}queue/");
    tree.rust(&queue).flat_map(|source| find(source.path, source.shipped_lines(), &WORDS, fix)).collect()
}

pub(super) fn redis_wire_knows_no_layout(tree: &Tree) -> Vec<Violation> {
    let fix = "the wire knows a layout by the trait `LinkUser` alone: hand over what it needs there";
    let wire = format!("{LIBRARY}stores/redis/wire/");
    tree.rust(&wire).flat_map(|source| find(source.path, source.lines(), &["fair", "race"], fix)).collect()
}

pub(super) fn kit_knows_no_store(tree: &Tree) -> Vec<Violation> {
    const WORDS: [&str; 7] = ["stores", "engine", "primitives", "redis", "postgres", "rustix", "fencelock_zookeeper"];
    let fix = "a part of kit/ says nothing about one store, nor about the engine: hand over what it needs";
    let kit = format!("{LIBRARY}kit/");
    tree.rust(&kit).flat_map(|source| find(source.path, source.shipped_lines(), &WORDS, fix)).collect()
}

pub(super) fn few_start_tasks(tree: &Tree) -> Vec<Violation> {
    const PLACES: [&str; 5] = [
        "stores/postgres/connection.rs",
        "stores/redis/wire/connection.rs",
        "stores/redis/race/quorum/fleet.rs",
        "stores/file/mail.rs",
        "stores/file/watch.rs",
    ];
    let fix = "the engine works in the background; what else starts a task stands in ARCHITECTURE.md and in this rule";
    let rooms = ["kit/", "stores/"].map(|room| format!("{LIBRARY}{room}"));
    let sources = rooms.iter().flat_map(|room| tree.rust(room));
    let others = sources.filter(|source| !PLACES.iter().any(|file| source.path == format!("{LIBRARY}{file}")));
    others.flat_map(|source| find(source.path, source.shipped_lines(), &["spawn"], fix)).collect()
}

pub(super) fn silent(tree: &Tree) -> Vec<Violation> {
    const WORDS: [&str; 8] =
        ["println!", "print!", "eprintln!", "eprint!", "dbg!", "std::env", "env::var", "env::var_os"];
    let fix = "the library says things by errors, `tracing` and the Observer, and takes its settings from its caller";
    tree.rust(LIBRARY).flat_map(|source| find(source.path, source.shipped_lines(), &WORDS, fix)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planted(check: fn(&Tree) -> Vec<Violation>, path: &str, text: &str) -> Vec<usize> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn unsafe_code_is_found_and_the_word_in_a_comment_is_not() {
        let text = "// unsafe\nfn a() {\n    unsafe { b() }\n}\n";
        assert_eq!(planted(no_unsafe, "xtask/src/a.rs", text), [3]);
    }

    #[test]
    fn a_feature_is_decided_in_few_files_only() {
        let text =
            "#[cfg(feature = \"file\")]\nmod file;\n#[cfg(all(\n    feature = \"file\",\n))]\nlet feature = 1;\n";
        assert_eq!(planted(features_in_few_files, "crates/fencelock/src/client.rs", text), [1, 4]);
        assert!(planted(features_in_few_files, "crates/fencelock/src/lib.rs", text).is_empty());
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

    #[test]
    fn time_and_io_in_the_queue_are_found() {
        let text = "use std::time::Instant;\nfn a() {}\n#[cfg(test)]\nmod tests {\n    use std::time::Duration;\n}\n";
        assert_eq!(planted(queue_is_pure, "crates/fencelock/src/queue/rule.rs", text), [1, 1]);
        assert!(planted(queue_is_pure, "crates/fencelock/src/time.rs", text).is_empty());
    }

    #[test]
    fn a_layout_is_found_in_the_wire_of_redis_alone() {
        let text = "use crate::stores::redis::fair::Hub;\n// fair\n";
        assert_eq!(planted(redis_wire_knows_no_layout, "crates/fencelock/src/stores/redis/wire/a.rs", text), [1]);
        assert!(planted(redis_wire_knows_no_layout, "crates/fencelock/src/stores/redis/mod.rs", text).is_empty());
    }

    #[test]
    fn a_store_in_the_kit_and_a_task_that_somebody_else_starts_are_found() {
        let text = "use crate::stores::file::Line;\nfn a(tasks: &Tasks) {\n    tasks.spawn(b());\n}\n";
        let kit = "crates/fencelock/src/kit/a.rs";
        assert_eq!((planted(kit_knows_no_store, kit, text), planted(few_start_tasks, kit, text)), (vec![1], vec![3]));
        assert_eq!(planted(few_start_tasks, "crates/fencelock/src/stores/x/a.rs", text), [3]);
        let (wire, engine) =
            ("crates/fencelock/src/stores/redis/wire/connection.rs", "crates/fencelock/src/engine/a.rs");
        assert!(planted(few_start_tasks, wire, text).is_empty() && planted(few_start_tasks, engine, text).is_empty());
    }

    #[test]
    fn printing_and_reading_the_environment_are_found_in_the_library_alone() {
        let text = "fn a() {\n    println!();\n    let b = std::env::var(\"B\");\n}\n";
        assert_eq!(planted(silent, "crates/fencelock/src/a.rs", text), [2, 3, 3]);
        assert!(planted(silent, "crates/fencelock-cli/src/a.rs", text).is_empty());
    }
}
