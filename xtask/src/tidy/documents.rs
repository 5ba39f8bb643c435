//! The documents that have to be there. Parts that are made from the code are compared with it by tests (`cargo xtask docs`).

use super::Violation;
use super::tree::Tree;

/// The longest one-page document, in lines.
const PAGE: usize = 140;

const PAGES: [&str; 7] =
    ["ARCHITECTURE.md", "INVARIANTS.md", "STYLE.md", "GLOSSARY.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];

pub(super) fn there(tree: &Tree) -> Vec<Violation> {
    let mut violations: Vec<_> = PAGES.iter().filter_map(|page| one_page(tree, page)).collect();
    if !tree.text("CHANGELOG.md").is_some_and(|text| text.lines().any(|line| line.starts_with("## [Unreleased]"))) {
        violations.push(Violation::at(
            "CHANGELOG.md",
            0,
            "has no section `## [Unreleased]`",
            "add it above the newest release",
        ));
    }
    violations
}

fn one_page(tree: &Tree, page: &str) -> Option<Violation> {
    let whole = |fault, fix| Some(Violation::at(page, 0, fault, fix));
    let Some(text) = tree.text(page) else { return whole("is missing", "it is one page of every house") };
    let is_longer = text.lines().count() > PAGE;
    if is_longer { whole("is longer than a page", "say less, or move a part to docs/") } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_outgrown_documents_are_found() {
        let mut files: Vec<(&str, &str)> = PAGES.iter().map(|page| (*page, "# Page\n## [Unreleased]\n")).collect();
        assert!(there(&Tree::of(&files)).is_empty());
        let long = "x\n".repeat(PAGE + 1);
        (files[0].1, files[5].1) = (&long, "# Changelog\n");
        let paths: Vec<_> = there(&Tree::of(&files)).into_iter().map(|violation| violation.path).collect();
        assert_eq!(paths, ["ARCHITECTURE.md", "CHANGELOG.md"]);
        assert_eq!(there(&Tree::of(&[])).len(), PAGES.len() + 1);
    }
}
