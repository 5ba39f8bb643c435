//! Sleeps: in a store only `next` may sleep, in tests no one; reviewed exceptions are listed with their reason.

use super::Violation;
use super::source::has_word;
use super::tree::Tree;

const ROOMS: [&str; 2] = ["crates/fencelock/src/stores/", "crates/fencelock/src/kit/"];
const REVIEWED_STORES: &str = "xtask/reviewed/store-sleeps.txt";
const REVIEWED_TESTS: &str = "xtask/reviewed/test-sleeps.txt";

pub(super) fn stores_do_not_sleep(tree: &Tree) -> Vec<Violation> {
    const WORDS: [&str; 6] =
        ["time::sleep", "sleep_until", "outcome_before", "thread::sleep", "time::interval", "time::timeout"];
    let found = ROOMS.into_iter().flat_map(|room| tree.rust(room)).flat_map(|source| {
        // A clock of a store's own has to say what sleeping on it means.
        let waits = |code: &str| !code.contains("fn sleep_until") && WORDS.iter().any(|word| has_word(code, word));
        let lines: Vec<_> = source.shipped_lines().filter(|(_, code)| waits(code)).map(|(line, _)| line).collect();
        lines.into_iter().map(move |line| (source.path.to_owned(), line)).collect::<Vec<_>>()
    });
    let fix = "only `Place::next` may wait, on the engine's clock; if this is part of it, list the file in xtask/reviewed/store-sleeps.txt";
    unreviewed(tree, REVIEWED_STORES, found, "a store waits here", fix)
}

pub(super) fn tests_do_not_sleep(tree: &Tree) -> Vec<Violation> {
    let found = tree.rust("").flat_map(|source| {
        let lines: Vec<_> =
            source.test_lines().filter(|(_, code)| has_word(code, "sleep(")).map(|(line, _)| line).collect();
        lines.into_iter().map(move |line| (source.path.to_owned(), line)).collect::<Vec<_>>()
    });
    let fix = "wait on the state that the test needs; if time itself is tested, list the file in xtask/reviewed/test-sleeps.txt";
    unreviewed(tree, REVIEWED_TESTS, found, "a test sleeps here", fix)
}

fn unreviewed(
    tree: &Tree,
    list: &str,
    found: impl Iterator<Item = (String, usize)>,
    fault: &str,
    fix: &'static str,
) -> Vec<Violation> {
    let mut reviewed: Vec<(usize, &str, bool)> = tree.text(list).map(entries).unwrap_or_default();
    let mut violations = Vec::new();
    for (path, line) in found {
        match reviewed.iter_mut().find(|(_, listed, _)| *listed == path) {
            Some((_, _, used)) => *used = true,
            None => violations.push(Violation::at(&path, line, fault, fix)),
        }
    }
    for (line, path, _) in reviewed.iter().filter(|(_, _, used)| !used) {
        let fault = format!("{path} does not sleep");
        violations.push(Violation::at(list, *line, fault, "take it off the list"));
    }
    violations
}

/// The paths listed, each with its line; an entry is `path: reason`.
fn entries(list: &str) -> Vec<(usize, &str, bool)> {
    let lines = list.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
    lines.map(|(index, line)| (index + 1, line.split_once(": ").map_or(line, |(path, _)| path), false)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: (&str, &str) = ("crates/a/tests/b.rs", "fn a() {\n    sleep(x);\n}\n");

    #[test]
    fn a_store_that_sleeps_is_found() {
        let store = ("crates/fencelock/src/stores/file/place.rs", "fn a() {\n    tokio::time::sleep(x).await\n}\n");
        assert_eq!(stores_do_not_sleep(&Tree::of(&[store]))[0].line, 2);
        let list = (REVIEWED_STORES, "# why\ncrates/fencelock/src/stores/file/place.rs: it is `next`\n");
        assert!(stores_do_not_sleep(&Tree::of(&[store, list])).is_empty());
    }

    #[test]
    fn a_test_that_sleeps_is_found_unless_it_was_reviewed() {
        assert_eq!(tests_do_not_sleep(&Tree::of(&[TEST]))[0].line, 2);
        let list = (REVIEWED_TESTS, "crates/a/tests/b.rs: time is what it tests\n");
        assert!(tests_do_not_sleep(&Tree::of(&[TEST, list])).is_empty());
    }

    #[test]
    fn an_entry_that_is_not_needed_any_more_is_found() {
        let list = (REVIEWED_TESTS, "crates/a/tests/gone.rs: it slept once\n");
        assert_eq!(tests_do_not_sleep(&Tree::of(&[list]))[0].line, 1);
    }
}
