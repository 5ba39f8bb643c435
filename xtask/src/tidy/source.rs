//! Rust text as rules look at it: without what is in comments and literals, and split into library and test code.

use ra_ap_rustc_lexer::{FrontmatterAllowed, TokenKind, tokenize};

/// A Rust file.
pub(super) struct Source<'a> {
    pub(super) path: &'a str,
    /// The text with comments and the insides of literals blanked out; the lines stay where they were.
    code: String,
    /// The line (from 1) from which on everything is tests.
    tests_from: usize,
}

impl<'a> Source<'a> {
    pub(super) fn new(path: &'a str, text: &str) -> Self {
        let code = mask(text);
        let tests_from = if is_test_file(path) { 0 } else { first_test_line(&code) };
        Self { path, code, tests_from }
    }

    /// Every line of code, from line 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// Lines that are no tests.
    pub(super) fn shipped_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().filter(|(line, _)| *line < self.tests_from)
    }

    /// Lines that are tests.
    pub(super) fn test_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().filter(|(line, _)| *line >= self.tests_from)
    }
}

/// Whether `line` holds `word`, not as a part of a longer word.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let ends_open = !word.ends_with(is_part);
        !(before.is_some_and(is_part) && word.starts_with(is_part)) && (ends_open || !after.is_some_and(is_part))
    })
}

/// The identifiers in a piece of masked code.
pub(super) fn identifiers(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Test modules stand at the end of their file.
fn first_test_line(code: &str) -> usize {
    let lines: Vec<&str> = code.lines().map(str::trim).collect();
    lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{'))
        .map_or(usize::MAX, |index| index + 1)
}

/// Blanks comments and literals; newlines stay.
fn mask(text: &str) -> String {
    let mut rest = text;
    let masked = tokenize(text, FrontmatterAllowed::No).map(|token| {
        let (part, after) = rest.split_at(token.len as usize);
        rest = after;
        match token.kind {
            TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } | TokenKind::Literal { .. } => {
                part.chars().map(|c| if c == '\n' { c } else { ' ' }).collect()
            }
            _ => part.to_owned(),
        }
    });
    masked.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_stay() {
        let text = concat!(
            "let a = \"un//safe \\\" x\"; // hidden\n",
            "/* hidden /* deeper */ hidden */ let b = 'h'; let c: &'static str = r#\"hid\"den\"#;\n",
            "let d = b\"hidden\"; let e = '\\''; let r = rest; shown\n",
        );
        let masked = mask(text);
        assert_eq!(masked.lines().count(), 3);
        assert!(!masked.contains("hid") && !masked.contains("safe"), "{masked}");
        for kept in ["let a =", "let b =", "&'static str", "let d =", "let e =", "rest", "shown"] {
            assert!(masked.contains(kept), "{kept}: {masked}");
        }
    }

    #[test]
    fn a_word_is_not_found_inside_a_longer_one() {
        assert!(has_word("unsafe { }", "unsafe") && has_word("(unsafe)", "unsafe"));
        assert!(!has_word("unsafe_code", "unsafe") && !has_word("not_unsafe", "unsafe"));
        assert!(has_word("tokio::spawn(x)", "tokio::") && !has_word("eprintln!()", "println!"));
    }

    #[test]
    fn the_test_module_is_distinguished_from_what_ships() {
        let source = Source::new("a/src/x.rs", "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n");
        assert!(source.shipped_lines().all(|(_, line)| !line.contains("fn b")));
        assert!(source.test_lines().any(|(_, line)| line.contains("fn b")));
        assert_eq!(Source::new("a/tests/x.rs", "fn b() {}").shipped_lines().count(), 0);
    }
}
