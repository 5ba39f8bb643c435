//! Every store has the same parts.

use std::collections::BTreeSet;

use super::Violation;
use super::source::Source;
use super::tree::Tree;

/// The longest conformance file, in lines: what needs more is a law or a harness, and belongs to the suite.
const CONFORMANCE_LINES: usize = 40;

const STORES: &str = "crates/fencelock/src/stores/";

pub(super) fn complete(tree: &Tree) -> Vec<Violation> {
    let folder =
        |source: Source<'_>| source.path.strip_prefix(STORES)?.split_once('/').map(|(store, _)| store.to_owned());
    let stores: BTreeSet<String> = tree.rust(STORES).filter_map(folder).collect();
    stores.iter().flat_map(|store| parts(tree, store)).collect()
}

fn parts(tree: &Tree, store: &str) -> Vec<Violation> {
    let notes = format!("{STORES}{store}/NOTES.md");
    let suite = format!("crates/fencelock-conformance/tests/stores/{store}.rs");
    let mut violations = Vec::new();
    if tree.text(&notes).is_none() {
        violations
            .push(missing(notes, "write down its layout, who judges time, what is lost when, and the round trips"));
    }
    match tree.text(&suite).map(|text| text.lines().count()) {
        None => violations.push(missing(suite, "run the laws of every store over it")),
        Some(lines) if lines > CONFORMANCE_LINES => violations.push(Violation {
            path: suite,
            line: CONFORMANCE_LINES + 1,
            fault: format!("has {lines} lines, more than {CONFORMANCE_LINES}"),
            fix: "move what is not this store's set-up into the suite",
        }),
        Some(_) => {}
    }
    violations
}

fn missing(path: String, fix: &'static str) -> Violation {
    Violation { path, line: 0, fault: "is missing".to_owned(), fix }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTES: (&str, &str) = ("crates/fencelock/src/stores/x/NOTES.md", "# Notes\n");
    const SUITE: &str = "crates/fencelock-conformance/tests/stores/x.rs";

    fn of(files: &[(&str, &str)]) -> Vec<Violation> {
        complete(&Tree::of(&[files, &[("crates/fencelock/src/stores/x/mod.rs", "")]].concat()))
    }

    #[test]
    fn a_store_without_notes_or_conformance_is_found() {
        assert_eq!(of(&[]).len(), 2);
        assert!(of(&[NOTES, (SUITE, "fn a() {}\n")]).is_empty());
    }

    #[test]
    fn a_conformance_file_that_grew_is_found() {
        assert_eq!(of(&[NOTES, (SUITE, &"line\n".repeat(41))])[0].line, 41);
        assert!(of(&[NOTES, (SUITE, &"line\n".repeat(40))]).is_empty());
    }
}
