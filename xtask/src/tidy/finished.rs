//! Nothing lands that is left for later, and files stay small.

use super::Violation;
use super::source::{Source, has_word};
use super::tree::Tree;

/// Split, so that this file does not find itself.
const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("HACK", ":")];
const CODE: [&str; 3] = ["#[ignore", "todo!(", "unimplemented!("];

pub(super) fn nothing_left(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.files() {
        for (index, line) in text.lines().enumerate() {
            violations.extend(MARKS.iter().filter(|mark| line.contains(*mark)).map(|mark| left(path, index + 1, mark)));
        }
        if path.ends_with(".rs") {
            for (line, code) in Source::new(path, text).lines() {
                violations.extend(CODE.iter().filter(|word| code.contains(*word)).map(|word| left(path, line, word)));
            }
        }
    }
    violations
}

fn left(path: &str, line: usize, what: &str) -> Violation {
    let fix = "do it, or leave it out and write an issue";
    Violation { path: path.to_owned(), line, fault: format!("`{what}`: something is left for later"), fix }
}

/// The 95th percentile of the lengths of Rust files, and the longest of all, in lines.
const P95: usize = 400;
const LONGEST: usize = 700;

pub(super) fn small_files(tree: &Tree) -> Vec<Violation> {
    let mut lengths: Vec<_> = tree.ending(".rs").map(|(path, text)| (text.lines().count(), path)).collect();
    lengths.sort_unstable();
    let long = |(lines, path): &(usize, &str)| Violation {
        path: (*path).to_owned(),
        line: 0,
        fault: format!("has {lines} lines"),
        fix: "split it where it has two reasons to change: 95 of 100 files have at most 400 lines, none over 700",
    };
    let p95 = lengths.len().saturating_sub(1) * 95 / 100;
    let too_many = lengths.get(p95).is_some_and(|(lines, _)| *lines > P95);
    let limit = if too_many { P95 } else { LONGEST };
    lengths.iter().filter(|(lines, _)| *lines > limit).map(long).collect()
}

/// The same for functions.
const FUNCTION_P95: usize = 30;
const FUNCTION_LONGEST: usize = 80;

pub(super) fn small_functions(tree: &Tree) -> Vec<Violation> {
    let functions = tree.rust("").flat_map(|source| {
        let path = source.path;
        functions(&source).into_iter().map(move |(line, lines)| (lines, path, line)).collect::<Vec<_>>()
    });
    let mut functions: Vec<_> = functions.collect();
    functions.sort_unstable();
    let p95 = functions.len().saturating_sub(1) * 95 / 100;
    let too_many = functions.get(p95).is_some_and(|(lines, ..)| *lines > FUNCTION_P95);
    let limit = if too_many { FUNCTION_P95 } else { FUNCTION_LONGEST };
    let long = |(lines, path, line): &(usize, &str, usize)| Violation {
        path: (*path).to_owned(),
        line: *line,
        fault: format!("a function of {lines} lines"),
        fix: "take a step out and name it: 95 of 100 functions have at most 30 lines, none over 80",
    };
    functions.iter().filter(|(lines, ..)| *lines > limit).map(long).collect()
}

/// Where each function with a body of several lines begins, and how many lines it has; formatted code is presumed.
fn functions(source: &Source<'_>) -> Vec<(usize, usize)> {
    let mut open: Vec<(usize, &str)> = Vec::new();
    let mut found = Vec::new();
    for (line, code) in source.lines() {
        let text = code.trim_start();
        let indent = &code[..code.len() - text.len()];
        let begins =
            has_word(text, "fn") && !text.starts_with(['.', '|', '(']) && !text.trim_end().ends_with([';', '}', ',']);
        if begins {
            open.push((line, indent));
        } else if text.trim_end() == "}" && open.last().is_some_and(|(_, of)| *of == indent) {
            found.extend(open.pop().map(|(first, _)| (first, line - first + 1)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_test_and_an_open_end_are_found() {
        let text = format!("// {}: later\n#[ignore]\nfn a() {{\n    todo!()\n}}\n", MARKS[0]);
        let lines: Vec<_> = nothing_left(&Tree::of(&[("a.rs", &text)])).iter().map(|found| found.line).collect();
        assert_eq!(lines, [1, 2, 4]);
        assert_eq!(nothing_left(&Tree::of(&[("a.md", &format!("{}\n", MARKS[1]))])).len(), 1);
    }

    #[test]
    fn a_function_that_is_too_long_is_found() {
        let function =
            |lines: usize| format!("impl A {{\n    fn a(\n    ) {{\n{}    }}\n}}\n", "        b;\n".repeat(lines - 3));
        let found = |text: &str| -> Vec<usize> {
            small_functions(&Tree::of(&[("a.rs", text)])).iter().map(|violation| violation.line).collect()
        };
        assert!(found(&(function(30) + "fn c();\nfn d() {}\n")).is_empty());
        assert_eq!(found(&function(31)), [2]);
        assert_eq!(found(&(function(4).repeat(40) + &function(80))), [0; 0]);
        assert_eq!(found(&(function(4).repeat(40) + &function(81))).len(), 1);
    }

    #[test]
    fn a_file_that_is_too_long_is_found() {
        let (small, long, giant) = ("x\n".repeat(10), "x\n".repeat(401), "x\n".repeat(701));
        let mut files: Vec<(String, &str)> = (0..30).map(|index| (format!("{index}.rs"), small.as_str())).collect();
        let found = |files: &[(String, &str)]| {
            let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            small_files(&Tree::of(&files)).len()
        };
        files.push(("long.rs".to_owned(), &long));
        assert_eq!(found(&files), 0);
        files.push(("giant.rs".to_owned(), &giant));
        assert_eq!(found(&files), 1);
        files.extend([("longer.rs".to_owned(), long.as_str()), ("longest.rs".to_owned(), &long)]);
        assert_eq!(found(&files), 4);
    }
}
