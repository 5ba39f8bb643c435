//! Names that are counted together: so many figures as there are patterns, whatever the names are.

use std::sync::Arc;

pub(crate) const OTHER: &str = "other";

/// The classes, in the order in which they are tried; `other` is the last.
#[derive(Debug, Clone)]
pub(crate) struct Classes(Arc<[String]>);

impl Classes {
    /// One for each pattern; the same pattern given again is the same class, and a pattern `other` is that of all other names.
    pub(crate) fn new(patterns: &[String]) -> Self {
        let first = |(at, pattern): &(usize, &String)| *pattern != OTHER && !patterns[..*at].contains(pattern);
        let patterns = patterns.iter().enumerate().filter(first).map(|(_, pattern)| pattern.clone());
        Self(patterns.chain([OTHER.to_owned()]).collect())
    }

    pub(crate) fn of(&self, name: &str) -> usize {
        let last = self.0.len() - 1;
        self.0[..last].iter().position(|pattern| fits(pattern, name)).unwrap_or(last)
    }

    pub(crate) fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    pub(crate) fn name(&self, class: usize) -> &str {
        &self.0[class]
    }

    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|class| class == name)
    }
}

/// Whether `name` is what `pattern` says, where `*` stands for any characters.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let mut parts: Vec<_> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        match name.find(part) {
            Some(at) => name = &name[at + part.len()..],
            None => return false,
        }
    }
    name.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name) in [
            ("a", "a"),
            ("*", ""),
            ("job/*", "job/"),
            ("job/*", "job/a/b"),
            ("*x*z", "axyz"),
            ("a*a", "aa"),
            ("**", "é"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a", "ab"), ("job/*", "job"), ("a*a", "a"), ("*x*z", "azx"), ("*b", "bc")] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_that_is_given_again_is_one_class() {
        let classes = Classes::new(&["a*".to_owned(), "b".to_owned(), "a*".to_owned(), "b".to_owned()]);
        assert_eq!(classes.names().collect::<Vec<_>>(), ["a*", "b", OTHER]);
        assert_eq!(Classes::new(&[OTHER.to_owned()]).names().collect::<Vec<_>>(), [OTHER]);
    }

    #[test]
    fn a_million_names_are_as_many_classes_as_there_are_patterns() {
        let classes = Classes::new(&["job/*".to_owned(), "*/nightly".to_owned()]);
        let mut counts = [0; 3];
        for number in 0..1_000_000 {
            counts[classes.of(&format!("job/{number}"))] += 1;
            counts[classes.of(&format!("user-{number}"))] += 1;
        }
        assert_eq!(counts, [1_000_000, 0, 1_000_000]);
        assert_eq!((classes.of("a/nightly"), classes.of("job/nightly")), (1, 0));
        assert_eq!(classes.names().collect::<Vec<_>>(), ["job/*", "*/nightly", OTHER]);
    }
}
