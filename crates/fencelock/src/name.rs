//! The name of a lock, validated once.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

/// The name of a resource that is locked: UTF-8, 1 to 512 bytes, no control characters, and no segment (between
/// slashes) that is empty, `.` or `..`.
///
/// Names are raw: each store encodes them injectively, so `job/x` never nests inside `job`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// Checks `name`, and makes a [`Name`] of it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] that says what is wrong and what is allowed.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        match fault(name) {
            None => Ok(Self(name.into())),
            Some(fault) => Err(Error::new(
                ErrorKind::InvalidName,
                "name",
                format!(
                    "{fault}; a name is 1 to {} bytes of UTF-8 without control characters, and no part of it between slashes is empty, `.` or `..`",
                    Self::MAX_BYTES
                ),
            )),
        }
    }

    /// The name as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("the name is empty".to_owned());
    }
    if name.len() > Name::MAX_BYTES {
        return Some(format!("the name has {} bytes", name.len()));
    }
    if let Some(control) = name.chars().find(|c| c.is_control()) {
        return Some(format!("the name {name:?} holds the control character {control:?}"));
    }
    let bad = name.split('/').find(|segment| matches!(*segment, "" | "." | ".."))?;
    Some(format!("the name {name:?} holds the segment {bad:?}"))
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

impl TryFrom<&str> for Name {
    type Error = Error;

    fn try_from(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

impl TryFrom<String> for Name {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        Self::new(name)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_are_taken_as_they_are() {
        for name in ["deploy", "job/x", "a b", "日本", "a.b", "..a", "x%2Fy", &"n".repeat(512)] {
            assert_eq!(Name::new(name).unwrap().as_str(), name);
            assert_eq!(Name::try_from(name).unwrap(), Name::try_from(name.to_owned()).unwrap());
        }
    }

    #[test]
    fn bad_names_are_refused_and_the_error_says_what_is_allowed() {
        for name in ["", "a\0b", "a\nb", ".", "..", "a/../b", "/a", "a/", "a//b", "a/.", "\u{7f}", &"n".repeat(513)] {
            let error = Name::new(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidName, "{name:?}");
            assert!(error.to_string().contains("1 to 512 bytes"), "{error}");
        }
    }
}
