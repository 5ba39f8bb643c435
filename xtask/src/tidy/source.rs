//! Rust text as rules look at it: without what is in comments and literals, and split into library and test code.

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

/// Blanks comments, strings and characters; newlines stay.
fn mask(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut masked = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end == at {
            masked.push(chars[at]);
            at += 1;
        } else {
            masked.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    masked
}

/// Where the comment or literal that starts at `at` ends; `at` itself when none does.
fn literal_end(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => find(chars, at, |rest| rest[0] == '\n').unwrap_or(chars.len()),
        '/' if next == Some('*') => block_comment_end(chars, at),
        '"' => quoted_end(chars, at, '"'),
        '\'' if next == Some('\\') || chars.get(at + 2) == Some(&'\'') => quoted_end(chars, at, '\''),
        'r' if at == 0 || !(chars[at - 1].is_alphanumeric() || chars[at - 1] == '_') || chars[at - 1] == 'b' => {
            raw_string_end(chars, at).unwrap_or(at)
        }
        _ => at,
    }
}

fn find(chars: &[char], from: usize, stop: impl Fn(&[char]) -> bool) -> Option<usize> {
    (from..chars.len()).find(|at| stop(&chars[*at..]))
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut here = at;
    while here < chars.len() {
        match (chars[here], chars.get(here + 1)) {
            ('/', Some('*')) => (depth, here) = (depth + 1, here + 2),
            ('*', Some('/')) => (depth, here) = (depth - 1, here + 2),
            _ => here += 1,
        }
        if depth == 0 {
            return here;
        }
    }
    chars.len()
}

fn quoted_end(chars: &[char], at: usize, quote: char) -> usize {
    let mut here = at + 1;
    while here < chars.len() && chars[here] != quote {
        here += if chars[here] == '\\' { 2 } else { 1 };
    }
    (here + 1).min(chars.len())
}

fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    let start = at + 1 + hashes;
    if chars.get(start) != Some(&'"') {
        return None;
    }
    let is_end = |rest: &[char]| rest[0] == '"' && rest[1..].iter().take_while(|c| **c == '#').count() >= hashes;
    Some(find(chars, start + 1, is_end).map_or(chars.len(), |end| end + 1 + hashes))
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
        for kept in ["let a =", "let b =", "&'static str", "let d = b", "let e =", "rest", "shown"] {
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
    fn the_test_module_is_told_from_what_ships() {
        let source = Source::new("a/src/x.rs", "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n");
        assert!(source.shipped_lines().all(|(_, line)| !line.contains("fn b")));
        assert!(source.test_lines().any(|(_, line)| line.contains("fn b")));
        assert_eq!(Source::new("a/tests/x.rs", "fn b() {}").shipped_lines().count(), 0);
    }
}
