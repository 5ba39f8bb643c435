//! Names that are counted together: as many figures as there are patterns, for any number of names.

use std::sync::Arc;

use fencelock::{Name, NamePattern};

pub(crate) const OTHER: &str = "other";

/// The classes, in the order in which they are tried; `other` comes after them.
#[derive(Debug, Clone)]
pub(crate) struct Classes(Arc<[NamePattern]>);

impl Classes {
    /// A class for each pattern; the same pattern given again is the same class.
    pub(crate) fn new(patterns: &[NamePattern]) -> Self {
        let first = |(at, pattern): &(usize, &NamePattern)| !patterns[..*at].contains(pattern);
        Self(patterns.iter().enumerate().filter(first).map(|(_, pattern)| pattern.clone()).collect())
    }

    pub(crate) fn of(&self, name: &Name) -> usize {
        self.0.iter().position(|pattern| pattern.matches(name)).unwrap_or(self.0.len())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(NamePattern::as_str).chain([OTHER])
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len() + 1
    }

    pub(crate) fn name(&self, class: usize) -> &str {
        self.0.get(class).map_or(OTHER, NamePattern::as_str)
    }

    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.names().position(|class| class == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(patterns: &[&str]) -> Classes {
        Classes::new(&patterns.iter().map(|text| NamePattern::new(text).unwrap()).collect::<Vec<_>>())
    }

    #[test]
    fn a_pattern_that_is_given_again_is_one_class() {
        let classes = classes(&["a/*", "b", "a/*", "b"]);
        assert_eq!(classes.names().collect::<Vec<_>>(), ["a/*", "b", OTHER]);
        assert_eq!((classes.count(), classes.find(OTHER), classes.name(2)), (3, Some(2), OTHER));
    }

    #[test]
    fn a_million_names_are_as_many_classes_as_there_are_patterns() {
        let classes = classes(&["job/*", "*/nightly"]);
        let of = |name: &str| classes.of(&Name::new(name).unwrap());
        let mut counts = [0; 3];
        for number in 0..1_000_000 {
            counts[of(&format!("job/{number}"))] += 1;
            counts[of(&format!("user-{number}"))] += 1;
        }
        assert_eq!(counts, [1_000_000, 0, 1_000_000]);
        assert_eq!((of("a/nightly"), of("job/nightly"), of("job/a/b")), (1, 0, 2));
    }
}
