//! Patterns of names: which names they match, and which of two is the more specific one.

use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;

/// A pattern of names, for routes and for the classes of metrics: parts between slashes, as a [`Name`] has them.
///
/// A part `*` matches any one part. A last part `**` matches one or more parts. Every other part matches itself, and holds no `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern {
    text: String,
    /// `None` matches any part.
    parts: Vec<Option<String>>,
    /// At least one part follows.
    has_more: bool,
}

impl NamePattern {
    /// Checks `text`, and makes a pattern of it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] that says what is wrong and what is allowed.
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        let wrong = |fault: String| {
            let allowed = "`*` is any one part between slashes, and `**` at the end one or more";
            Error::new(ErrorKind::Config, "pattern", format!("the pattern {text:?} is not valid: {fault}; {allowed}"))
        };
        Name::new(text).map_err(|error| wrong(error.said_without("name")))?;
        let mut parts: Vec<&str> = text.split('/').collect();
        let has_more = parts.pop_if(|last| *last == "**").is_some();
        let part_of = |part: &str| match part {
            "*" => Ok(None),
            "**" => Err(wrong("`**` may only be the last part".to_owned())),
            part if part.contains('*') => {
                Err(wrong(format!("the part `{part}` holds a `*`, which stands for a whole part")))
            }
            part => Ok(Some(part.to_owned())),
        };
        let parts = parts.into_iter().map(part_of).collect::<Result<Vec<_>>>()?;
        Ok(Self { text: text.to_owned(), parts, has_more })
    }

    /// The pattern as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the pattern matches `name`.
    #[must_use]
    pub fn matches(&self, name: &Name) -> bool {
        let parts: Vec<_> = name.as_str().split('/').collect();
        self.has_length(parts.len())
            && self.parts.iter().zip(parts).all(|(own, part)| own.as_deref().is_none_or(|own| own == part))
    }

    /// Whether this pattern matches every name that `other` matches.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        let lengths = if other.has_more { self.has_more } else { self.has_length(other.parts.len()) };
        lengths
            && self.shortest() <= other.shortest()
            && self.parts.iter().enumerate().all(|(at, own)| own.is_none() || other.parts.get(at) == Some(own))
    }

    /// Whether both patterns match some name.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let length = self.shortest().max(other.shortest());
        let agree =
            |(one, another): (&Option<String>, &Option<String>)| one.is_none() || another.is_none() || one == another;
        self.has_length(length) && other.has_length(length) && self.parts.iter().zip(&other.parts).all(agree)
    }

    /// The number of parts of the shortest matching name.
    fn shortest(&self) -> usize {
        self.parts.len() + usize::from(self.has_more)
    }

    /// Whether the pattern matches names of this number of parts.
    fn has_length(&self, parts: usize) -> bool {
        if self.has_more { parts >= self.shortest() } else { parts == self.shortest() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything of up to three parts out of `parts`, joined.
    fn all_of(parts: &[&str]) -> Vec<String> {
        let mut all: Vec<String> = parts.iter().map(ToString::to_string).collect();
        for shorter in [all.clone(), all.iter().flat_map(|a| parts.iter().map(move |b| format!("{a}/{b}"))).collect()] {
            all.extend(shorter.iter().flat_map(|a| parts.iter().map(move |b| format!("{a}/{b}"))));
        }
        all
    }

    #[test]
    fn relations_of_patterns_agree_with_the_names_that_match() {
        let names: Vec<_> = all_of(&["a", "b", "x"]).iter().map(|name| Name::new(name).unwrap()).collect();
        let patterns: Vec<_> =
            all_of(&["a", "b", "*", "**"]).iter().filter_map(|text| NamePattern::new(text).ok()).collect();
        assert!(names.len() >= 39 && patterns.len() >= 50, "{} {}", names.len(), patterns.len());
        for one in &patterns {
            for other in &patterns {
                let both = names.iter().any(|name| one.matches(name) && other.matches(name));
                assert_eq!(one.overlaps(other), both, "{one:?} {other:?}");
                // Two patterns that end in `**` treat names of more parts alike.
                let all = names.iter().all(|name| one.matches(name) || !other.matches(name));
                assert_eq!(one.contains(other), all && (one.has_more || !other.has_more), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_star_is_one_part_and_two_at_the_end_are_one_or_more() {
        let matches = |pattern: &str, name: &str| NamePattern::new(pattern).unwrap().matches(&Name::new(name).unwrap());
        assert!(matches("**", "a") && matches("**", "a/b/c"));
        assert!(matches("pay/**", "pay/1") && matches("pay/**", "pay/1/2"));
        assert!(!matches("pay/**", "pay") && !matches("pay/**", "payroll/1"));
        assert!(matches("pay/*/x", "pay/1/x") && !matches("pay/*/x", "pay/1/2/x"));
    }

    #[test]
    fn an_unusable_pattern_is_refused_with_the_reason() {
        for (text, said) in [
            ("", "empty"),
            ("a//b", "segment"),
            ("/a", "segment"),
            ("**/a", "last part"),
            ("a*", "whole part"),
            ("a/***", "whole part"),
            ("a/../b", "segment"),
        ] {
            let fault = NamePattern::new(text).unwrap_err().to_string();
            assert!(fault.contains(said) && fault.contains("any one part"), "{text}: {fault}");
        }
    }
}
