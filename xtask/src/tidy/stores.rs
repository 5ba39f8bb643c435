//! Every store has the same parts.

use std::collections::BTreeSet;

use super::Violation;
use super::source::Source;
use super::tree::Tree;

const STORES: &str = "crates/fencelock/src/stores/";

pub(super) fn complete(tree: &Tree) -> Vec<Violation> {
    let folder =
        |source: Source<'_>| source.path.strip_prefix(STORES)?.split_once('/').map(|(store, _)| store.to_owned());
    let stores: BTreeSet<String> = tree.rust(STORES).filter_map(folder).collect();
    let parts = stores.iter().flat_map(|store| {
        [
            (
                format!("{STORES}{store}/NOTES.md"),
                "write down its layout, who judges time, what is lost when, and the round trips",
            ),
            (format!("crates/fencelock-conformance/tests/stores/{store}.rs"), "run the laws of every store over it"),
        ]
    });
    let missing = parts.filter(|(path, _)| tree.text(path).is_none());
    missing.map(|(path, fix)| Violation::at(&path, 0, "is missing", fix)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_without_notes_or_conformance_is_found() {
        let (store, notes) = (("crates/fencelock/src/stores/x/mod.rs", ""), "crates/fencelock/src/stores/x/NOTES.md");
        assert_eq!(complete(&Tree::of(&[store])).len(), 2);
        assert_eq!(complete(&Tree::of(&[store, (notes, "# Notes\n")])).len(), 1);
    }
}
