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
        violations.push(whole("CHANGELOG.md", "has no section `## [Unreleased]`", "add it above the newest release"));
    }
    violations
}

fn one_page(tree: &Tree, page: &str) -> Option<Violation> {
    let Some(text) = tree.text(page) else { return Some(whole(page, "is missing", "it is one page of every house")) };
    (text.lines().count() > PAGE).then(|| whole(page, "is longer than a page", "say less, or move a part to docs/"))
}

fn whole(path: &str, fault: &str, fix: &'static str) -> Violation {
    Violation { path: path.to_owned(), line: 0, fault: fault.to_owned(), fix }
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
