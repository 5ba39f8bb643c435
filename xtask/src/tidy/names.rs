//! Paths and identifiers that documents name between backticks exist.

use std::collections::BTreeSet;

use super::Violation;
use super::source::identifiers;
use super::tree::{Tree, prose};

/// Old changes name items that are gone.
const PAST: &str = "CHANGELOG.md";

/// A path in a document starts at one of these, or at the document's own folder.
const STARTS: [&str; 3] = ["", "crates/fencelock/src/", "crates/fencelock/"];

/// Names of other projects, which the tree need not hold: crates, programs, files of a user's machine, items of other clients and servers.
const OTHERS: &str = "xtask/reviewed/names-of-others.txt";

pub(super) fn exist(tree: &Tree) -> Vec<Violation> {
    let known = known_identifiers(tree);
    let others: BTreeSet<&str> = tree.text(OTHERS).unwrap_or_default().lines().collect();
    let mut violations = Vec::new();
    for (path, text) in tree.ending(".md").filter(|(path, _)| *path != PAST) {
        for (line, name) in quoted(text) {
            if let Some(fault) = fault(tree, &known, path, name).filter(|_| !others.contains(name)) {
                let fix = "name what is there, or write it without backticks";
                violations.push(Violation::at(path, line, fault, fix));
            }
        }
    }
    violations
}

fn known_identifiers(tree: &Tree) -> BTreeSet<String> {
    // Options of URLs are words in literals; a name in a comment alone is not there. A lint or a dependency is named in a manifest.
    let files = tree.files().filter(|(path, _)| path.ends_with(".rs") || path.ends_with("Cargo.toml"));
    let code = files.flat_map(|(_, text)| text.lines()).filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(identifiers).map(str::to_owned).collect()
}

/// The words between backticks, outside code blocks.
fn quoted(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(line, words)| words.split('`').skip(1).step_by(2).map(move |name| (line, name)))
}

fn fault(tree: &Tree, known: &BTreeSet<String>, document: &str, name: &str) -> Option<String> {
    if name.contains(['<', '*', '…', '=']) {
        return None;
    }
    if let Some(verb) = name.strip_prefix("cargo xtask ") {
        let verb = verb.split(' ').next().unwrap_or(verb);
        let found = crate::VERBS.iter().any(|known| known.name == verb);
        return (!found).then(|| format!("names the verb `{verb}` of xtask, which is not there"));
    }
    if name.contains(' ') {
        return None;
    }
    if name.starts_with("FENCELOCK_") {
        let read = tree.ending(".rs").any(|(path, text)| path.starts_with("crates/") && text.contains(name));
        return (!read).then(|| format!("names the variable `{name}`, which nothing reads"));
    }
    if is_path(name) {
        let folder = document.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
        let is_there = |path: &String| STARTS.iter().any(|start| tree.has(&format!("{start}{path}")));
        let found = expand(name).iter().all(|path| is_there(path) || tree.has(&format!("{folder}{path}")));
        return (!found).then(|| format!("names the path `{name}`, which is not there"));
    }
    let missing = code_words(name)?.into_iter().find(|word| !known.contains(*word))?;
    Some(format!("names `{name}`, and `{missing}` is nowhere in the code"))
}

fn is_path(name: &str) -> bool {
    let url = name.contains(':') || name.starts_with('/') || name.starts_with('~');
    let file = [".rs", ".md", ".toml", ".txt"].iter().any(|end| name.ends_with(end));
    !url && !name.contains('(') && (name.contains('/') || file)
}

/// `a/{b,c}.rs` is two paths.
fn expand(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let Some((choices, after)) = rest.split_once('}') else { return vec![path.to_owned()] };
    choices.split(',').map(|choice| format!("{before}{choice}{after}")).collect()
}

/// The identifiers of `Type`, `module::item`, `function()` or `some_name`; `None` when it looks like none of these.
fn code_words(name: &str) -> Option<Vec<&str>> {
    let call = name.split_once('(').map(|(called, _)| called);
    let path = call.unwrap_or(name).trim_start_matches("#[").trim_end_matches(['!', ']']);
    let is_code = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let words: Vec<&str> = path.split("::").flat_map(|part| part.split('.')).collect();
    if !words.iter().all(|word| is_code(word)) {
        return None;
    }
    let is_type = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_uppercase()) && word.contains(|c: char| c.is_ascii_lowercase())
    };
    let says_so = call.is_some() || path.contains("::") || path.contains('_') || is_type(words[0]);
    says_so.then(|| words.into_iter().filter(|word| !matches!(*word, "std" | "core")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(document: &str) -> Vec<usize> {
        let code = "pub struct Guard;\nimpl Guard { pub fn try_release(&self) {} }\n// Hidden\n";
        let tree = Tree::of(&[("crates/fencelock/src/a/b.rs", code), ("STYLE.md", document)]);
        exist(&tree).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn names_that_exist_are_fine_and_words_that_are_no_names_are_left_alone() {
        let document = "`Guard` `Guard::try_release` `try_release()` `a/b.rs` `crates/fencelock/src/a/` `ttl` `a/{b}.rs`\n\
            `cargo xtask tidy` `cargo run -- x` `file:///dir` `<name>/x` `n of m`\n```\n`Gone`\n```\n";
        assert!(faults(document).is_empty(), "{:?}", faults(document));
    }

    #[test]
    fn names_of_what_is_gone_are_found() {
        let document = "`Gone`\n`Guard::gone`\n`gone()`\n`a/gone.rs`\n`cargo xtask gone`\n`Hidden`\n`was_here`\n\
            `FENCELOCK_GONE`\n";
        assert_eq!(faults(document), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
