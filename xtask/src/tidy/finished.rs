//! Nothing lands that is left for later, and files stay small. clippy counts the lines of functions, and knows `todo!`.

use super::Violation;
use super::tree::Tree;

/// Split, so that this file does not find itself.
const MARKS: [&str; 4] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("HACK", ":"), concat!("#[", "ignore")];

pub(super) fn nothing_left(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.files() {
        for (index, line) in text.lines().enumerate() {
            for mark in MARKS.iter().filter(|mark| line.contains(*mark)) {
                let fault = format!("`{mark}`: something is left for later");
                let fix = "do it, or leave it out and write an issue";
                violations.push(Violation::at(path, index + 1, fault, fix));
            }
        }
    }
    violations
}

/// The longest Rust file, in lines.
const LONGEST: usize = 700;

pub(super) fn small_files(tree: &Tree) -> Vec<Violation> {
    let long = |(path, text): (&str, &str)| {
        let lines = text.lines().count();
        let fix = "split it where it has two reasons to change";
        (lines > LONGEST).then(|| Violation::at(path, 0, format!("has {lines} lines"), fix))
    };
    tree.ending(".rs").filter_map(long).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_test_and_an_open_end_are_found() {
        let text = format!("// {}: later\n{}]\nfn a() {{}}\n", MARKS[0], MARKS[3]);
        let lines: Vec<_> = nothing_left(&Tree::of(&[("a.rs", &text)])).iter().map(|found| found.line).collect();
        assert_eq!(lines, [1, 2]);
        assert_eq!(nothing_left(&Tree::of(&[("a.md", &format!("{}\n", MARKS[1]))])).len(), 1);
    }

    #[test]
    fn a_file_that_is_too_long_is_found() {
        let (long, longer) = ("x\n".repeat(LONGEST), "x\n".repeat(LONGEST + 1));
        assert_eq!(small_files(&Tree::of(&[("a.rs", &long), ("b.rs", &longer), ("c.md", &longer)])).len(), 1);
    }
}
