//! The server's named lock for the name of a lock.

use sha2::{Digest, Sha512};

use super::super::url::bad;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Keys {
    /// The key of DistributedLock.NET for this text with the name behind it.
    Net(String),
    /// This text, and the name behind it.
    Exact(String),
    Given(String),
}

const KNOWN: &str = ".net, with_advisory_lock, exact, exact:<name of the lock>";

/// The longest name of a lock, in characters: MySQL takes no more.
const MOST: usize = 64;
const DIGITS: usize = 32;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

impl Keys {
    pub(in super::super) fn read(text: Option<&str>, prefix: Option<String>) -> Result<Self> {
        let has_prefix = prefix.is_some();
        let prefix = prefix.unwrap_or_default();
        match text {
            Some(".net") => Ok(Self::Net(prefix)),
            Some("exact" | "with_advisory_lock") => Ok(Self::Exact(prefix)),
            Some(given) => match given.strip_prefix("exact:") {
                Some(_) if has_prefix => Err(bad("with `key=exact:` the whole name is given: leave `prefix` out")),
                Some(key) if (1..=MOST).contains(&key.chars().count()) => Ok(Self::Given(key.to_owned())),
                Some(_) => Err(bad("a named lock has a name of 1 to 64 characters")),
                None => Err(unknown()),
            },
            None => Err(unknown()),
        }
    }

    pub(super) fn of(&self, operation: &'static str, name: &Name) -> Result<String> {
        match self {
            Self::Net(prefix) => Ok(net(&format!("{prefix}{name}"))),
            Self::Exact(prefix) => {
                let key = format!("{prefix}{name}");
                if key.chars().count() > MOST {
                    let message = "the name of a named lock has 64 characters at most";
                    return Err(Error::new(ErrorKind::InvalidName, operation, message).with("name", name));
                }
                Ok(key)
            }
            Self::Given(key) => Ok(key.clone()),
        }
    }
}

fn unknown() -> Error {
    bad("`layout=get_lock` needs to know how names become those of named locks: say it as in key=.net")
        .with("known", KNOWN)
}

/// A short name in small letters is its key; the key of any other is its beginning and a digest. Lengths count units of UTF-16.
fn net(name: &str) -> String {
    // As in .NET, a character stays one character.
    let small = |c: char| Some(c.to_lowercase()).filter(|small| small.len() == 1).and_then(|mut small| small.next());
    let small: String = name.chars().map(|c| small(c).unwrap_or(c)).collect();
    let units: Vec<u16> = small.encode_utf16().collect();
    if small == name && units.len() <= MOST {
        return small;
    }
    let digest = Sha512::digest(name.as_bytes());
    // 5 bits each, the lowest of each byte first.
    let digit = |index: usize| {
        let (byte, shift) = (index * 5 / 8, index * 5 % 8);
        let two = u16::from_le_bytes([digest[byte], digest[byte + 1]]);
        char::from(ALPHABET[usize::from(two >> shift & 31)])
    };
    let kept = String::from_utf16_lossy(&units[..units.len().min(MOST - DIGITS)]);
    kept.chars().chain((0..DIGITS).map(digit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(keys: &str, prefix: Option<&str>, name: &str) -> String {
        let keys = Keys::read(Some(keys), prefix.map(str::to_owned)).unwrap();
        keys.of("enter", &Name::new(name).unwrap()).unwrap()
    }

    #[test]
    fn keys_are_those_of_the_programs_that_they_are_shared_with() {
        assert_eq!(key(".net", None, "job"), "job");
        assert_eq!(key(".net", None, "Nightly"), "nightlyggsrfssbblutctwbdltpamp2qrpml357");
        assert_eq!(key(".net", None, &"x".repeat(70)), format!("{}a2c43imllfpmlp6d4lwcyytrulj2ticu", "x".repeat(32)));
        assert_eq!(key(".net", Some("a/"), "job"), "a/job");
        assert_eq!(key("with_advisory_lock", None, "Job"), "Job");
        assert_eq!(key("exact", Some("app_"), "job"), "app_job");
        assert_eq!(key("exact:Nightly", None, "job"), "Nightly");
    }

    #[test]
    fn an_unusable_key_is_refused() {
        for keys in [None, Some(""), Some("sha1"), Some("exact:"), Some("bigint")] {
            assert_eq!(Keys::read(keys, None).unwrap_err().kind(), ErrorKind::Config, "{keys:?}");
        }
        assert_eq!(Keys::read(Some("exact:a"), Some("b".into())).unwrap_err().kind(), ErrorKind::Config);
        let long = Name::new("n".repeat(65)).unwrap();
        let refused = Keys::Exact(String::new()).of("enter", &long);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidName);
    }
}
