//! The keys of advisory locks: the numbers that each program takes for a name.

use sha1_smol::Sha1;

use super::super::url::bad;
use crate::error::{Error, ErrorKind, Result};
use crate::name::Name;

/// A key. The two kinds are separate: a pair is never a `bigint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) enum Key {
    Big(i64),
    Pair(i32, i32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Keys {
    /// The keys of DistributedLock.NET.
    Net,
    /// The keys of with_advisory_lock for Ruby, for names that are text.
    Ruby,
    Big,
    Pair,
    Given(Key),
}

const KNOWN: &str = ".net, with_advisory_lock, bigint, int4, bigint:<number>, int4:<number>,<number>";

const PACKED: usize = 9;

impl Keys {
    pub(in super::super) fn read(text: Option<&str>) -> Result<Self> {
        let unknown =
            || bad("`layout=advisory` needs to know how names become keys: say it as in key=.net").with("known", KNOWN);
        Ok(match text {
            Some(".net") => Self::Net,
            Some("with_advisory_lock") => Self::Ruby,
            Some("bigint") => Self::Big,
            Some("int4") => Self::Pair,
            Some(given) => {
                let key = match given.split_once(':') {
                    Some(("bigint", number)) => big(number),
                    Some(("int4", numbers)) => pair(numbers),
                    _ => None,
                };
                Self::Given(key.ok_or_else(unknown)?)
            }
            None => return Err(unknown()),
        })
    }

    pub(super) fn of(&self, operation: &'static str, name: &Name) -> Result<Key> {
        let text = name.as_str();
        let no_number =
            |allowed: &'static str| Error::new(ErrorKind::InvalidName, operation, allowed).with("name", name);
        match self {
            Self::Net => Ok(net(text)),
            Self::Ruby => Ok(Key::Pair((crc32(text.as_bytes()) & 0x7fff_ffff).cast_signed(), 0)),
            Self::Big => big(text).ok_or_else(|| no_number("with key=bigint a name is a whole number of 64 bits")),
            Self::Pair => pair(text).ok_or_else(|| {
                no_number("with key=int4 a name is two whole numbers of 32 bits with a comma between, as 1,2")
            }),
            Self::Given(key) => Ok(*key),
        }
    }

    /// A name with this key, where the key shows one.
    pub(super) fn name(&self, key: Key) -> Option<Name> {
        let text = match (self, key) {
            (Self::Big, Key::Big(number)) => number.to_string(),
            (Self::Pair, Key::Pair(first, second)) => format!("{first},{second}"),
            (Self::Net, Key::Pair(first, second)) => unpacked(first, second)?,
            _ => return None,
        };
        let name = Name::new(text).ok()?;
        (self.of("names", &name).ok()? == key).then_some(name)
    }
}

fn big(text: &str) -> Option<Key> {
    text.parse().ok().map(Key::Big)
}

fn pair(text: &str) -> Option<Key> {
    let (first, second) = text.split_once(',')?;
    Some(Key::Pair(first.parse().ok()?, second.parse().ok()?))
}

/// Up to 9 ASCII characters have 7 bits each, then a bit 0 and bits 1 to the end. 16 digits are the key itself. Other names are digested.
fn net(text: &str) -> Key {
    let halves = |bits: u64| Key::Pair(((bits >> 32) as u32).cast_signed(), (bits as u32).cast_signed());
    if text.len() <= PACKED && text.is_ascii() {
        let packed = text.bytes().fold(0_u64, |bits, character| bits << 7 | u64::from(character));
        let rest = 64 - 7 * text.len();
        return halves((packed << rest.min(63)) | ((1_u64 << (rest - 1)) - 1));
    }
    let digits = |text: &str| {
        let are_digits = text.bytes().all(|digit| digit.is_ascii_hexdigit());
        are_digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
    };
    match (text.len(), text.split_once(',')) {
        (16, None) if digits(text).is_some() => return Key::Big(digits(text).unwrap_or_default().cast_signed()),
        (17, Some((first, second))) if first.len() == 8 => {
            if let (Some(first), Some(second)) = (digits(first), digits(second)) {
                return halves(first << 32 | second);
            }
        }
        _ => {}
    }
    let digest = Sha1::from(text).digest().bytes();
    Key::Big(i64::from_le_bytes(std::array::from_fn(|index| digest[index])))
}

fn unpacked(first: i32, second: i32) -> Option<String> {
    let bits = u64::from(first.cast_unsigned()) << 32 | u64::from(second.cast_unsigned());
    let used = 64_usize.checked_sub(bits.trailing_ones() as usize + 1)?;
    let length = Some(used / 7).filter(|length| used % 7 == 0 && *length > 0)?;
    (0..length).map(|index| char::from_u32((bits >> (64 - 7 * (index + 1)) & 0x7f) as u32)).collect()
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(keys: &str, name: &str) -> Key {
        Keys::read(Some(keys)).unwrap().of("enter", &Name::new(name).unwrap()).unwrap()
    }

    #[test]
    fn keys_are_those_of_the_programs_that_they_are_shared_with() {
        assert_eq!(key(".net", "job"), Key::Pair(-708_897_793, -1));
        assert_eq!(key(".net", "nightly report"), Key::Big(-3_493_012_053_219_155_971));
        assert_eq!(key(".net", "00000000000000ff"), Key::Big(255));
        assert_eq!(key(".net", "ffffffff,00000002"), Key::Pair(-1, 2));
        assert_eq!(key("with_advisory_lock", "job"), Key::Pair(2_077_810_936, 0));
        assert_eq!((key("bigint", "-5"), key("int4", "-1,2")), (Key::Big(-5), Key::Pair(-1, 2)));
        assert_eq!((key("bigint:7", "job"), key("int4:1,2", "job")), (Key::Big(7), Key::Pair(1, 2)));
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_key_tells_its_name_where_nothing_is_lost() {
        for (keys, name, has_name) in [
            (".net", "job", true),
            (".net", "123456789", true),
            (".net", "a", true),
            (".net", "nightly report", false),
            ("bigint", "-5", true),
            ("int4", "-1,2", true),
            ("with_advisory_lock", "job", false),
        ] {
            let found = Keys::read(Some(keys)).unwrap().name(key(keys, name));
            assert_eq!(found.map(|name| name.to_string()), has_name.then(|| name.to_owned()), "{keys} {name}");
        }
        assert_eq!(Keys::Net.name(Key::Pair(-1, -1)), None);
        assert_eq!(Keys::Net.name(Key::Pair(0, 0)), None);
    }

    #[test]
    fn an_unusable_key_is_refused() {
        for keys in [
            None,
            Some(""),
            Some("sha1"),
            Some("bigint:"),
            Some("bigint:x"),
            Some("int4:1"),
            Some("int4:1,99999999999"),
        ] {
            assert_eq!(Keys::read(keys).unwrap_err().kind(), ErrorKind::Config, "{keys:?}");
        }
        for (keys, name) in [("bigint", "job"), ("bigint", "1,2"), ("int4", "1"), ("int4", "1,2,3")] {
            let refused = Keys::read(Some(keys)).unwrap().of("enter", &Name::new(name).unwrap());
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidName, "{keys} {name}");
        }
    }
}
