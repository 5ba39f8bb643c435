//! The documents that have to be there, and the parts of them that are made from the code.

use super::Violation;
use super::tree::Tree;
use crate::{api, docs, figures};

/// The longest one-page document, in lines.
const PAGE: usize = 140;

const PAGES: [&str; 6] =
    ["ARCHITECTURE.md", "STYLE.md", "GLOSSARY.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];

pub(super) fn current(tree: &Tree) -> Vec<Violation> {
    let mut violations: Vec<_> = PAGES.iter().filter_map(|page| one_page(tree, page)).collect();
    if !tree.text("CHANGELOG.md").is_some_and(|text| text.lines().any(|line| line.starts_with("## [Unreleased]"))) {
        violations.push(whole("CHANGELOG.md", "has no section `## [Unreleased]`", "add it above the newest release"));
    }
    for (document, _) in docs::MADE {
        match tree.text(document) {
            None => violations.push(whole(document, "is missing", "write it, then run `cargo xtask docs`")),
            Some(text) if docs::current(document, text).as_deref() != Ok(text) => {
                violations.push(whole(document, "is not what the code says", "run `cargo xtask docs`"));
            }
            Some(_) => {}
        }
    }
    let plot = tree.text(figures::BENCHMARKS).and_then(|text| figures::plot(text).ok());
    if plot.as_deref() != tree.text(figures::PLOT) {
        violations.push(whole(figures::PLOT, "does not show the figures of the tables", "run `cargo xtask docs`"));
    }
    violations
}

/// The lists of what is public.
pub(super) fn api(tree: &Tree) -> Vec<Violation> {
    let check = |snapshot: &api::Snapshot| {
        let fault = match api::current(&|path| tree.text(path).map(str::to_owned), snapshot.package) {
            Err(fault) => fault,
            Ok(now) => match tree.text(snapshot.list).unwrap_or_default() {
                kept if kept == now => return None,
                kept => format!("is not what users can name:\n{}", api::difference(kept, &now).trim_end()),
            },
        };
        Some(whole(snapshot.list, &fault, api::REMEDY))
    };
    api::SNAPSHOTS.iter().filter_map(check).collect()
}

fn one_page(tree: &Tree, page: &str) -> Option<Violation> {
    let Some(text) = tree.text(page) else { return Some(whole(page, "is missing", "it is one page of every house")) };
    // A changelog grows by what it is for.
    let long = page != "CHANGELOG.md" && text.lines().count() > PAGE;
    long.then(|| whole(page, "is longer than a page", "say less, or move a part to docs/"))
}

fn whole(path: &str, fault: &str, fix: &'static str) -> Violation {
    Violation { path: path.to_owned(), line: 0, fault: fault.to_owned(), fix }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;

    #[test]
    fn missing_outgrown_and_stale_documents_are_found() {
        let empty = "<!-- made by `cargo xtask docs`: begin -->\n<!-- made by `cargo xtask docs`: end -->\n";
        let [stores, command] = [docs::STORES, docs::COMMAND].map(|page| docs::current(page, empty).unwrap());
        let [benchmarks, plot] =
            [figures::BENCHMARKS, figures::PLOT].map(|file| std::fs::read_to_string(shell::root().join(file)).unwrap());
        let mut files: Vec<(&str, &str)> = PAGES.iter().map(|page| (*page, "# Page\n## [Unreleased]\n")).collect();
        files.extend([(docs::STORES, &*stores), (docs::COMMAND, &*command)]);
        files.extend([(figures::BENCHMARKS, &*benchmarks), (figures::PLOT, &*plot)]);
        assert!(current(&Tree::of(&files)).is_empty());

        let paths = |files: &[(&str, &str)]| -> Vec<String> {
            current(&Tree::of(files)).into_iter().map(|violation| violation.path).collect()
        };
        let long = "x\n".repeat(PAGE + 1);
        files[0].1 = &long;
        files[4].1 = "# Changelog\n";
        let stale = stores.replace("| URL", "| Address");
        files[6].1 = &stale;
        files[9].1 = "<svg/>";
        assert_eq!(paths(&files), ["ARCHITECTURE.md", "CHANGELOG.md", docs::STORES, figures::PLOT]);
        assert_eq!(paths(&[]).len(), PAGES.len() + 1 + docs::MADE.len());
    }
}
